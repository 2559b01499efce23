"""Who is next on GPUs of some types: by priority X / f, then by what is owed, then by X.

f is the part that a job has had of all time given on a type. Between two X only the priorities of
those with a share move: the others follow in an order that is found once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlsched.core.arrays import Floats
from dlsched.policies.scheduling.gavel.entries import Entries

__all__ = ["Queue"]


class Queue:
    """Lines of the books that may be picked, and on which type; valid until the books change.

    Attributes:
        entitled: how many of them have a share of time there; they come first.
    """

    def __init__(self, books: Entries, kinds: Sequence[int], *, only_entitled: bool) -> None:
        """Find out who queues up.

        Args:
            books: who is there.
            kinds: the types, in the order in which equals are served.
            only_entitled: who has no share there does not queue up.
        """
        of = list(kinds)
        runs = books.speed[:, of].T > 0
        has_share = runs & books.known & (books.x[:, of].T != 0)
        place, lines = np.nonzero(has_share if only_entitled else runs)
        at = lines, np.array(of)[place]
        x = books.x[at]
        order = np.lexsort((-x, -books.deficit[at], ~has_share[place, lines]))
        self.entitled = int(has_share.sum())
        self._books = books
        self._lines, self._kinds = (column[order[: self.entitled]] for column in at)
        self._x = x[order[: self.entitled]]
        self._last, self._last_kinds = (column[order[self.entitled :]].tolist() for column in at)

    def best_first(self, given: Floats) -> tuple[list[int], list[int]]:
        """Lines and types, most urgent first.

        Args:
            given: seconds given on each type.
        """
        lines, kinds = self._lines, self._kinds
        # nobody with a share has had nothing: all begin with half a round
        priority = self._x / (self._books.got[lines, kinds] / given[kinds])
        order = (-priority).argsort(kind="stable")
        return lines[order].tolist() + self._last, kinds[order].tolist() + self._last_kinds
