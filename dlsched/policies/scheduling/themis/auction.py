"""Partial-allocation auctions: proportionally fair bundles, minus a hidden payment.

    fair     G = argmax Π_i V_i(G_i), bundles disjoint; first the number of bidders served counts
    payment  c_i = Π_{k≠i} V_k(G_k) / max Π_{k≠i} V_k without i
    won      ⌊c_i |G_i|⌋ GPUs of G_i, those that i values most

Bidder i pays for the loss that its presence causes to the others, so true bids are best. Valuations
are 1/ρ; their scale does not matter while all bidders are served. If some bidders cannot be served,
the payments compare those that are.

Small auctions are solved exactly, by dynamic programming over the GPUs that are left; large ones
greedily, by the largest relative gain per GPU.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Protocol

import numpy as np

from dlsched.core.arrays import Floats
from dlsched.core.sums import ordered_sum

Bundle = tuple[int, ...]  # GPUs by machine

SERVED = 1e4  # above any sum of logarithms, so that the number of bidders served counts first
EQUAL = 1e-9  # sums of logarithms that differ by less are equal


class Bidder(Protocol):
    """An app that bids for GPUs."""

    def value(self, bundle: Bundle) -> float:
        """1/ρ with these GPUs in addition to its own; 0 if it could not run."""
        ...

    def step(self, have: Bundle, free: Bundle) -> Bundle | None:
        """The smallest useful addition to a bundle, out of the free GPUs; None if none helps."""
        ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of an auction, in the order of the bidders.

    Attributes:
        fair: bundles before payment.
        part: c_i, the part that each bidder may keep.
        won: bundles after payment.
    """

    fair: tuple[Bundle, ...]
    part: tuple[float, ...]
    won: tuple[Bundle, ...]


def plus(one: Bundle, other: Bundle) -> Bundle:
    """The union of two disjoint bundles."""
    return tuple(a + b for a, b in zip(one, other, strict=True))


def minus(one: Bundle, other: Bundle) -> Bundle:
    """A bundle without the GPUs of another."""
    return tuple(a - b for a, b in zip(one, other, strict=True))


def auction(
    bidders: Sequence[Bidder], offered: Bundle, *, most_bidders: int = 8, most_bundles: int = 200
) -> Outcome:
    """Run one auction.

    Args:
        bidders: in the order in which ties are broken: the first gets the smallest bundle.
        offered: GPUs by machine.
        most_bidders: with more bidders the auction is greedy.
        most_bundles: with more possible bundles the auction is greedy.
    """
    bundles = math.prod(count + 1 for count in offered)
    exact = len(bidders) <= most_bidders and 1 < bundles <= most_bundles
    market = _Exact(bidders, offered) if exact else _Greedy(bidders, offered)
    indices = range(len(bidders))
    fair = market.fair(indices)
    worth = [bidder.value(bundle) for bidder, bundle in zip(bidders, fair, strict=True)]
    served = [i for i in indices if worth[i] > 0]
    part = []
    for i in indices:
        others = [k for k in served if k != i]
        gained = ordered_sum(math.log(worth[k]) for k in others)
        without = market.fair(others) if i in served else fair
        best = ordered_sum(
            math.log(value) if (value := bidders[k].value(without[k])) > 0 else math.inf
            for k in others
        )
        paid = math.exp(gained - best) if math.isfinite(best) else 1.0
        part.append(1.0 if paid > 1.0 - EQUAL else paid)
    won = [_kept(bidders[i], fair[i], part[i]) for i in indices]
    return Outcome(tuple(fair), tuple(part), tuple(won))


def _kept(bidder: Bidder, fair: Bundle, part: float) -> Bundle:
    """The part of a fair bundle that the bidder values most, after the payment."""
    count = math.floor(part * sum(fair) + EQUAL)
    if count == sum(fair):
        return fair
    if math.prod(most + 1 for most in fair) > 10_000:
        return _first(fair, count)
    choices = [
        bundle for bundle in product(*(range(most + 1) for most in fair)) if sum(bundle) == count
    ]
    return max(choices, key=lambda bundle: (bidder.value(bundle), tuple(-n for n in bundle)))


def _first(fair: Bundle, count: int) -> Bundle:
    """So many GPUs of a bundle, from the machines with most of its GPUs."""
    kept = [0] * len(fair)
    for machine in sorted(range(len(fair)), key=lambda machine: (-fair[machine], machine)):
        kept[machine] = min(fair[machine], count)
        count -= kept[machine]
    return tuple(kept)


