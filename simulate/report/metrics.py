"""The summary figures that runs are compared by: their names, units, and which way is better."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from simulate.report.drawing.scale import Quantity
from simulate.report.intervals import Estimate, estimate, paired_difference
from simulate.report.study import Group
from simulate.results.tables import ReplayResult

Better = Literal["low", "high", "none"]


class Metric(NamedTuple):
    """A figure of a run.

    Attributes:
        key: its name in this package.
        name: its name in titles.
        short: its name in the heads of columns.
        quantity: what it is.
        better: whether low or high values are better.
        path: where it is in the summary; at its key where nothing is given.
    """

    key: str
    name: str
    short: str
    quantity: Quantity
    better: Better
    path: tuple[str, ...] = ()


FTF = "finish_time_fairness"
DEADLINES = (
    Metric("met", "Deadlines met", "Met", "share", "high", ("deadlines", "met_share")),
    Metric("late", "Average lateness of missed deadlines", "Late", "duration", "low",
           ("deadlines", "avg_late")),
    Metric("value", "Share of the value of deadlines earned", "Value", "share", "high",
           ("deadlines", "value_share")),
    Metric("free_jct", "Average JCT of jobs without deadline", "JCT without", "duration", "low",
           ("deadlines", "best_effort_avg_jct")),
)  # fmt: skip

SERVICES = (
    Metric("in_time", "Requests of services in time", "In time", "share", "high",
           ("services", "in_time_share")),
    Metric("sla_kept", "Time in which SLAs of services are kept", "SLA kept", "share", "high",
           ("services", "kept_share")),
    Metric("lent", "GPU-hours that services lend", "Lent GPU-h", "number", "high",
           ("services", "lent_gpu_hours")),
)  # fmt: skip

METRICS = (
    Metric("completed", "Completed jobs", "Completed", "number", "none"),
    Metric("avg_jct", "Average JCT", "Avg JCT", "duration", "low"),
    Metric("median_jct", "Median JCT", "Median JCT", "duration", "low"),
    Metric("p95_jct", "95th percentile JCT", "p95 JCT", "duration", "low"),
    Metric("p99_jct", "99th percentile JCT", "p99 JCT", "duration", "low"),
    Metric("avg_queueing_delay", "Average queueing delay", "Avg delay", "duration", "low"),
    Metric("makespan", "Makespan", "Makespan", "duration", "low"),
    Metric("gpu_utilization", "GPU utilisation", "GPU util.", "share", "high"),
    Metric("max_rho", "Worst finish-time fairness ρ", "Worst ρ", "number", "low", (FTF, "max")),
    Metric("unfair", "Share of jobs with ρ > 1", "ρ > 1", "share", "low", (FTF, "unfair_fraction")),
    Metric("preemptions", "Preemptions", "Preempt.", "number", "none"),
    Metric("restarts", "Restarts", "Restarts", "number", "none"),
    Metric("lost", "GPU time lost to restarts", "Lost", "share", "none"),
)
JOBS = Metric("jobs", "Jobs that the figures are about", "Jobs", "number", "none")
BY_KEY = {m.key: m for m in (*METRICS, *DEADLINES, *SERVICES, JOBS)}
COMPARED = tuple(  # deadlines and services where there are any
    BY_KEY[key]
    for key in (
        "avg_jct",
        "p99_jct",
        "avg_queueing_delay",
        "makespan",
        "gpu_utilization",
        "max_rho",
        "met",
        "value",
        "free_jct",
        "in_time",
        "lent",
    )
)


def value_of(run: ReplayResult, wanted: Metric) -> float:
    """A run's figure, NaN when its summary does not know it."""
    if wanted.key == "lost":
        return lost_share(run)
    found: Any = run.summary
    for part in wanted.path or (wanted.key,):
        if not isinstance(found, Mapping):
            return math.nan
        found = found.get(part)
    if isinstance(found, bool) or not isinstance(found, (int, float, np.number)):
        return math.nan
    return float(found)


def lost_share(run: ReplayResult) -> float:
    """Lost seconds times gang size over the GPU-seconds held; NaN when none were held."""
    held = float(np.nansum(run.counted_jobs.gpu_seconds))
    lost = float(np.nansum(run.counted_jobs.lost_seconds * run.counted_jobs.num_gpus))
    return lost / held if held > 0 else math.nan


def values_of(group: Group, wanted: Metric) -> dict[int, float]:
    """The figure of each seed."""
    return {run.seed: value_of(run, wanted) for run in group.runs}


@dataclass(frozen=True, slots=True)
class Standing:
    """How the groups of one load compare in one metric: estimates, the best, and its equals."""

    estimates: tuple[Estimate, ...]
    best: frozenset[int]
    near: frozenset[int]


def standing(groups: tuple[Group, ...], wanted: Metric) -> Standing:
    """Best by mean; near when the interval of the difference paired by seed includes zero."""
    values = [values_of(g, wanted) for g in groups]
    estimates = tuple(estimate(v) for v in values)
    known = [i for i, e in enumerate(estimates) if math.isfinite(e.mean)]
    means = [estimates[i].mean for i in known]
    if wanted.better == "none" or len(known) < 2 or min(means) == max(means):
        return Standing(estimates, frozenset(), frozenset())
    top = min(means) if wanted.better == "low" else max(means)
    best = frozenset(i for i in known if estimates[i].mean == top)
    near = set()
    for i in known:
        gap = paired_difference(values[i], values[min(best)])
        if i not in best and gap.seeds > 1 and gap.low <= 0.0 <= gap.high:
            near.add(i)
    return Standing(estimates, best, frozenset(near))
