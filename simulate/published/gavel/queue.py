"""The order in which jobs are picked for GPUs: by priority X / f, then by deficit, then by X.

f is the part of all time given on a type that the job received. Between two allocations X only the
priorities of jobs with a share change: all other jobs follow in an order that is computed once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlsched.core.arrays import Floats
from simulate.published.gavel.ledger import PublishedLedger


class PriorityQueue:
    """Ledger lines that may be picked, with their GPU types; valid until the ledger changes.

    Attributes:
        entitled: how many of them have a share of time there; these come first.
    """

    def __init__(
        self, ledger: PublishedLedger, gpu_types: Sequence[int], *, only_entitled: bool
    ) -> None:
        """Sort the lines of a ledger.

        Equal lines are served in the order of `gpu_types`; `only_entitled` leaves out lines that
        have no share on a type.
        """
        of = list(gpu_types)
        runs = ledger.speed[:, of].T > 0
        has_share = runs & ledger.known & (ledger.x[:, of].T != 0)
        place, lines = np.nonzero(has_share if only_entitled else runs)
        at = lines, np.array(of)[place]
        x = ledger.x[at]
        order = np.lexsort((-x, -ledger.deficit[at], ~has_share[place, lines]))
        self.entitled = int(has_share.sum())
        self._ledger = ledger
        self._lines, self._types = (column[order[: self.entitled]] for column in at)
        self._x = x[order[: self.entitled]]
        self._last, self._last_types = (column[order[self.entitled :]].tolist() for column in at)

    def best_first(self, given: Floats) -> tuple[list[int], list[int]]:
        """Lines and their GPU types, most urgent first, by seconds given since the last reset."""
        lines, gpu_types = self._lines, self._types
        # never divides by 0: every job starts with half a round received
        priority = self._x / (self._ledger.received[lines, gpu_types] / given[gpu_types])
        order = (-priority).argsort(kind="stable")
        return lines[order].tolist() + self._last, gpu_types[order].tolist() + self._last_types
