"""One training on a cluster of several GPU types.

Times, batch sizes that fit, and the fitted model are each type's own; gradients and progress are
the training's.

Source: the simulator in the published artifact of Subramanya et al., "Sia", SOSP 2023.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from dlsched.core.goodput.batch import best_batch
from dlsched.core.goodput.fitting import Observations
from dlsched.core.goodput.params import BatchLimits, GradParams, PerfParams
from simulate.goodput.hardware import Hardware, TypedApplication
from simulate.goodput.published_fit import published_fit
from simulate.goodput.step_times import StepTime
from simulate.goodput.training import Training

__all__ = ["TypedTraining"]


@dataclass(slots=True)
class Seen:
    """What it has measured on one type.

    Attributes:
        times: by (nodes, replicas, samples).
        perf: the model fitted to the first `fitted` of them.
    """

    times: dict[tuple[int, int, int], StepTime] = field(default_factory=dict)
    perf: PerfParams | None = None
    fitted: int = 0


class TypedTraining(Training):
    """A training whose GPUs have a type.

    Attributes:
        typed: what it is.
        gpu_type: where it is, or was last.
    """

    def __init__(self, application: TypedApplication, asked: float) -> None:
        super().__init__(application, asked)
        self.typed = application
        self.gpu_type = ""
        self._on: dict[str, Seen] = {}

    @property
    def there(self) -> Hardware:
        """Its GPUs."""
        return self.typed.on[self.gpu_type]

    @property
    def replicas(self) -> int:
        """On how many replicas it runs."""
        return sum(self.shape) // self.there.unit

    def _choose_batch(self, batch: float) -> None:
        application, there, shape = self.typed, self.there, self.shape
        perf = self.perf_on(self.gpu_type) if self._tunes else None
        if perf is None:
            if self._tunes:
                batch = max(application.initial, application.local_min * self.replicas)
            self.split = application.split_on(there, batch, shape)
        else:
            limits = application.limits._replace(local_max=there.most_local(shape))
            noise = self.grads or GradParams(0.0, 1.0)
            best = best_batch(perf, noise, limits, len(shape), self.replicas)
            self.split = application.capped_on(
                there, int(best.local), int(best.accumulation), shape
            )
        self._set_rates()

    @property
    def limits(self) -> BatchLimits:
        """Batch sizes that it may have."""
        return self.typed.limits_on(self.gpu_type)

    def _set_rates(self) -> None:
        application, split = self.typed, self.split
        sqr, var = application.learning.gradients(split.batch)
        scale = split.batch / application.initial
        gain = (var + sqr) / (var / scale + sqr)
        time = self.there.times.at(self.shape, split.local)
        step = time.step_s + (time.step_s - time.sync_s) * split.accumulation
        pace = (1.0 - self._slowed) / application.slowdown
        self._rates = (gain / step * pace).tolist()

    # -- what it knows of itself ------------------------------------------------------------------

    def _measure(self) -> None:
        noise_of = (self.split.batch, self.epoch)
        if noise_of != self._noise_of:
            self._noise_of = noise_of
            self.version += 1
        seen = self._on.setdefault(self.gpu_type, Seen())
        key = (len(self.shape), self.replicas, self.split.local)
        if key not in seen.times:
            seen.times[key] = self.there.times.at(self.shape, self.split.local)
            self.version += 1

    def perf_on(self, gpu_type: str) -> PerfParams | None:
        """The model that it has fitted to what it has measured on a type."""
        seen = self._on.get(gpu_type)
        if seen is None:
            return None
        if len(seen.times) > seen.fitted:
            nodes, replicas, local = np.array(list(seen.times), np.int64).T
            step, sync = np.array(list(seen.times.values())).T
            seen.perf = published_fit(Observations(nodes, replicas, local, step - sync, step))
            seen.fitted = len(seen.times)
        return seen.perf

    def profiled_on(self, gpu_type: str) -> int:
        """Most replicas on which it has run there."""
        seen = self._on.get(gpu_type)
        return 0 if seen is None else max((replicas for _, replicas, _ in seen.times), default=0)
