"""The policy `tiresias` with the formulas of its simulator, which counts whole seconds."""

from __future__ import annotations

import numpy as np

from dlsched.core.arrays import Floats, Ints
from dlsched.core.context import RoundContext
from dlsched.core.scheduling import QuietRounds
from dlsched.policies.scheduling.tiresias import Falling, Tiresias
from simulate.published.tiresias.gittins import TabledIndex


class PublishedTiresias(Tiresias):
    """Demotions at the time that the simulator's formula gives (wrong for resumed jobs)."""

    close_s = 0.0

    def quiet_rounds(self, ctx: RoundContext, admitted: Ints) -> QuietRounds | None:
        """None: the formula's time depends on when it is asked."""
        return None

    def _noticed(self, due: Floats) -> Floats:
        return np.asarray(np.floor(due))

    def _until_fall(self, some: Falling) -> Floats:
        if self.options.variant == "dlas":
            return super()._until_fall(some)
        return np.asarray(np.floor((self._limit(some) - some.executed) / some.gpus))

    def _index_of(self, sample: Floats) -> TabledIndex:
        return TabledIndex(sample, self.options.delta)
