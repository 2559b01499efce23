"""How a training learns: gradients, and progress by epoch, measured at several batch sizes.

Progress is counted in steps at the initial batch size: a step in a larger batch is worth several.
What lies between two measured batch sizes is interpolated.
"""

from __future__ import annotations

from bisect import bisect_left

import numpy as np

from dlsched.core.arrays import Floats
from dlsched.core.errors import BadInput


class Learning:
    """Validation runs of one application, each at a batch size of its own.

    Attributes:
        sizes: batch sizes, ascending.
        progress_at: progress at which each epoch is over.
    """

    def __init__(
        self, name: str, sizes: list[int], progress: Floats, steps: Floats, sqr: Floats, var: Floats
    ) -> None:
        """Take in the runs.

        Args:
            name: of the application, for messages.
            sizes: batch sizes, ascending.
            progress: at the end of each epoch, [size, epoch].
            steps: optimiser steps so far, likewise.
            sqr: squared norm of the gradient, likewise.
            var: its variance, likewise.
        """
        self.name, self.sizes = name, sizes
        self.progress_at: Floats = progress.min(axis=0)
        self._steps, self._sqr, self._var = steps, sqr, var
        self._known: dict[int, tuple[Floats, Floats]] = {}

    @property
    def epochs(self) -> int:
        """How many are known."""
        return len(self.progress_at)

    @property
    def tables(self) -> object:
        """All measurements, as plain values."""
        columns = (self.progress_at, self._steps, self._sqr, self._var)
        return self.sizes, [column.tolist() for column in columns]

    def gradients(self, batch: int) -> tuple[Floats, Floats]:
        """Squared norm and variance at a batch size, by epoch.

        Raises:
            BadInput: the batch size lies outside of those measured.
        """
        known = self._known.get(batch)
        if known is None:
            known = self._between(self._sqr, batch), self._between(self._var, batch)
            self._known[batch] = known
        return known

    def steps_by(self, batch: float, epoch: int) -> float:
        """Optimiser steps at the end of an epoch.

        Raises:
            BadInput: the batch size lies outside of those measured.
        """
        return float(self._between(self._steps, batch)[epoch])

    def _between(self, table: Floats, batch: float) -> Floats:
        place = bisect_left(self.sizes, batch)
        if place < len(self.sizes) and self.sizes[place] == batch:
            exact: Floats = table[place]
            return exact
        if place in (0, len(self.sizes)):
            raise BadInput(
                f"the profile of {self.name} has validation runs with batches of {self.sizes[0]} "
                f"to {self.sizes[-1]} samples, none around {batch:g}"
            )
        low, high = self.sizes[place - 1], self.sizes[place]
        part = (batch - low) / (high - low)
        return np.asarray(table[place - 1] + (table[place] - table[place - 1]) * part)
