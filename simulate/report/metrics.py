"""The summary figures that runs are compared by: their names, units, and which way is better."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from simulate.report.intervals import Estimate, estimate, paired_difference
from simulate.report.study import Group
from simulate.results import ReplayResult

__all__ = ["COMPARED", "METRICS", "Metric", "Standing", "standing", "value_of", "values_of"]

Better = Literal["low", "high", "none"]
Quantity = Literal["duration", "share", "number"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A figure of a run; `path` leads to it in the summary."""

    key: str
    name: str
    short: str
    quantity: Quantity
    better: Better
    path: tuple[str, ...]


def metric(
    key: str, name: str, short: str, quantity: Quantity, better: Better, *path: str
) -> Metric:
    """A metric whose place in the summary is its key unless told otherwise."""
    return Metric(
        key=key, name=name, short=short, quantity=quantity, better=better, path=path or (key,)
    )


FTF = "finish_time_fairness"

METRICS = (
    metric("completed", "Completed jobs", "Completed", "number", "none"),
    metric("avg_jct", "Average JCT", "Avg JCT", "duration", "low"),
    metric("median_jct", "Median JCT", "Median JCT", "duration", "low"),
    metric("p95_jct", "95th percentile JCT", "p95 JCT", "duration", "low"),
    metric("p99_jct", "99th percentile JCT", "p99 JCT", "duration", "low"),
    metric("avg_queueing_delay", "Average queueing delay", "Avg delay", "duration", "low"),
    metric("makespan", "Makespan", "Makespan", "duration", "low"),
    metric("gpu_utilization", "GPU utilisation", "GPU util.", "share", "high"),
    metric("max_rho", "Worst finish-time fairness ρ", "Worst ρ", "number", "low", FTF, "max"),
    metric("unfair", "Share of jobs with ρ > 1", "ρ > 1", "share", "low", FTF, "unfair_fraction"),
    metric("preemptions", "Preemptions", "Preempt.", "number", "none"),
    metric("restarts", "Restarts", "Restarts", "number", "none"),
    metric("lost", "GPU time lost to restarts", "Lost", "share", "none"),
)
JOBS = metric("jobs", "Jobs that the figures are about", "Jobs", "number", "none")
BY_KEY = {m.key: m for m in (*METRICS, JOBS)}
COMPARED = tuple(
    BY_KEY[key]
    for key in (
        "avg_jct",
        "p99_jct",
        "avg_queueing_delay",
        "makespan",
        "gpu_utilization",
        "max_rho",
    )
)


def value_of(run: ReplayResult, wanted: Metric) -> float:
    """A run's figure, NaN when its summary does not know it."""
    if wanted.key == "lost":
        return lost_share(run)
    found: Any = run.summary
    for part in wanted.path:
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
