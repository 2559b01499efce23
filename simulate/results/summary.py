"""The figures of a run (the contract of `--summary-out`), and when its reader should doubt them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlsched.core.arrays import Bools, Floats
from dlsched.core.errors import plural
from dlsched.core.rewards import RewardCurve
from dlsched.core.round.steps import Parts
from dlsched.core.units import UnitTable
from simulate.results.tables import JobOutcomes

UNPAIRED = (
    "what jobs use of a GPU is not known; share_score or gpu_util, and gpu_memory_gib, say it, in "
    "the trace or in --profiles",
    "how fast jobs run together is not known; --profiles with these pairs say it",
)
FAR_APART = 0.25  # Kolmogorov-Smirnov distance from which a sample does not describe a trace


def finite_or_none(value: float) -> float | None:
    """A number, or None when it cannot be known."""
    return float(value) if math.isfinite(value) else None


def job_figures(jobs: JobOutcomes, counted: Bools) -> dict[str, Any]:
    """Counts, JCT percentiles, delays and makespan over the counted jobs.

    Interruptions are of the run as a whole, whichever jobs are counted: they are what a policy
    costs the cluster. Percentiles are linear, over completed jobs; the makespan is last finish -
    first submit.
    """
    status = jobs.status[counted]
    done = counted & (jobs.status == "completed")
    jct = jobs.jct[done]
    started = counted & ~np.isnan(jobs.first_start_time)
    percentiles = np.percentile(jct, [50, 95, 99]) if jct.size else np.full(3, math.nan)
    submits = jobs.submit_time[counted]
    makespan = float(jobs.finish_time[done].max() - submits.min()) if jct.size else math.nan
    delays = jobs.queueing_delay[started]
    return {
        "jobs": len(status),
        "completed": int((status == "completed").sum()),
        "refused": int((status == "refused").sum()),
        "unfinished": int((status == "unfinished").sum()),
        "avg_jct": finite_or_none(float(jct.mean()) if jct.size else math.nan),
        "median_jct": finite_or_none(percentiles[0]),
        "p95_jct": finite_or_none(percentiles[1]),
        "p99_jct": finite_or_none(percentiles[2]),
        "makespan": finite_or_none(makespan),
        "avg_queueing_delay": finite_or_none(float(delays.mean()) if delays.size else math.nan),
        "preemptions": int(jobs.preemptions.sum()),
        "restarts": int(np.maximum(jobs.starts - 1, 0).sum()),
        "migrations": int(jobs.migrations.sum()),
        "resizes": int(jobs.resizes.sum()),
        "lost_seconds": float(jobs.lost_seconds.sum()),
    }


def distribution_distance(one: Floats, other: Floats) -> float:
    """Kolmogorov-Smirnov distance: the largest gap between two cumulative distributions."""
    values = np.concatenate([one, other])
    gap = np.searchsorted(np.sort(one), values, side="right") / len(one)
    gap = gap - np.searchsorted(np.sort(other), values, side="right") / len(other)
    return float(np.abs(gap).max())


def cautions(
    parts: Parts, units: UnitTable, true_work: Floats, *, typed: bool, fed: bool
) -> list[str]:
    """Sentences about what a policy needs to know and does not: speeds, samples of this trace.

    Args:
        parts: of the run.
        units: all of them.
        true_work: of each unit.
        typed: are there GPU types whose speeds are not known?
        fed: do the nodes say how many processors and how much memory they have?
    """
    said: list[str] = []
    if parts.host is not None and not fed:
        said.append(
            f"{parts.host.name} gives no processors and no memory: the nodes do not say what they "
            "have (cluster files do, with `cpus` and `memory_gb`)"
        )
    if np.isfinite(units.deadline).any() and not parts.scheduling.knows_deadlines:
        said.append("deadlines only count in the figures: the policy does not know of them")
    curves = units.extra.get("sla", np.zeros(0)).tolist()
    rising = {text for text in set(curves) if text and RewardCurve.of_text(text).rises}
    if count := sum(text in rising for text in curves):
        said.append(f"the reward curves of {plural(count, 'job')} rise: ending later is worth more")
    if typed and parts.scheduling.weighs_types:
        said.append(
            "all GPU types are taken for alike: no --profiles say how fast jobs are on them"
        )
    service = true_work * units.gang
    for f in fields(parts.scheduling.options):
        sample = getattr(parts.scheduling.options, f.name)
        if f.metadata.get("from_file") is not True or not sample or not len(service):
            continue
        distance = distribution_distance(np.array(sample), service)
        if distance > FAR_APART:
            said.append(
                f"{parts.scheduling.name}: the {f.name} does not describe this trace's GPU-seconds "
                f"(the distributions are {distance:.0%} apart); what it teaches may mislead"
            )
    return said


def unpaired(columns: Mapping[str, Mapping[int, float]], jobs: NDArray[np.object_]) -> list[str]:
    """Sentences about jobs that a policy did not pack for want of knowledge.

    Args:
        columns: what policies noted of jobs, by row: `unpaired`, a place in `UNPAIRED` from 1 on,
            and `packed` if the job was packed later.
        jobs: their names.
    """
    noted, packed = columns.get("unpaired", {}), columns.get("packed", {})
    said = []
    for place, unknown in enumerate(UNPAIRED, 1):
        rows = sorted(row for row, why in noted.items() if why == place and row not in packed)
        if rows:
            first = jobs[rows[0]]
            said.append(
                f"{plural(len(rows), 'job')} could not be packed (first: job {first}): {unknown}"
            )
    return said
