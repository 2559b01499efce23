"""HUG: the guarantee of DRF, and the highest utilisation that keeps true demands optimal.

Chowdhury, Liu, Ghodsi, Stoica, "HUG: Multi-Resource Fairness for Correlated and Elastic Demands",
NSDI 2016. To make one unit of progress a tenant k needs d_k^i of every link i (capacities are 1,
max_i d_k^i = 1); beyond that it could use more of any link, up to e_k^i.

    stage 1   M* = 1 / max_i Σ_k d_k^i,   a_k^i = M* d_k^i          all tenants progress by M*
    stage 2   no tenant gets more than M* of a link:  u_k^i = max(a_k^i, min(M*, e_k^i))
              the rest of each link is divided max-min fairly up to these bounds

With a higher bound, a tenant could claim more than it needs, lower M*, and collect what becomes
free. If tenants trust each other (cooperative), the bound is e alone.

All numbers are exact fractions; there are few tenants.
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

Matrix = Sequence[Sequence[Fraction]]


@dataclass(frozen=True, slots=True)
class Utilised:
    """The allocation of HUG.

    Attributes:
        guarantee: M*, the guaranteed progress of every tenant.
        entitled: a, [tenant][link].
        ceiling: c, [tenant][link].
    """

    guarantee: Fraction
    entitled: list[list[Fraction]]
    ceiling: list[list[Fraction]]


def utilised(
    demands: Matrix, elastic: Matrix | None = None, *, cooperative: bool = False
) -> Utilised:
    """Both stages of HUG.

    `demands` d and `elastic` e are [tenant][link]; the largest d of each tenant is 1, or all are 0.
    e is 1 on every link that is needed if not given. Cooperative tenants state true demands.
    """
    links = range(len(demands[0]) if demands else 0)
    most = max((sum((d[i] for d in demands), Fraction(0)) for i in links), default=Fraction(0))
    guarantee = 1 / most if most else Fraction(0)
    entitled = [[guarantee * d for d in row] for row in demands]
    if elastic is None:
        elastic = [[Fraction(int(d > 0)) for d in row] for row in demands]
    bounds = [
        [max(a, e if cooperative else min(guarantee, e)) for a, e in zip(own, limits, strict=True)]
        for own, limits in zip(entitled, elastic, strict=True)
    ]
    ceiling = [list[Fraction]() for _ in demands]
    for i in links:
        given = _divided([row[i] for row in entitled], [row[i] for row in bounds])
        for row, value in zip(ceiling, given, strict=True):
            row.append(value)
    return Utilised(guarantee, entitled, ceiling)


def _divided(least: list[Fraction], most: list[Fraction]) -> list[Fraction]:
    """Divide one link of capacity 1 as equally as possible between these bounds.

    Σ_k min(max(h, least_k), most_k) rises with the level h in straight pieces between the bounds.
    """

    def at(level: Fraction) -> list[Fraction]:
        return [min(max(level, a), u) for a, u in zip(least, most, strict=True)]

    if sum(most, Fraction(0)) <= 1:
        return most
    low = Fraction(0)
    for high in sorted({*least, *most}):
        total, before = sum(at(high), Fraction(0)), sum(at(low), Fraction(0))
        if total >= 1:
            slope = (total - before) / (high - low) if high > low else Fraction(0)
            return at(low + (1 - before) / slope if slope else high)
        low = high
    return at(low)


def whole(shares: Sequence[Fraction], ceilings: Sequence[Fraction]) -> tuple[list[int], list[int]]:
    """Entitlements and ceilings in whole GPUs.

    Entitlements are rounded down; what that leaves of their sum goes to the largest fractions, the
    first of equals. Ceilings are rounded down, but not below the entitlement.
    """
    given = [int(share) for share in shares]
    spare = int(sum(shares, Fraction(0))) - sum(given)
    order = sorted(range(len(shares)), key=lambda k: (given[k] - shares[k], k))
    for k in order[:spare]:
        given[k] += 1
    return given, [max(int(c), g) for c, g in zip(ceilings, given, strict=True)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """HUG between virtual clusters."""

    mode: Literal["noncooperative", "cooperative"] = option(
        "noncooperative", "bound what is lent so that overstating one's demand does not pay, or not"
    )


class Hug(FairnessPolicy[Options]):
    """Entitlement = stage 1, ceiling = stage 2, in whole GPUs.

    The links are GPUs, and CPUs and memory where these are known. What an account's jobs ask for
    on average is its demand vector; it can use no more than all its jobs ask for.
    """

    name = "hug"
    summary = "guaranteed progress by dominant shares, with bounded borrowing"

    def entitle(self, units: Units, ctx: RoundContext) -> Entitlements | None:
        """Both stages for the accounts that have jobs now."""
        accounts = accounts_of(units, ctx)
        if accounts is None:
            return None
        there = [i for i, total in enumerate(accounts.capacity) if total > 0]
        parts = [[demand[i] / accounts.capacity[i] for i in there] for demand in accounts.demands]
        tops = [max(row, default=Fraction(0)) for row in parts]
        demands = [
            [part / top if top else Fraction(0) for part in row]
            for row, top in zip(parts, tops, strict=True)
        ]
        elastic = [
            [min(Fraction(1), part * gpus) for part in row]
            for row, gpus in zip(parts, accounts.wanted, strict=True)
        ]
        found = utilised(demands, elastic, cooperative=self.options.mode == "cooperative")
        gpus = accounts.capacity[0]
        entitled, ceiling = whole(
            [row[0] * gpus for row in found.entitled], [row[0] * gpus for row in found.ceiling]
        )
        entitlement, most = np.zeros(accounts.count), np.full(accounts.count, np.inf)
        entitlement[accounts.codes], most[accounts.codes] = entitled, ceiling
        return Entitlements(entitlement, most)
