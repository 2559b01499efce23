"""One training on a cluster of several GPU types.

Times, batch sizes that fit, and the fitted model are each type's own; gradients and progress are
the training's.

Source: the simulator in the published artifact of Subramanya et al., "Sia", SOSP 2023.
"""

from __future__ import annotations

import math
from functools import lru_cache

from dlsched.core.goodput.params import BatchLimits, PerfParams
from simulate.goodput.application import Split
from simulate.goodput.hardware import Hardware, TypedApplication
from simulate.goodput.published_fit import published_fit
from simulate.goodput.step_times import StepTimes
from simulate.goodput.training import FITS, Measured, Seen, Training, observations


@lru_cache(FITS)
def _published_fit(measured: Measured) -> PerfParams:
    return published_fit(observations(measured))


class TypedTraining(Training):
    """A training on GPUs that have a type.

    Attributes:
        typed: what it is.
    """

    def __init__(self, application: TypedApplication, asked: float) -> None:
        super().__init__(application, asked)
        self.typed = application

    @property
    def there(self) -> Hardware:
        """Its GPUs."""
        return self.typed.on[self.gpu_type]

    @property
    def replicas(self) -> int:
        """On how many replicas it runs."""
        return sum(self.shape) // self.there.unit

    def _times(self) -> StepTimes:
        return self.there.times

    def _split(self, batch: float) -> Split:
        return self.typed.split_on(self.there, batch, self.shape)

    def _capped(self, local: int, accumulation: int) -> Split:
        return self.typed.capped_on(self.there, local, accumulation, self.shape)

    def _limits_here(self) -> BatchLimits:
        return self.typed.limits._replace(local_max=self.there.most_local(self.shape))

    def _fit(self, measured: Measured) -> PerfParams:
        return _published_fit(measured)

    def _seen_on(self, gpu_type: str) -> Seen:
        return self._on.get(gpu_type, Seen())

    def one_gpu_step_on(self, gpu_type: str) -> float:
        """Seconds a sample on one GPU, from the profile that every job begins with."""
        there = self.typed.on.get(gpu_type)
        return math.nan if there is None else there.one_gpu_step

    def limits_on(self, gpu_type: str) -> BatchLimits:
        """Batch sizes that it may have there."""
        return self.typed.limits_on(gpu_type)

    def replica_gpus_on(self, gpu_type: str) -> int:
        """GPUs of a replica there; 0 where it was not measured."""
        there = self.typed.on.get(gpu_type)
        return 0 if there is None else there.unit
