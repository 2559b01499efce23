"""The same tasks under several ways of matching."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dlsched.core.errors import not_known
from simulate.short_tasks.options import Kind, Options
from simulate.short_tasks.scheduler import MATCHERS, JobState
from simulate.short_tasks.work import Job
from simulate.short_tasks.world import World

MATCHINGS = tuple(MATCHERS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What came of all jobs under one way of matching.

    Attributes:
        matching: its name.
        jobs: with the times of their ends.
        mean_jct_s: from arrival to end, the mean of all jobs.
        p95_jct_s: its 95 % quantile.
        makespan_s: from the first arrival to the last end.
        mean_wait_s: of regular tasks, from sending to start; None: there are none.
        p99_wait_s: its 99 % quantile.
        wait_error_s: mean difference between these waits and what was expected.
        utilisation: core-seconds of useful work in all that there were until the last end.
        wasted: of the core-seconds that were used.
        counts: of batches, tasks, copies and reports.
        tasks_per_cpu_s: tasks that this program has followed in one of its CPU seconds.
    """

    matching: str
    jobs: tuple[JobState, ...]
    mean_jct_s: float
    p95_jct_s: float
    makespan_s: float
    mean_wait_s: float | None
    p99_wait_s: float | None
    wait_error_s: float | None
    utilisation: float
    wasted: float
    counts: Mapping[str, int]
    tasks_per_cpu_s: float

    def figures(self) -> dict[str, Any]:
        """All but the jobs, for JSON."""
        return {name: getattr(self, name) for name in self.__slots__ if name != "jobs"}


def compare_matchings(
    jobs: Sequence[Job], kinds: Sequence[Kind], names: Sequence[str], options: Options
) -> list[Result]:
    """Follow the jobs under each way of matching.

    Raises:
        BadInput: an unknown way, or a task that fits on no server.
    """
    for name in names:
        if name not in MATCHERS:
            raise not_known("--matching:", name, MATCHINGS)
    return [_result(jobs, kinds, name, options) for name in names]


def _result(jobs: Sequence[Job], kinds: Sequence[Kind], name: str, options: Options) -> Result:
    began = time.process_time()
    outcome = World(jobs, kinds, name, options).run()
    took = time.process_time() - began
    ends = np.array([np.nan if s.ended_at is None else s.ended_at for s in outcome.jobs])
    arrivals = np.array([state.job.arrival for state in outcome.jobs])
    makespan = float(ends.max() - arrivals.min())
    waits = np.array(outcome.waits)
    cores = sum(kind.count * kind.cores for kind in kinds)
    used = outcome.core_s + outcome.wasted_core_s
    return Result(
        matching=name,
        jobs=tuple(outcome.jobs),
        mean_jct_s=float((ends - arrivals).mean()),
        p95_jct_s=float(np.percentile(ends - arrivals, 95)),
        makespan_s=makespan,
        mean_wait_s=float(waits.mean()) if len(waits) else None,
        p99_wait_s=float(np.percentile(waits, 99)) if len(waits) else None,
        wait_error_s=float(np.mean(outcome.errors)) if len(waits) else None,
        utilisation=outcome.core_s / (cores * makespan),
        wasted=outcome.wasted_core_s / used if used else 0.0,
        counts=dict(sorted(outcome.counts.items())),
        tasks_per_cpu_s=outcome.counts["done"] / max(took, 1e-9),
    )
