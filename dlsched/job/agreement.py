"""How all ranks come to do the same after the same step, without a message a step.

A *rendezvous* after step m: every rank posts what it wishes. After its next step, m+1, it collects
what all have wished, and all conclude the same from the same words: stop after this step, save
after it, meet again after step n. Collecting a step later hides the round trip behind the step. It
cannot deadlock with the collectives of the training: whoever collects has posted before, and so
will every rank that does the same steps. Rank 0 chooses the distance to the next rendezvous.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

__all__ = ["NOTHING", "Agreement", "Exchange", "Verdict", "Wish", "Words"]

Words = tuple[int, int, int, int]  # stop at, save, stride, milliseconds left
NOTHING: Words = (0, 0, 0, 0)
MOST_STEPS = 10_000  # between two rendezvous, however short the steps


class Exchange(Protocol):
    """Ranks tell each other a few numbers, in order, each rank the same number of times."""

    def post(self, words: Words) -> None:
        """Say mine; does not wait for the others."""

    def collect(self) -> Sequence[Words]:
        """What each rank has said, rank by rank; nothing when there is no telling any more."""

    def close(self) -> None:
        """Say nothing more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What one rank would like; `stop_at` 1 means as soon as possible, 0 not at all."""

    stop_at: int = 0
    save: bool = False  # rank 0's counts
    stride: int = 1  # steps to the next rendezvous; rank 0's counts
    left_s: float | None = None  # until the rank must have left; None: not known

    @property
    def words(self) -> Words:
        """As they are posted; the time left at least 1 ms, as 0 means not known."""
        left = 0 if self.left_s is None else max(1, round(1000 * self.left_s))
        return (self.stop_at, int(self.save), self.stride, left)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What all ranks do after this step."""

    stop: bool = False
    save: bool = False
    left_s: float | None = None  # the least that any rank knows of


class Agreement:
    """The rendezvous of one rank; with no exchange, a rank that is alone."""

    def __init__(self, exchange: Exchange | None, first_step: int) -> None:
        self._exchange = exchange
        self._posted = False
        self._early: Sequence[Words] | None = None  # collected by a barrier
        self._next = first_step + 1
        self._stop_at = 0
        self._left_s: float | None = None

    def after(self, step: int, wish: Wish) -> Verdict:
        """What to do after a step; every rank calls it after every step."""
        save = False
        if self._exchange is None:
            save = wish.save
            self._consider([wish.words], step)
        elif self._posted:
            words = self._collected()
            if words:
                save = bool(words[0][1])
                self._consider(words, step)
                self._next = step + min(max(1, words[0][2]), MOST_STEPS)
        return Verdict(stop=0 < self._stop_at <= step, save=save, left_s=self._left_s)

    def meet(self, step: int, wish: Wish) -> None:
        """Post for the next rendezvous if it is due; the last thing that is done after a step."""
        if self._exchange is not None and step >= self._next and not self._posted:
            self._exchange.post(wish.words)
            self._posted = True

    def barrier(self) -> None:
        """Until every rank is here."""
        if self._exchange is None:
            return
        if self._posted and self._early is None:
            self._early = self._exchange.collect()
        self._exchange.post(NOTHING)
        self._exchange.collect()

    def close(self) -> None:
        """No more rendezvous."""
        if self._exchange is not None:
            self._exchange.close()
            self._exchange = None

    def _collected(self) -> Sequence[Words]:
        self._posted = False
        words, self._early = self._early, None
        if words is None and self._exchange is not None:
            words = self._exchange.collect()
        return words or ()

    def _consider(self, words: Sequence[Words], step: int) -> None:
        wanted = [max(step, each[0]) for each in words if each[0] > 0]
        if wanted:
            earliest = min(wanted)
            self._stop_at = min(self._stop_at, earliest) if self._stop_at else earliest
        self._left_s = min((each[3] / 1000 for each in words if each[3]), default=None)
