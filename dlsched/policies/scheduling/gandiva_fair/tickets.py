"""How many GPUs of each type every user's tickets are worth, after trading."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dlsched.core.arrays import Floats, Ints
from dlsched.policies.scheduling.gandiva_fair.trading import Holding, Price, Trade, trade

__all__ = ["shares", "speedups", "traded"]


def shares(tickets: Mapping[str, float], gpus: Ints) -> dict[str, list[float]]:
    """Each user's ticket share of each type."""
    whole = sum(tickets.values())
    return {user: [float(n) * own / whole for n in gpus] for user, own in tickets.items()}


def speedups(
    users: Sequence[str], gangs: Sequence[int], speed: Floats, fast: int, slow: int
) -> dict[str, float]:
    """How many slow GPUs a fast one is worth, by user: the mean over its jobs, by GPUs.

    A user with a job that runs on one of the two only does not trade.

    Args:
        users: of each job.
        gangs: of each job.
        speed: steps/s, [job, type].
        fast: a column.
        slow: another one.
    """
    ratios: dict[str, float] = {}
    weights: dict[str, float] = {}
    for user, gang, quick, tardy in zip(
        users, gangs, speed[:, fast].tolist(), speed[:, slow].tolist(), strict=True
    ):
        ratio = quick / tardy if quick > 0 and tardy > 0 else np.nan
        ratios[user] = ratios.get(user, 0.0) + gang * ratio
        weights[user] = weights.get(user, 0.0) + gang
    found = {user: total / weights[user] for user, total in ratios.items()}
    return {user: ratio for user, ratio in found.items() if np.isfinite(ratio)}


def traded(
    held: Mapping[str, Sequence[float]],
    users: Sequence[str],
    gangs: Sequence[int],
    speed: Floats,
    price: Price,
) -> tuple[dict[str, list[float]], list[tuple[int, int, Trade]]]:
    """Holdings after all pairs of types have traded, those that differ most first.

    Args:
        held: GPUs of each type, by user.
        users: of each job.
        gangs: of each job.
        speed: steps/s, [job, type].
        price: see `trade`.

    Returns:
        holdings by user, and the trades as (fast type, slow type, trade).
    """
    after = {user: list(own) for user, own in held.items()}
    demand = dict.fromkeys(after, 0.0)
    for user, gang in zip(users, gangs, strict=True):
        demand[user] += gang
    deals = []
    pairs = []
    for fast in range(speed.shape[1]):
        for slow in range(speed.shape[1]):
            worth = speedups(users, gangs, speed, fast, slow) if fast != slow else {}
            middle = float(np.mean(list(worth.values()))) if worth else 0.0
            if middle > 1.0:
                pairs.append((-middle, fast, slow, worth))
    for _, fast, slow, worth in sorted(pairs, key=lambda pair: pair[:3]):
        two = {user: Holding(own[fast], own[slow]) for user, own in after.items()}
        wants = {user: demand[user] - sum(own) + sum(two[user]) for user, own in after.items()}
        settled, done = trade(two, worth, price, wants)
        for user, holding in settled.items():
            after[user][fast], after[user][slow] = holding
        deals += [(fast, slow, deal) for deal in done]
    return after, deals
