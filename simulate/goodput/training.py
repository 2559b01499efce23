"""One training: epochs, progress, batch size, and what it has measured of itself.

Progress grows by the gain of each optimiser step. Whole seconds count: an epoch that is over within
a stretch of time ends at the nearest second. A training that tunes its batch size does so when it
starts, when an epoch is over and at every round, by the model that it has fitted to the times it
has measured.

Source: the simulator in the published artifact of Qiao et al., "Pollux", OSDI 2021.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from dlsched.core.errors import BadInput
from dlsched.core.goodput.batch import best_batch
from dlsched.core.goodput.fitting import Observations, fit
from dlsched.core.goodput.params import BatchLimits, GradParams, PerfParams
from simulate.goodput.application import Application, Split, capped, split_batch
from simulate.goodput.step_times import Shape, StepTime, StepTimes

Key = tuple[int, int, int]  # nodes, replicas, local
Measured = tuple[tuple[Key, StepTime], ...]  # in the order in which it was measured
FITS = 4096  # kept in memory: jobs of an application, and runs of a study, often measure the same
SOON_S = 1e-6  # an epoch that is over so soon is over: times are float seconds


@dataclass(slots=True)
class Seen:
    """What a training has measured on one GPU type.

    Attributes:
        times: by nodes, replicas and samples of a replica.
        perf: the model fitted to the first `fitted` of them.
    """

    times: dict[Key, StepTime] = field(default_factory=dict)
    perf: PerfParams | None = None
    fitted: int = 0


def observations(measured: Measured) -> Observations:
    """What a model of step times is fitted to."""
    keys, times = zip(*measured, strict=True)
    nodes, replicas, local = np.array(keys, np.int64).T
    step, sync = np.array(times).T
    return Observations(nodes, replicas, local, step - sync, step)


@lru_cache(FITS)
def _single_fit(measured: Measured) -> PerfParams:
    return fit(observations(measured), starts="single").params


class Training:
    """A training on GPUs or waiting for some.

    Attributes:
        application: what is trained.
        asked: batch size that its user asked for.
        epoch: epochs that are over.
        progress: steps at the initial batch size that all its steps were worth.
        at: time up to which it has been followed.
        finish: when it was done; None before.
        shape: replicas on each node.
        split: how its batch is computed.
        version: grows with whatever it measures of itself.
        gpu_type: where it is or was last, if types are told apart; otherwise "".
    """

    def __init__(self, application: Application, asked: float) -> None:
        self.application, self.asked = application, asked
        self.epoch, self.progress, self.at = 0, 0.0, 0.0
        self.finish: float | None = None
        self.shape: Shape = ()
        self.split = Split(0, 0, 0)
        self.version = 0
        self.gpu_type = ""
        self._tunes = False
        self._tuned_by: object = None
        self._slowed = 0.0
        self._rates: list[float] = []  # by epoch, as long as nothing else changes
        self._on: dict[str, Seen] = {}  # by GPU type
        self._noise_of: tuple[int, int] | None = None  # batch and epoch

    # -- life -------------------------------------------------------------------------------------

    def begin(self, shape: Shape, ready: float, *, batch: float, tunes: bool) -> None:
        """Start somewhere.

        Args:
            shape: replicas on each node, in rank order.
            ready: when it goes on.
            batch: size in all, where it does not tune it.
            tunes: does it choose its batch size itself?
        """
        self.shape, self.at, self._tunes = shape, ready, tunes
        self.asked = self.asked if tunes else batch
        self._choose_batch(batch)

    def advance(self, now: float) -> None:
        """Go on until now."""
        boundaries = self.application.learning.progress_at
        while self.at < now and self.finish is None:
            self._measure()
            rate, boundary = self.rate, boundaries.item(self.epoch)
            took, seconds = (boundary - self.progress) / rate, now - self.at
            if took - seconds > SOON_S:
                self.progress += rate * seconds
                self.at = now
                return
            self.progress = boundary
            self.at += min(float(round(took)), seconds)
            self.epoch += 1
            if self.epoch >= self.application.epochs:
                self.finish = self.at
            elif self._tunes:
                self._choose_batch(self.asked)

    def reconsider(self) -> bool:
        """Tune the batch size, if it does so and has measured something new.

        Returns:
            Whether its rate has changed.
        """
        if not self._tunes or self._tuned_by == self._news():
            return False
        before = self.rate
        self._choose_batch(self.asked)
        return self.rate != before

    @property
    def rate(self) -> float:
        """Progress per second in this epoch."""
        return self._rates[min(self.epoch, len(self._rates) - 1)] if self._rates else 0.0

    def look(self) -> float:
        """The earliest time at which it could be done; for a fixed batch, when it is seen to be."""
        boundaries, last = self.application.learning.progress_at, self.application.epochs - 1
        at, done = self.at, self.progress
        for epoch in range(self.epoch, last + 1):
            took = (boundaries.item(epoch) - done) / self._rates[epoch]
            if self._tunes or epoch == last:
                return at + took  # how fast it then goes on is not known, or it is the end
            at += round(took)
            done = boundaries.item(epoch)
        return at

    def slow_down(self, part: float) -> None:
        """Run slower by this part from now on."""
        self._slowed = part
        self._set_rates()

    def fall_back(self, progress: float) -> None:
        """Go back to an earlier state of the model."""
        boundaries = self.application.learning.progress_at
        self.progress = min(progress, self.progress)
        self.epoch = min(int(np.searchsorted(boundaries, self.progress, side="right")), self.epoch)

    def alone(self, shape: Shape) -> float:
        """Seconds from the first step to the last on GPUs that it never leaves; NaN if unknown."""
        twin = Training(self.application, self.asked)
        try:
            twin.begin(shape, 0.0, batch=self.asked, tunes=False)
        except BadInput:
            return math.nan
        return twin.look()

    # -- batch size -------------------------------------------------------------------------------

    def _choose_batch(self, batch: float) -> None:
        application, replicas = self.application, self.replicas
        self._tuned_by = self._news()
        perf = None
        if self._tunes and application.fixed_batch is not None:
            batch = application.fixed_batch
        elif self._tunes:
            perf = self.perf_on(self.gpu_type)
            batch = max(application.initial, application.local_min * replicas)
        if perf is None:
            self.split = self._split(batch)
        else:
            noise = self.grads or GradParams(0.0, 1.0)
            best = best_batch(perf, noise, self._limits_here(), len(self.shape), replicas)
            self.split = self._capped(int(best.local), int(best.accumulation))
        self._set_rates()

    def _news(self) -> object:
        """What its batch size follows from: as long as it stays, so does the batch size."""
        return len(self._seen_on(self.gpu_type).times), self._noise_of

    @property
    def replicas(self) -> int:
        """On how many replicas it runs."""
        return sum(self.shape)

    def _times(self) -> StepTimes:
        """The times of its steps where it is."""
        return self.application.times

    def _split(self, batch: float) -> Split:
        return split_batch(batch, self.replicas, self.application)

    def _capped(self, local: int, accumulation: int) -> Split:
        return capped(local, accumulation, self.replicas, self.application)

    def _limits_here(self) -> BatchLimits:
        return self.application.limits

    def _set_rates(self) -> None:
        application, split = self.application, self.split
        sqr, var = application.learning.gradients(split.batch)
        scale = split.batch / application.initial
        gain = (var + sqr) / (var / scale + sqr)
        time = self._times().at(self.shape, split.local)
        step = time.step_s + (time.step_s - time.sync_s) * split.accumulation
        self._rates = (gain / step * ((1.0 - self._slowed) / application.slowdown)).tolist()

    # -- what it has measured of itself -----------------------------------------------------------

    def _measure(self) -> None:
        seen = self._on.setdefault(self.gpu_type, Seen())
        key = (len(self.shape), self.replicas, self.split.local)
        noise_of = (self.split.batch, self.epoch)
        if noise_of != self._noise_of:
            self._noise_of = noise_of
            self.version += 1
        if key not in seen.times:
            seen.times[key] = self._times().at(self.shape, self.split.local)
            self.version += 1

    def _seen_on(self, gpu_type: str) -> Seen:
        """What it has measured on a type; here types are not told apart."""
        return self._on.get("", Seen())

    def _fit(self, measured: Measured) -> PerfParams:
        return _single_fit(measured)

    def perf_on(self, gpu_type: str) -> PerfParams | None:
        """The throughput model that it has fitted to what it has measured on a type."""
        seen = self._seen_on(gpu_type)
        if len(seen.times) > seen.fitted:
            seen.perf = self._fit(tuple(seen.times.items()))
            seen.fitted = len(seen.times)
        return seen.perf

    @property
    def grads(self) -> GradParams | None:
        """The gradients of the last epoch in which it has run, at the batch size it had."""
        if self._noise_of is None:
            return None
        batch, epoch = self._noise_of
        sqr, var = self.application.learning.gradients(batch)
        return GradParams(sqr.item(epoch), var.item(epoch))

    def profiled_on(self, gpu_type: str) -> int:
        """Most replicas on which it has run there."""
        return max((replicas for _, replicas, _ in self._seen_on(gpu_type).times), default=0)

    def one_gpu_step_on(self, gpu_type: str) -> float:
        """Most seconds a sample on one GPU there; NaN where it never ran on one."""
        times = self._seen_on(gpu_type).times.items()
        alone = (time.step_s / local for (_, replicas, local), time in times if replicas == 1)
        return max(alone, default=math.nan)

    # -- what is known of it from its profile -----------------------------------------------------

    def limits_on(self, gpu_type: str) -> BatchLimits:
        """Batch sizes that it may have there."""
        return self.application.limits

    def replica_gpus_on(self, gpu_type: str) -> int:
        """GPUs of a replica there; 0 where it was not measured."""
        return 1
