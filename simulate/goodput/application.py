"""An application: what its trainings may do, how fast they run and how they learn."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

from dlsched.core.goodput.params import BatchLimits
from simulate.goodput.learning import Learning
from simulate.goodput.step_times import StepTimes

EPS = 1e-8


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """One row of a profile, with the tables that belong to it.

    Attributes:
        name: what traces call it.
        initial: batch size in all that progress and efficiency are relative to.
        maximum: largest batch size in all.
        local_min: fewest samples a GPU.
        local_max: most of them.
        epochs: a training ends after so many.
        times: of its steps.
        learning: its gradients and progress.
        fixed_batch: the batch size that it always has; None: jobs and schedulers choose it.
        slowdown: how many times longer a cluster takes than the measurements say.
    """

    name: str
    initial: int
    maximum: int
    local_min: int
    local_max: int
    epochs: int
    times: StepTimes
    learning: Learning
    fixed_batch: int | None = None
    slowdown: float = 1.0

    @property
    def work(self) -> float:
        """Progress after which a training is complete."""
        return float(self.learning.progress_at[self.epochs - 1])

    @property
    def digest(self) -> str:
        """Changes with anything that was measured."""
        own = (self.limits, self.epochs, self.times.tables, self.learning.tables)
        return hashlib.sha256(repr(own).encode()).hexdigest()

    @property
    def limits(self) -> BatchLimits:
        """Batch sizes of jobs that choose theirs."""
        most = self.maximum if self.fixed_batch is None else self.fixed_batch
        return BatchLimits(
            self.initial, most, self.local_min, self.local_max, fixed=self.fixed_batch is not None
        )

    @property
    def most_gpus(self) -> int:
        """GPUs on which a job that chooses its batch size can run."""
        return 1 if self.fixed_batch is not None else max(self.maximum // self.local_min, 1)


@dataclass(frozen=True, slots=True)
class Split:
    """How a batch is computed.

    Attributes:
        local: samples a replica and pass.
        accumulation: passes before the one that synchronises.
        batch: samples in all, which may be a few more than were asked for.
    """

    local: int
    accumulation: int
    batch: int


def split_batch(batch: float, replicas: int, application: Application) -> Split:
    """Split a batch over replicas, and over passes where a GPU cannot hold its part."""
    part = math.ceil(batch / replicas - EPS)
    passes = math.ceil(part / application.local_max - EPS)
    if replicas == 1 and batch > application.initial:
        passes = max(passes, 2)
    return capped(math.ceil(part / passes - EPS), passes - 1, replicas, application)


def capped(local: int, accumulation: int, replicas: int, application: Application) -> Split:
    """A split with fewer samples, where they would be more than the application can learn from.

    Args:
        local: samples a replica and pass.
        accumulation: passes before the one that synchronises.
        replicas: that compute the batch.
        application: has the limit.
    """
    count = replicas * (accumulation + 1)
    local = min(local, max(int(application.maximum / count), 1))
    return Split(local, accumulation, local * count)
