"""The figures of a run, by the names of the `--summary-out` contract."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dlsched.core.arrays import Bools
from simulate.results import JobOutcomes

__all__ = ["finite_or_none", "job_figures"]


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
