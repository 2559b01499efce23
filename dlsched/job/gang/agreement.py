"""How all ranks agree to stop or save after the same step, without a message for each step.

At a *rendezvous* after step m, every rank posts its wish. After its next step, m+1, it collects the
wishes of all ranks, and all conclude the same from the same numbers: stop after this step, save
after it, have the next rendezvous after step n. Collecting one step later hides the round trip. It
cannot deadlock with the collectives of the training: a rank that collects has posted before, and
every rank posts after the same steps. Rank 0 chooses the distance to the next rendezvous from its
mean step time; a distance is at most twice the one before, because the first steps measured may be
much shorter than the steps of the training.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

Numbers = tuple[int, int, int, int, int]  # stop at, save, stride, milliseconds left, written
NOTHING: Numbers = (0, 0, 0, 0, 0)
FAILED: Numbers = (0, 1, 0, 0, 0)  # the answer of a rank in `all_succeeded`
WRITTEN, NOT_WRITTEN = 1, 2  # how a save in the background has ended; 0: not yet
MOST_STEPS = 10_000  # between two rendezvous, even of very short steps


class Exchange(Protocol):
    """Sends a few numbers of each rank to all ranks, in order, as often on each rank."""

    def post(self, numbers: Numbers) -> None:
        """Send this rank's numbers; does not wait for the other ranks."""

    def collect(self) -> Sequence[Numbers]:
        """Return the numbers of each rank, in order of rank; empty when the exchange has ended."""

    def close(self) -> None:
        """End the exchange."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What one rank wants; `stop_at` 1 means as soon as possible, 0 not at all."""

    stop_at: int = 0
    save: bool = False  # only rank 0's is used
    stride: int = 1  # steps to the next rendezvous; only rank 0's is used
    left_s: float | None = None  # until the rank must have ended; None: not known
    written: int = 0  # how its save in the background has ended

    @property
    def numbers(self) -> Numbers:
        """As they are posted; the time left is at least 1 ms, because 0 means not known."""
        left = 0 if self.left_s is None else max(1, round(1000 * self.left_s))
        return (self.stop_at, int(self.save), self.stride, left, self.written)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What all ranks do after this step."""

    stop: bool = False
    save: bool = False
    left_s: float | None = None  # the least of all ranks; None: not known
    written: int = 0  # how the save in the background has ended, once it has on all ranks


class Agreement:
    """The rendezvous of one rank."""

    def __init__(self, exchange: Exchange | None, first_step: int) -> None:
        """Begin after a step; without an exchange, the rank is alone."""
        self._exchange = exchange
        self._posted = False
        self._early: Sequence[Numbers] | None = None  # collected by a barrier
        self._next = first_step + 1
        self._distance = 1  # steps, from the last rendezvous to the next
        self._stop_at = 0
        self._left_s: float | None = None
        self._written = 0

    @property
    def is_alone(self) -> bool:
        """Whether this rank hears of no other."""
        return self._exchange is None

    def after(self, step: int, wish: Wish) -> Verdict:
        """Return what to do after a step; every rank calls it after every step."""
        save, self._written = False, 0
        if self._exchange is None:
            save = wish.save
            self._consider([wish.numbers], step)
        elif self._posted:
            collected = self._collected()
            if collected:
                save = bool(collected[0][1])
                self._consider(collected, step)
                self._distance = min(max(1, collected[0][2]), 2 * self._distance, MOST_STEPS)
                self._next = step + self._distance
        stop = 0 < self._stop_at <= step
        return Verdict(stop=stop, save=save, left_s=self._left_s, written=self._written)

    def meet(self, step: int, wish: Wish) -> None:
        """Post the wish if a rendezvous is due; the last call after a step."""
        if self._exchange is not None and step >= self._next and not self._posted:
            self._exchange.post(wish.numbers)
            self._posted = True

    def all_succeeded(self, succeeded: bool) -> bool:
        """Wait until every rank has called this; return whether all of them succeeded."""
        if self._exchange is None:
            return succeeded
        if self._posted and self._early is None:
            self._early = self._exchange.collect()
        self._exchange.post(NOTHING if succeeded else FAILED)
        answers = self._exchange.collect()
        return succeeded and FAILED not in answers

    def share(self, numbers: Numbers) -> Sequence[Numbers]:
        """Return the numbers of all ranks, in order; every rank calls it before the first step."""
        if self._exchange is None:
            return [numbers]
        self._exchange.post(numbers)
        return self._exchange.collect()

    def close(self) -> None:
        """End the exchange; no more rendezvous."""
        if self._exchange is not None:
            self._exchange.close()
            self._exchange = None

    def _collected(self) -> Sequence[Numbers]:
        self._posted = False
        collected, self._early = self._early, None
        if collected is None and self._exchange is not None:
            collected = self._exchange.collect()
        return collected or ()

    def _consider(self, wishes: Sequence[Numbers], step: int) -> None:
        wanted = [max(step, each[0]) for each in wishes if each[0] > 0]
        if wanted:
            earliest = min(wanted)
            self._stop_at = min(self._stop_at, earliest) if self._stop_at else earliest
        self._written = max(each[4] for each in wishes) if all(each[4] for each in wishes) else 0
        self._left_s = min((each[3] / 1000 for each in wishes if each[3]), default=None)
