"""The Gittins index of a job's attained service, from a sample of the service of past jobs.

Gu et al., "Tiresias", NSDI 2019. With S the total GPU-seconds of a job
and a its attained service,

    G(a) = P(S - a <= Δ | S > a) / E[min(S - a, Δ) | S > a]

for a fixed Δ: the chance to finish within the next Δ of service, per unit of service spent. The job
with the largest index runs first.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlsched.core.arrays import Floats

SCALE = 1_000_000.0  # the index is told a million times as large


class GittinsIndex:
    """Index as a function of attained service.

    Attributes:
        sample: total GPU-seconds of past jobs, ascending.
        delta: Δ in GPU-seconds.
    """

    def __init__(self, sample: Sequence[float] | Floats, delta: float) -> None:
        self.sample: Floats = np.sort(np.asarray(sample, np.float64))
        self.delta = delta
        self._sums = np.concatenate([[0.0], np.cumsum(self.sample)])

    def __call__(self, attained: Floats) -> Floats:
        """The index (× 1e6) at each attained service in GPU-seconds; 0 beyond the sample."""
        if not self.sample.size:
            return np.zeros(len(attained))
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
