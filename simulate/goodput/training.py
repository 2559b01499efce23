"""One training: epochs, progress, batch size, and what it has learnt of itself.

Progress grows by the gain of each optimiser step. Whole seconds count: an epoch that is over within
a stretch of time ends at the nearest second. A training that tunes its batch size does so when it
starts, when an epoch is over and at every round, by the model that it has fitted to the times it
has measured.

Source: the simulator in the published artifact of Qiao et al., "Pollux", OSDI 2021.
"""

from __future__ import annotations

import math

import numpy as np

from dlsched.core.errors import BadInput
from dlsched.core.goodput.batch import best_batch
from dlsched.core.goodput.fitting import Observations, fit
from dlsched.core.goodput.params import BatchLimits, GradParams, PerfParams
from simulate.goodput.application import Application, Split, capped, split_batch
from simulate.goodput.step_times import Shape, StepTime

__all__ = ["Training"]

Key = tuple[int, int, int]  # nodes, replicas, local
SOON_S = 1e-6  # an epoch that is over so soon is over: times are float seconds


class Training:
    """A training on GPUs or waiting for some.

    Attributes:
        application: what it is.
        asked: batch size that its user asked for.
        epoch: epochs that are over.
        progress: steps at the initial batch size that all its steps were worth.
        at: time up to which it has been followed.
        finish: when it was done; None before.
        shape: replicas on each node.
        split: how its batch is computed.
        version: grows with whatever it learns of itself.
    """

    def __init__(self, application: Application, asked: float) -> None:
        self.application, self.asked = application, asked
        self.epoch, self.progress, self.at = 0, 0.0, 0.0
        self.finish: float | None = None
        self.shape: Shape = ()
        self.split = Split(0, 0, 0)
        self.version = 0
        self._tunes = False
        self._tuned_by: tuple[int, tuple[int, int] | None] = (0, None)  # what it knew then
        self._slowed = 0.0
        self._rates: list[float] = []  # by epoch, as long as nothing else changes
        self._seen: dict[Key, StepTime] = {}
        self._noise_of: tuple[int, int] | None = None  # batch and epoch
        self._perf: PerfParams | None = None
        self._fitted = 0  # observations behind it

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
        """Tune the batch size, where it does and has learnt; says whether its pace is another."""
        if not self._tunes or self._tuned_by == (len(self._seen), self._noise_of):
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
                return at + took  # nobody knows at which pace it will go on, or it is the end
            at += round(took)
            done = boundaries.item(epoch)
        return at

    def slow_down(self, part: float) -> None:
        """Lose a part of its pace from now on."""
        self._slowed = part
        self._set_rates()

    @property
    def slowed(self) -> float:
        """The part of its pace that it loses."""
        return self._slowed

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
        application, replicas = self.application, sum(self.shape)
        self._tuned_by = (len(self._seen), self._noise_of)
        perf = self.perf if self._tunes and application.fixed_batch is None else None
        if self._tunes and application.fixed_batch is not None:
            batch = application.fixed_batch
        elif self._tunes:
            batch = max(application.initial, application.local_min * replicas)
        if perf is None:
            self.split = split_batch(batch, replicas, application)
        else:
            best = best_batch(
                perf, self.grads or GradParams(0.0, 1.0), self.limits, len(self.shape), replicas
            )
            self.split = capped(int(best.local), int(best.accumulation), replicas, application)
        self._set_rates()

    @property
    def limits(self) -> BatchLimits:
        """Batch sizes that it may have."""
        return self.application.limits

    def _set_rates(self) -> None:
        application, split = self.application, self.split
        sqr, var = application.learning.gradients(split.batch)
        scale = split.batch / application.initial
        gain = (var + sqr) / (var / scale + sqr)
        time = application.times.at(self.shape, split.local)
        step = time.step_s + (time.step_s - time.sync_s) * split.accumulation
        self._rates = (gain / step * (1.0 - self._slowed)).tolist()

    # -- what it knows of itself ------------------------------------------------------------------

    def _measure(self) -> None:
        key = (len(self.shape), sum(self.shape), self.split.local)
        noise_of = (self.split.batch, self.epoch)
        if noise_of != self._noise_of:
            self._noise_of = noise_of
            self.version += 1
        if key not in self._seen:
            self._seen[key] = self.application.times.at(self.shape, self.split.local)
            self.version += 1

    @property
    def perf(self) -> PerfParams | None:
        """The throughput model that it has fitted to all that it has measured."""
        if len(self._seen) > self._fitted:
            keys = np.array(list(self._seen), np.int64)
            times = np.array(list(self._seen.values()))
            nodes, replicas, local = keys.T
            step, sync = times.T
            seen = Observations(nodes, replicas, local, step - sync, step)
            self._perf = fit(seen, starts="single").params
            self._fitted = len(self._seen)
        return self._perf

    @property
    def grads(self) -> GradParams | None:
        """The gradients of the last epoch in which it has run, at the batch size it had."""
        if self._noise_of is None:
            return None
        batch, epoch = self._noise_of
        sqr, var = self.application.learning.gradients(batch)
        return GradParams(sqr.item(epoch), var.item(epoch))

    @property
    def profiled(self) -> int:
        """Most replicas on which it has run."""
        return max((replicas for _, replicas, _ in self._seen), default=0)

    @property
    def one_gpu_step(self) -> float:
        """Most seconds a sample on one GPU; NaN where it never ran on one."""
        times = [
            time.step_s / local
            for (_, replicas, local), time in self._seen.items()
            if replicas == 1
        ]
        return max(times, default=math.nan)
