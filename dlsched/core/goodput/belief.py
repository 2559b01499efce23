"""What a policy may believe of jobs' goodput: the seam between worlds and policies.

The simulated world answers from what a job has observed of itself so far, the live world from what
jobs report. Neither lets a policy see how fast a job would really be elsewhere. The exception
is `TrainingOracle`, which a replay offers where the run's estimator knows the truth.
"""

from __future__ import annotations

from typing import Protocol

from dlsched.core.arrays import Floats, Ints, Rows
from dlsched.core.goodput.params import BatchLimits


class TrainingOracle(Protocol):
    """Perfect knowledge of trainings at the batch size that their users asked for."""

    def remaining_steps(self, rows: Rows) -> Floats:
        """Optimiser steps that are left, counted from the start of the present epoch.

        1 where the last epoch is over.
        """
        ...

    def measured(self, row: int, shape: tuple[int, ...], local: int) -> tuple[float, float]:
        """Seconds of a synchronising pass, and those of them that synchronising takes.

        `shape` is the replicas on each node, zeros left out; `local` the samples of a replica and
        pass.
        """
        ...


class GoodputBelief(Protocol):
    """Columns about some rows, in their order.

    `gpu_type` "" means the cluster's only type.

    Attributes:
        oracle: the truth; None where it is not known.
    """

    @property
    def oracle(self) -> TrainingOracle | None:
        """The truth; None where it is not known."""
        ...

    def perf(self, rows: Rows, gpu_type: str = "") -> Floats:
        """Fitted `PerfParams`, [row, 7]; NaN where nothing has been fitted."""
        ...

    def grads(self, rows: Rows) -> Floats:
        """The latest `GradParams`, [row, 2]; `UNKNOWN_NOISE` where none are known."""
        ...

    def limits(self, rows: Rows, gpu_type: str = "") -> BatchLimits:
        """Batch limits, a column each; what a replica can hold at once may differ by type."""
        ...

    def replica_gpus(self, rows: Rows, gpu_type: str = "") -> Ints:
        """GPUs of one replica there: 1 but for models in several parts; 0: cannot run there."""
        ...

    def profiled(self, rows: Rows, gpu_type: str = "") -> Ints:
        """Most replicas it ever ran on there; 0: never."""
        ...

    def one_gpu_step(self, rows: Rows, gpu_type: str = "") -> Floats:
        """Seconds a sample on one GPU there, the largest measured; NaN: never measured."""
        ...

    def restart_s(self, rows: Rows) -> Floats:
        """Seconds without progress that a start costs."""
        ...

    def version(self, rows: Rows) -> Ints:
        """Grows whenever anything that is believed of the row changes, so that tables can stay."""
        ...
