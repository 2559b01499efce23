"""Over seeds: means with 95 % intervals, and differences paired by trace, load and seed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from simulate.report.intervals import Estimate, estimate, paired_difference
from simulate.report.metrics import DEADLINES, FTF, SERVICES, Metric, values_of
from simulate.report.study import Study
from simulate.results.tables import ReplayResult

FIGURES: tuple[Metric, ...] = (
    Metric("completed", "Completed jobs", "Done", "number", "none"),
    Metric("refused", "Refused jobs", "Refused", "number", "none"),
    Metric("unfinished", "Unfinished jobs", "Left", "number", "none"),
    Metric("avg_jct", "Average JCT", "Avg JCT", "duration", "low"),
    Metric("median_jct", "Median JCT", "Median", "duration", "low"),
    Metric("p95_jct", "95th percentile JCT", "p95", "duration", "low"),
    Metric("p99_jct", "99th percentile JCT", "p99", "duration", "low"),
    Metric("avg_queueing_delay", "Average queueing delay", "Avg delay", "duration", "low"),
    Metric("makespan", "Makespan", "Makespan", "duration", "low"),
    Metric("gpu_utilization", "GPU utilisation", "GPU util", "share", "high"),
    Metric("preemptions", "Preemptions", "Preempt", "number", "none"),
    Metric("restarts", "Restarts", "Restarts", "number", "none"),
    Metric("lost_seconds", "Seconds of work lost", "Lost", "duration", "none"),
    *DEADLINES,
    *SERVICES,
    Metric("max_rho", "Worst finish-time fairness ρ", "Worst ρ", "number", "low", (FTF, "max")),
    Metric("unfair_fraction", "Jobs with ρ > 1", "ρ > 1", "share", "low", (FTF, "unfair_fraction")),
)


def by_trace(results: Sequence[ReplayResult]) -> dict[str, Study]:
    """A study for each trace, in the order of the results."""
    sorted_runs: dict[str, list[ReplayResult]] = {}
    for result in results:
        sorted_runs.setdefault(result.trace, []).append(result)
    return {trace: Study.of(runs) for trace, runs in sorted_runs.items()}


def aggregates(results: Sequence[ReplayResult]) -> list[dict[str, Any]]:
    """One object for each label, load and trace with several seeds, for the summary file.

    `means` holds mean and half width of the 95 % interval (Student's t) by figure;
    `differences`, in all but the first label's, the same of its paired differences from the first.
    """
    told: list[dict[str, Any]] = []
    for trace, study in by_trace(results).items():
        for load in study.loads:
            groups = study.at(load)
            for group in groups:
                if len(group.runs) < 2:
                    continue
                own = {m.key: values_of(group, m) for m in FIGURES}
                entry: dict[str, Any] = {
                    "aggregate": True,
                    "policy": group.first.policy,
                    "label": group.label,
                    "trace": trace,
                    "load": load,
                    "seeds": [run.seed for run in group.runs],
                    "means": {key: _object(estimate(values)) for key, values in own.items()},
                }
                if group is not groups[0]:
                    base = {m.key: values_of(groups[0], m) for m in FIGURES}
                    entry["difference_from"] = groups[0].label
                    entry["differences"] = {
                        key: _object(paired_difference(values, base[key]))
                        for key, values in own.items()
                    }
                told.append(entry)
    return told


def _object(value: Estimate) -> dict[str, float | int | None]:
    return {
        "mean": value.mean if math.isfinite(value.mean) else None,
        "half_width": value.half_width if math.isfinite(value.half_width) else None,
        "seeds": value.seeds,
    }


def nothing_random(results: Sequence[ReplayResult]) -> bool:
    """Did several seeds change nothing at all?"""
    several = False
    for study in by_trace(results).values():
        for group in study.groups:
            first = group.first.jobs
            for run in group.runs[1:]:
                several = True
                same_ends = (run.jobs.finish_time == first.finish_time) | (
                    run.jobs.status != "completed"
                )
                if not same_ends.all() or (run.jobs.status != first.status).any():
                    return False
    return several
