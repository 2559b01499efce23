"""Partial-allocation auctions: proportionally fair bundles, less a hidden payment.

    fair     G = argmax Π_i V_i(G_i), bundles disjoint; first as many bidders served as can be
    payment  c_i = Π_{k≠i} V_k(G_k) / max Π_{k≠i} V_k without i
    won      ⌊c_i |G_i|⌋ GPUs of G_i, those that i values most

What i pays is what its presence costs the others, so telling the truth is best. Valuations are
1/ρ; scaling one changes nothing while all are served. Where some cannot be, the payments compare
the others that are.

Small auctions are solved exactly, machine by machine and count; large ones greedily, by the largest
relative gain a GPU.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Protocol

import numpy as np

from dlsched.core.arrays import Floats

__all__ = ["Bidder", "Bundle", "Outcome", "auction", "leftovers", "minus", "plus"]

Bundle = tuple[int, ...]  # GPUs by machine

SERVED = 1e4  # more than any sum of logarithms: the number served counts first
EQUAL = 1e-9  # sums of logarithms closer than this are equal


class Bidder(Protocol):
    """Who wants GPUs."""

    def value(self, bundle: Bundle) -> float:
        """1/ρ with these GPUs besides what it has; 0 when it could not run."""
        ...

    def step(self, have: Bundle, free: Bundle) -> Bundle | None:
        """The least that it would add to a bundle, of what is free; None when nothing helps."""
        ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one auction, in the order of the bidders.

    Attributes:
        fair: bundles before payment.
        part: c_i, what each may keep.
        won: bundles after payment.
    """

    fair: tuple[Bundle, ...]
    part: tuple[float, ...]
    won: tuple[Bundle, ...]


def plus(one: Bundle, other: Bundle) -> Bundle:
    """Both together."""
    return tuple(a + b for a, b in zip(one, other, strict=True))


def minus(one: Bundle, other: Bundle) -> Bundle:
    """The one without the other."""
    return tuple(a - b for a, b in zip(one, other, strict=True))


def auction(
    bidders: Sequence[Bidder], offered: Bundle, *, most_bidders: int = 8, most_bundles: int = 200
) -> Outcome:
    """Sell GPUs.

    Args:
        bidders: in the order in which ties are broken: the first has the least bundle.
        offered: GPUs by machine.
        most_bidders: with more of them it is greedy.
        most_bundles: with more bundles it is greedy.
    """
    bundles = math.prod(count + 1 for count in offered)
    exact = len(bidders) <= most_bidders and 1 < bundles <= most_bundles
    market = _Exact(bidders, offered) if exact else _Greedy(bidders, offered)
    everybody = range(len(bidders))
    fair = market.fair(everybody)
    worth = [bidder.value(bundle) for bidder, bundle in zip(bidders, fair, strict=True)]
    served = [i for i in everybody if worth[i] > 0]
    part = []
    for i in everybody:
        others = [k for k in served if k != i]
        gained = sum(math.log(worth[k]) for k in others)
        without = market.fair(others) if i in served else fair
        best = sum(
            math.log(value) if (value := bidders[k].value(without[k])) > 0 else math.inf
            for k in others
        )
        paid = math.exp(gained - best) if math.isfinite(best) else 1.0
        part.append(1.0 if paid > 1.0 - EQUAL else paid)
    won = [_kept(bidders[i], fair[i], part[i]) for i in everybody]
    return Outcome(tuple(fair), tuple(part), tuple(won))


def _kept(bidder: Bidder, fair: Bundle, part: float) -> Bundle:
    """The best of what the payment leaves."""
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
    """So many GPUs of a wide bundle, from the machines with most of it."""
    kept = [0] * len(fair)
    for machine in sorted(range(len(fair)), key=lambda machine: (-fair[machine], machine)):
        kept[machine] = min(fair[machine], count)
        count -= kept[machine]
    return tuple(kept)


class _Exact:
    """Every way to divide the machines, by dynamic programming over what is left."""

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
        """Proportionally fair bundles of some of the bidders; of equal ones the first."""
        rest: list[Floats] = [np.zeros(self._shape)]  # the best of the later ones, by what is left
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
    """One addition after the other: first to those who have nothing, then by relative gain."""

    def __init__(self, bidders: Sequence[Bidder], offered: Bundle) -> None:
        self._bidders, self._offered = bidders, offered
        self._none = tuple(0 for _ in offered)

    def fair(self, some: Sequence[int]) -> list[Bundle]:
        """Bundles of some of the bidders, near to proportionally fair."""
        fair, free = [self._none] * len(self._bidders), self._offered
        worth = {i: self._bidders[i].value(self._none) for i in some}
        steps: dict[int, tuple[tuple[float, ...], Bundle, float]] = {}
        for i in some:
            self._look(i, fair[i], free, worth[i], steps)
        while steps:
            i = min(steps, key=lambda i: steps[i][0])
            _, step, value = steps[i]
            fair[i], free, worth[i] = plus(fair[i], step), minus(free, step), value
            for k in list(steps):
                if k == i or any(n > m for n, m in zip(steps[k][1], free, strict=True)):
                    del steps[k]
                    self._look(k, fair[k], free, worth[k], steps)
        return fair

    def _look(
        self,
        i: int,
        have: Bundle,
        free: Bundle,
        worth: float,
        steps: dict[int, tuple[tuple[float, ...], Bundle, float]],
    ) -> None:
        """Note what a bidder would add next, if anything."""
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
    """Give away what is left, one addition at a time to each in turn, until nobody can use more.

    Args:
        order: who is asked, first to last, again and again.
        bidders: by number.
        have: what each has already.
        free: GPUs by machine.

    Returns:
        what each has then.
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