class _Exact:
    """The exact optimum, by dynamic programming over the GPUs that are left."""

    def __init__(self, bidders: Sequence[Bidder], offered: Bundle) -> None:
        self._shape = tuple(count + 1 for count in offered)
        self._bundles = list(np.ndindex(self._shape))
        self._none = tuple(0 for _ in offered)
        self._scores = [self._score(bidder) for bidder in bidders]

    def _score(self, bidder: Bidder) -> dict[Bundle, float]:
        found = {self._none: 0.0}
        for bundle in self._bundles:
            value = bidder.value(bundle)
            if value > 0:
                found[bundle] = SERVED + math.log(value)
        return found

    def fair(self, some: Sequence[int]) -> list[Bundle]:
        """Proportionally fair bundles for some of the bidders; the first of equal solutions."""
        rest: list[Floats] = [np.zeros(self._shape)]  # best of the later bidders, by GPUs left
        for i in reversed(some):
            later, best = rest[-1], np.full(self._shape, -np.inf)
            for bundle, score in self._scores[i].items():
                has = tuple(slice(count, None) for count in bundle)
                left = tuple(
                    slice(0, size - count) for count, size in zip(bundle, self._shape, strict=True)
                )
                np.maximum(best[has], score + later[left], out=best[has])
            rest.append(best)
        fair = [self._none] * len(self._scores)
        free: Bundle = tuple(size - 1 for size in self._shape)
        for i, best, later in zip(some, rest[:0:-1], rest[-2::-1], strict=True):
            fair[i] = next(
                bundle
                for bundle, score in sorted(self._scores[i].items())
                if all(n <= m for n, m in zip(bundle, free, strict=True))
                and score + later[minus(free, bundle)] >= best[free] - EQUAL
            )
            free = minus(free, fair[i])
        return fair


class _Greedy:
    """One addition after the other: first to bidders with nothing, then by relative gain."""

    def __init__(self, bidders: Sequence[Bidder], offered: Bundle) -> None:
        self._bidders, self._offered = bidders, offered
        self._none = tuple(0 for _ in offered)

    def fair(self, some: Sequence[int]) -> list[Bundle]:
        """Nearly proportionally fair bundles for some of the bidders."""
        fair, free = [self._none] * len(self._bidders), self._offered
        worth = {i: self._bidders[i].value(self._none) for i in some}
        steps: dict[int, tuple[tuple[float, ...], Bundle, float]] = {}
        for i in some:
            self._note_step(i, fair[i], free, worth[i], steps)
        while steps:
            i = min(steps, key=lambda i: steps[i][0])
            _, step, value = steps[i]
            fair[i], free, worth[i] = plus(fair[i], step), minus(free, step), value
            for k in list(steps):
                if k == i or any(n > m for n, m in zip(steps[k][1], free, strict=True)):
                    del steps[k]
                    self._note_step(k, fair[k], free, worth[k], steps)
        return fair

    def _note_step(
        self,
        i: int,
        have: Bundle,
        free: Bundle,
        worth: float,
        steps: dict[int, tuple[tuple[float, ...], Bundle, float]],
    ) -> None:
        """Note the next useful addition of a bidder, if there is one.

        `steps` has by bidder the sort key, the addition, and the value with it.
        """
        step = self._bidders[i].step(have, free)
        if step is None:
            return
        value = self._bidders[i].value(plus(have, step))
        if value <= worth:
            return
        size = sum(step)
        key = (1.0, -math.log(value / worth) / size) if worth > 0 else (0.0, size, -value)
        steps[i] = ((*key, i), step, value)


def leftovers(
    order: Sequence[int], bidders: Mapping[int, Bidder], have: Mapping[int, Bundle], free: Bundle
) -> dict[int, Bundle]:
    """Give away the GPUs that are left, one addition to each bidder in turn, while any helps.

    Args:
        order: the numbers of the bidders, first to last; they are served again and again.
        bidders: by number.
        have: the bundle of each bidder so far.
        free: GPUs by machine.

    Returns:
        the bundle of each bidder afterwards.
    """
    held = dict(have)
    asking = list(order)
    while asking and any(free):
        again = []
        for i in asking:
            step = bidders[i].step(held[i], free)
            if step is not None:
                held[i], free = plus(held[i], step), minus(free, step)
                again.append(i)
        asking = again
    return held
