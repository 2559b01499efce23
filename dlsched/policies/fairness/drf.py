"""Dominant resource fairness: equal shares of the resource that each account needs most.

Ghodsi, Zaharia, Hindman, Konwinski, Shenker, Stoica, "Dominant Resource Fairness: Fair Allocation
of Multiple Resource Types", NSDI 2011. An account's tasks all need one vector D of resources; of
capacity R it holds U. Its dominant share is max_j U_j / R_j, divided by its weight. DRF is max-min
fairness over dominant shares.

This is the continuous form by progressive filling (section 4.1). All accounts grow at one rate; an
account stops when a resource that it needs is full, or when it can use no more. An account that
does not need the full resource continues, so the result is efficient.

All numbers are exact fractions, since rounding would change the order of ties. There are few
accounts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np

from dlsched.core.context import RoundContext
from dlsched.core.options import option
from dlsched.core.stage import Entitlements, FairnessPolicy
from dlsched.core.units import Units
from dlsched.policies.fairness.demand import accounts_of

Vector = Sequence[Fraction]
Cap = Fraction | int | None


def shares(used: Vector, capacity: Vector, weight: Fraction | int = 1) -> list[Fraction]:
    """Weighted share of every resource with a capacity above 0."""
    return [u / (r * weight) for u, r in zip(used, capacity, strict=True) if r > 0]


def dominant_share(used: Vector, capacity: Vector, weight: Fraction | int = 1) -> Fraction:
    """The largest weighted share of any resource; shares are of the capacity."""
    return max(shares(used, capacity, weight), default=Fraction(0))


def eligible(demand: Vector, capacity: Vector) -> bool:
    """Whether an account needs only resources that exist."""
    return all(r > 0 or d == 0 for d, r in zip(demand, capacity, strict=True))


def filled(
    capacity: Vector,
    demands: Sequence[Vector],
    weights: Sequence[Fraction | int],
    caps: Sequence[Cap],
) -> list[Fraction]:
    """Tasks of each account by progressive filling, fractions allowed.

    Args:
        capacity: R.
        demands: D of one task, by account.
        weights: of each account, above 0.
        caps: tasks that an account can use; None for any number.
    """
    pace = [
        dominant_share(demand, capacity, weight) if eligible(demand, capacity) else Fraction(0)
        for demand, weight in zip(demands, weights, strict=True)
    ]
    growing = {account for account, mu in enumerate(pace) if mu > 0 and caps[account] != 0}
    tasks = [Fraction(0)] * len(demands)
    used = [Fraction(0)] * len(capacity)
    level = Fraction(0)
    while growing:
        rate = [
            sum((demands[a][j] / pace[a] for a in growing), Fraction(0))
            for j in range(len(capacity))
        ]
        steps = [(r - u) / g for r, u, g in zip(capacity, used, rate, strict=True) if g > 0]
        steps += [cap * pace[a] - level for a in growing if (cap := caps[a]) is not None]
        step = min(steps)
        level += step
        used = [u + g * step for u, g in zip(used, rate, strict=True)]
        full = [j for j, r in enumerate(capacity) if r > 0 and used[j] >= r]
        for a in sorted(growing):
            tasks[a] = level / pace[a]
            if tasks[a] == caps[a] or any(demands[a][j] > 0 for j in full):
                growing.discard(a)
    return tasks


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Dominant resource fairness between virtual clusters."""

    weights: Literal["equal", "guaranteed"] = option(
        "equal",
        "weight of virtual clusters: equal, or their guaranteed GPUs in the cluster file "
        "(a thousandth of a GPU without a guarantee)",
    )


class Drf(FairnessPolicy[Options]):
    """The entitlement of an account is its GPUs under DRF; any account may borrow unused GPUs.

    A task is one GPU with its part of the CPUs and the memory that the account's jobs ask for on
    average, where these are known; an account can use as many as its jobs have GPUs.
    """

    name = "drf"
    summary = "virtual clusters get equal shares of the resource that each needs most"

    def entitle(self, units: Units, ctx: RoundContext) -> Entitlements | None:
        """Continuous shares of the accounts that have jobs now."""
        accounts = accounts_of(units, ctx)
        if accounts is None:
            return None
        weights = accounts.weights(by_quota=self.options.weights == "guaranteed")
        tasks = filled(accounts.capacity, accounts.demands, weights, accounts.wanted)
        entitlement = np.zeros(accounts.count)
        entitlement[accounts.codes] = [float(x) for x in tasks]
        return Entitlements(entitlement, np.full(accounts.count, np.inf))
