"""What a replay leaves behind: a row for each job, step series over time, and placements.

`ReplayResult` is plain columns, so that it pickles cheaply between processes and every picture,
table and file is made from the same numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Texts = NDArray[np.object_]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOutcomes:
    """A row for each job, in trace order.

    Times are seconds from the trace's start, NaN for what never happened.

    `extra` holds what a policy adds (for example `promotions`), already columns of the output.
    """

    job_id: Texts
    user: Texts
    vc: Texts
    num_gpus: Ints
    submit_time: Floats
    first_start_time: Floats
    finish_time: Floats
    gpu_seconds: Floats
    starts: Ints
    preemptions: Ints
    migrations: Ints
    resizes: Ints
    lost_seconds: Floats  # on GPUs without lasting progress: restarts, and work done again
    status: Texts  # completed, refused, unfinished
    reason: Texts  # why refused or unfinished, "" otherwise
    duration: Floats  # true seconds of work the job needed
    counted: NDArray[np.bool_]  # in the figures: after the warm-up; tracked, if some jobs are
    extra: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    def __len__(self) -> int:
        return int(self.submit_time.shape[0])

    def counted_only(self) -> JobOutcomes:
        """The jobs that the figures are about."""
        if self.counted.all():
            return self
        columns = {
            f.name: getattr(self, f.name)[self.counted] for f in fields(self) if f.name != "extra"
        }
        extra = {name: column[self.counted] for name, column in self.extra.items()}
        return JobOutcomes(**columns, extra=extra)

    @property
    def jct(self) -> Floats:
        """Finish minus submit, NaN for jobs that did not finish."""
        return self.finish_time - self.submit_time

    @property
    def queueing_delay(self) -> Floats:
        """First start minus submit, NaN for jobs that never started."""
        return self.first_start_time - self.submit_time


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """Step series: value k holds from `time[k]` until `time[k + 1]`."""

    time: Floats
    allocated_gpus: Ints
    total_gpus: Ints  # GPUs in service (healthy and not drained empty)
    running_jobs: Ints
    waiting_jobs: Ints
    waiting_gpus: Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class Segments:
    """Stretches in which a job held GPUs of one node; a gang over n nodes has n rows a stretch."""

    job: Ints  # row in JobOutcomes
    node: Ints  # index in ClusterShape
    gpus: Ints  # how many of that node's GPUs
    start: Floats
    end: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectories:
    """What elastic jobs had: a row holds from its time until the job's next one.

    Rows of one job ascend in time; 0 GPUs while it waits and after its end.
    """

    job: Ints  # row in JobOutcomes
    time: Floats
    gpus: Ints
    batch_size: Floats  # samples in all, NaN where jobs have no batch size of their own
    goodput: Floats  # useful samples per second, NaN where it is not known


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterShape:
    """The nodes a result's `Segments` speak of."""

    spec: str
    node_name: Texts
    node_gpus: Ints
    node_type: Texts


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayResult:
    """One finished run: a policy on a trace at a load with a seed.

    `summary` has the keys of the `--summary-out` contract (`policy`, `semantics`, `options`,
    `jobs`, `completed`, `avg_jct`, …), None where a value cannot be known.
    """

    label: str  # what tables and legends call the run: the policy's name, or name/placement
    policy: str
    trace: str
    load: float | None
    seed: int
    jobs: JobOutcomes
    timeline: Timeline
    segments: Segments | None  # None when not recorded
    cluster: ClusterShape
    summary: Mapping[str, Any]
    warnings: tuple[str, ...] = ()
    trajectories: Trajectories | None = None  # None where no job is elastic, or when not recorded

    @property
    def counted_jobs(self) -> JobOutcomes:
        """The jobs that the figures are about."""
        return self.jobs.counted_only()
