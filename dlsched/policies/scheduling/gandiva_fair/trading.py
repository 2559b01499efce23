"""Users trade fast GPUs for slow ones, and no user is worse off.

At first every user holds its ticket share of each GPU type. For a pair of types, a user's speedup s
is the number of slow GPUs that one fast GPU is worth to the user. The user with the lowest s that
holds fast GPUs sells them to the user with the highest s that holds slow ones, at r slow GPUs for
one fast GPU. r is the second-highest s, so that no user gains by misreporting its own s.

Invariant: GPUs of each type are conserved, and no trade lowers the value of a user's holdings by
its own s.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np

from dlsched.core.arrays import Floats, Ints
from dlsched.core.sums import ordered_sum

Price = Literal["second", "middle"]
NOTHING = 1e-9  # GPUs; smaller amounts are rounding


class Holding(NamedTuple):
    """GPUs of a user, fractions allowed."""

    fast: float
    slow: float


class Trade(NamedTuple):
    """The buyer got `fast` fast GPUs from the seller and gave `price` slow ones for each."""

    seller: str
    buyer: str
    price: float
    fast: float


def trade(
    holdings: Mapping[str, Holding],
    speedup: Mapping[str, float],
    price: Price = "second",
    demand: Mapping[str, float] | None = None,
) -> tuple[dict[str, Holding], list[Trade]]:
    """Trade until no trade gains.

    Args:
        holdings: by user.
        speedup: slow GPUs that a fast one is worth, by user; users without one do not trade.
        price: `second` is the second-highest speedup; `middle` takes the geometric middle of seller
            and buyer where there is no third user.
        demand: GPUs that each user can use and beyond which it does not buy; None for no limit.

    Returns:
        the holdings afterwards, and the trades.
    """
    held = dict(holdings)
    trades: list[Trade] = []
    while True:
        deal = _next(held, speedup, price, demand)
        if deal is None:
            return held, trades
        trades.append(deal)
        slow = deal.price * deal.fast
        buyer, seller = held[deal.buyer], held[deal.seller]
        held[deal.buyer] = Holding(buyer.fast + deal.fast, _left(buyer.slow, slow))
        held[deal.seller] = Holding(_left(seller.fast, deal.fast), seller.slow + slow)


def _left(had: float, gave: float) -> float:
    rest = had - gave
    return rest if rest > NOTHING else 0.0


def _next(
    held: Mapping[str, Holding],
    speedup: Mapping[str, float],
    price: Price,
    demand: Mapping[str, float] | None,
) -> Trade | None:
    """The next trade; None when no trade gains.

    `speedup` is the slow GPUs that a fast one is worth, by user; for the price see `trade`.
    """
    room = {
        user: math.inf if demand is None else demand[user] - ordered_sum(held[user])
        for user in held
    }
    traders = sorted((user for user in held if user in speedup), key=lambda u: (speedup[u], u))
    sellers = [user for user in traders if held[user].fast > NOTHING and room[user] > NOTHING]
    buyers = [user for user in traders if held[user].slow > NOTHING]
    if not sellers or not buyers or sellers[0] == buyers[-1]:
        return None
    seller, buyer = sellers[0], buyers[-1]
    rate = max(
        (speedup[user] for user in traders if user != buyer and speedup[user] <= speedup[buyer]),
        default=0.0,
    )
    if price == "middle" and len(traders) == 2:
        rate = math.sqrt(speedup[seller] * speedup[buyer])
    if not speedup[seller] * (1 + NOTHING) < rate <= speedup[buyer]:
        return None
    fast = min(held[seller].fast, held[buyer].slow / rate)
    if rate > 1.0:
        fast = min(fast, room[seller] / (rate - 1.0))
    return Trade(seller, buyer, rate, fast)


def ticket_shares(tickets: Mapping[str, float], gpus: Ints) -> dict[str, list[float]]:
    """Each user's share of the GPUs of each type, in proportion to its tickets."""
    whole = ordered_sum(tickets.values())
    return {user: [float(n) * own / whole for n in gpus] for user, own in tickets.items()}


def speedups(
    users: Sequence[str], gangs: Sequence[int], speed: Floats, fast: int, slow: int
) -> dict[str, float]:
    """Slow GPUs that one fast GPU is worth, by user: the mean over its jobs weighted by gangs.

    A user with a job that runs on only one of the two types does not trade.

    Args:
        users: the user of each job.
        gangs: GPUs of each job.
        speed: steps/s, [job, type].
        fast: the column of the fast type.
        slow: the column of the slow type.
    """
    ratios: dict[str, float] = {}
    weights: dict[str, float] = {}
    for user, gang, faster, slower in zip(
        users, gangs, speed[:, fast].tolist(), speed[:, slow].tolist(), strict=True
    ):
        ratio = faster / slower if faster > 0 and slower > 0 else np.nan
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
    """Holdings after trades between all pairs of types, those with the largest speedup first.

    Args:
        held: GPUs of each type, by user.
        users: the user of each job.
        gangs: GPUs of each job.
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
        wants = {
            user: demand[user] - ordered_sum(own) + ordered_sum(two[user])
            for user, own in after.items()
        }
        settled, done = trade(two, worth, price, wants)
        for user, holding in settled.items():
            after[user][fast], after[user][slow] = holding
        deals += [(fast, slow, deal) for deal in done]
    return after, deals
