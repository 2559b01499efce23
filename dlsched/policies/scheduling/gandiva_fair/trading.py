"""Users of fast and of slow GPUs trade, and nobody is worse off.

At first every user holds its ticket share of each GPU type. For a pair of types a user's speedup s
is how many slow GPUs a fast one is worth to it. The user with the lowest s that holds fast GPUs
sells them to the user with the highest s that holds slow ones, at r slow GPUs for a fast one. r is
the second-highest s, so that nobody gains by misreporting its own.

Invariant: GPUs of each type are conserved, and no trade lowers anybody's holdings as valued by its
own s.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal, NamedTuple

__all__ = ["Holding", "Price", "Trade", "trade"]

Price = Literal["second", "middle"]
NOTHING = 1e-9  # GPUs; less is rounding


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
    """Trade until nobody gains any more.

    Args:
        holdings: by user.
        speedup: what a fast GPU is worth in slow ones, by user; who is not named does not trade.
        price: `second` is the second-highest speedup; `middle` takes the geometric middle of seller
            and buyer where there is no third user.
        demand: GPUs that each user can use; nobody sells for more than that. None: without end.

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
    """The next deal, if one gains."""
    room = {user: math.inf if demand is None else demand[user] - sum(held[user]) for user in held}
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
