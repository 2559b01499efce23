"""The Gittins index of a job's attained service, from a sample of the service of past jobs.

Gu et al., "Tiresias", NSDI 2019. With S the total GPU-seconds of a job
and a its attained service,

    G(a) = P(S - a <= Δ | S > a) / E[min(S - a, Δ) | S > a]

for a fixed Δ: the chance to finish within the next Δ of service, per unit of service spent. The job
with the largest index runs first. `artifact` is what Tiresias' simulator computes instead: there
the expectation sums S itself, which delays jobs close to their end (`docs/policies/tiresias.md`).
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Decimal
from typing import Literal

import numpy as np

from dlsched.core.arrays import Floats

SCALE = 1_000_000.0  # the artifact's tables hold a million times the index


def _round(value: float, digits: int) -> float:
    """Decimal rounding, ties away from zero, as Python 2's `round` did."""
    return float(Decimal(value).quantize(Decimal(1).scaleb(-digits), rounding=ROUND_HALF_UP))


class GittinsIndex:
    """Index as a function of attained service.

    Attributes:
        sample: total GPU-seconds of past jobs, ascending.
        delta: Δ in GPU-seconds.
        form: `theory` or `artifact`.
    """

    def __init__(
        self, sample: Sequence[float] | Floats, delta: float, form: Literal["theory", "artifact"]
    ) -> None:
        self.sample: Floats = np.sort(np.asarray(sample, np.float64))
        self.delta = delta
        self.form = form
        self._sums = np.concatenate([[0.0], np.cumsum(self.sample)])
        self._table = self._artifact_table() if form == "artifact" else np.zeros(0)

    @property
    def table(self) -> Floats:
        """The artifact's index of each sample value (empty for `theory`)."""
        return self._table

    def __call__(self, attained: Floats) -> Floats:
        """The index (× 1e6) at each attained service in GPU-seconds; 0 beyond the sample."""
        if not self.sample.size:
            return np.zeros(len(attained))
        if self.form == "artifact":
            k = np.searchsorted(self.sample, attained, side="right")
            return np.append(self._table, 0.0)[k]
        return self._theory(attained)

    def _theory(self, attained: Floats) -> Floats:
        x, n = self.sample, len(self.sample)
        first = np.searchsorted(x, attained, side="right")  # samples that are still alive
        end = np.searchsorted(x, attained + self.delta, side="right")  # end within delta
        alive = n - first
        with np.errstate(divide="ignore", invalid="ignore"):
            chance = (end - first) / alive
            spent = self._sums[end] - self._sums[first] - (end - first) * attained
            expected = (spent + self.delta * (n - end)) / alive
            index = SCALE * chance / expected
        return np.where(alive > 0, index, 0.0)

    def _artifact_table(self) -> Floats:
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
