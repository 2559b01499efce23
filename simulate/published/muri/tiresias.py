"""The policy `tiresias` as Muri's simulator has it: demoted once it has executed whole seconds."""

from __future__ import annotations

import numpy as np

from dlsched.core.arrays import Floats, Ints
from dlsched.core.context import RoundContext
from dlsched.core.scheduling import QuietRounds
from dlsched.policies.scheduling.tiresias import Falling, Tiresias


class WholeSeconds(Tiresias):
    """A demotion is noticed at the first whole executed second behind the limit."""

    def quiet_rounds(self, ctx: RoundContext, admitted: Ints) -> QuietRounds | None:
        """None: a demotion is noticed later than its limit is reached."""
        return None

    def _until_fall(self, some: Falling) -> Floats:
        if self.options.variant == "dlas":
            return super()._until_fall(some)
        return np.asarray(np.ceil(self._limit(some) / some.gpus) - some.executed)
