"""Pictures of jobs on the same GPUs: how many, for how long, how fast, and in how much memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from simulate.report.drawing.charts import Figure
from simulate.report.losses import bars
from simulate.report.study import Group
from simulate.results.tables import ReplayResult


def co_residence_figures(groups: Sequence[Group]) -> tuple[Figure, ...]:
    """Jobs with partners, time and speed beside others, memory at risk; none where none shared."""
    if not any(jobs_with_partners(run) > 0 for group in groups for run in group.runs):
        return ()
    every = (
        bars(groups, "Jobs that shared GPUs, of all", jobs_with_partners, "share"),
        bars(groups, "GPU time with several jobs, of GPU time held", of_held("shared"), "share"),
        bars(groups, "Speed beside others, of that alone", figure("mean_shared_speed"), "share"),
        bars(groups, "Most jobs at once on a GPU", figure("most_jobs_together")),
        bars(groups, "GPU time at risk of too little memory, of that shared", at_risk, "share"),
    )
    panels = tuple(panel for panel in every if panel is not None)
    shown = Figure(
        key="sharing",
        title="Jobs on the same GPUs",
        caption=(
            "Speeds are means over jobs while they had partners, weighted by GPU time. Memory is "
            "at risk where jobs together need more than 90 % of a GPU's, or where that is not "
            "known of all of them. The file of jobs names each job's partners."
        ),
        panels=panels,
    )
    return (shown,)


def figure(name: str) -> Callable[[ReplayResult], float]:
    """A figure of a run's summary; NaN where it has none."""

    def value(run: ReplayResult) -> float:
        found = run.summary.get(name)
        return math.nan if found is None else float(found)

    return value


def jobs_with_partners(run: ReplayResult) -> float:
    """Jobs that ever shared GPUs, of all."""
    return figure("jobs_with_partners")(run) / len(run.jobs) if len(run.jobs) else math.nan


def of_held(name: str) -> Callable[[ReplayResult], float]:
    """GPU-seconds of a kind, over those that jobs held."""

    def value(run: ReplayResult) -> float:
        held = float(run.jobs.gpu_seconds.sum())
        held += figure("unneeded_gpu_seconds")(run) - figure("counted_twice_gpu_seconds")(run)
        return figure(f"{name}_gpu_seconds")(run) / held if held > 0 else math.nan

    return value


def at_risk(run: ReplayResult) -> float:
    """Shared GPU-seconds in which memory may not have been enough, of all shared ones."""
    risky = figure("memory_risk_gpu_seconds")(run) + figure("memory_unknown_gpu_seconds")(run)
    shared = figure("shared_gpu_seconds")(run)
    return risky / shared if shared > 0 else math.nan
