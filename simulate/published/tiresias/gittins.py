"""The Gittins index as Tiresias' simulator tabulates it.

The expectation sums S itself, which delays jobs close to their end, and every step is rounded to
decimals (`docs/policies/tiresias.md`).
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Decimal

import numpy as np

from dlsched.core.arrays import Floats
from dlsched.policies.scheduling.gittins import SCALE, GittinsIndex


def _round(value: float, digits: int) -> float:
    """Decimal rounding, ties away from zero, as Python 2's `round` did."""
    return float(Decimal(value).quantize(Decimal(1).scaleb(-digits), rounding=ROUND_HALF_UP))


class TabledIndex(GittinsIndex):
    """Index as a table by the values of the sample.

    Attributes:
        table: the index of each sample value.
    """

    def __init__(self, sample: Sequence[float] | Floats, delta: float) -> None:
        super().__init__(sample, delta)
        self.table = self._tabled()

    def __call__(self, attained: Floats) -> Floats:
        """The index (× 1e6) at each attained service in GPU-seconds; 0 beyond the sample."""
        k = np.searchsorted(self.sample, attained, side="right")
        return np.append(self.table, 0.0)[k]

    def _tabled(self) -> Floats:
        x, n = self.sample, len(self.sample)
        table = np.zeros(n)
        for rank, value in enumerate(x.tolist()):  # once a sample, with decimal rounding
            a = value - 1
            b = a + self.delta
            i = int(np.searchsorted(x, a, side="right"))
            j = n - 1 if b > x[-1] - 1 else int(np.searchsorted(x, b, side="right"))
            chance = _round((j - i) / (n - i), 5)
            total = float(self._sums[j] - self._sums[i]) + self.delta * (n - j)
            expected = _round(total / (n - i), 5)
            table[rank] = _round(SCALE * chance / expected, 4) if expected else 0.0
        return table
