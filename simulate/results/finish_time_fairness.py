"""Finish-time fairness ρ after the fact: how long jobs took, over what would have been fair.

ρ above 1 means that sharing cost a job more than an equal split would have. There are several
definitions, which must not be compared with each other: where ρ is printed, its variant is named.

    shockwave-static  JCT / (E · max(1, jobs of the trace / GPUs))
    shockwave-themis  JCT / (E · max(1, mean number of active jobs in its life / GPUs))
    gavel-report      JCT / JCT of the same job in a run of the policy isolated

E is the job's time on its gang if it never waits; where batch sizes adapt, that of all epochs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dlsched.core.arrays import Bools, Floats
from simulate.results.tables import JobOutcomes, ReplayResult

ISOLATED = "isolated"
VARIANTS = {
    "gavel-report": "JCT over the JCT of the same job under the policy isolated",
    "shockwave-static": "JCT over exclusive run time × max(1, jobs / GPUs)",
    "shockwave-themis": "JCT over exclusive run time × max(1, mean active jobs / GPUs)",
}


def shockwave_rho(jobs: JobOutcomes, crowd: Floats | float) -> Floats:
    """ρ = JCT / (E · max(1, crowd)); NaN where a job did not finish or E is unknown.

    `crowd` is the jobs for each GPU of the cluster, of the trace or around each job.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        rho = jobs.jct / (jobs.duration * np.maximum(1.0, crowd))
    found: Floats = np.where((jobs.duration > 0) & (jobs.status == "completed"), rho, np.nan)
    return found


def mean_active(submit: Floats, finish: Floats) -> Floats:
    """Mean number of jobs between submit and finish over each job's own such time.

    A job with a finish of NaN stayed to the end.
    """
    ends = np.where(np.isnan(finish), np.inf, finish)
    times = np.unique(np.concatenate([submit, ends[np.isfinite(ends)]]))
    if not times.size:
        return np.zeros(0)
    count = np.searchsorted(np.sort(submit), times, side="right") - np.searchsorted(
        np.sort(ends), times, side="right"
    )
    area = np.concatenate([[0.0], np.cumsum(count[:-1] * np.diff(times))])
    first, last = (
        np.searchsorted(times, submit),
        np.searchsorted(times, np.minimum(ends, times[-1])),
    )
    span = times[last] - times[first]
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = (area[last] - area[first]) / span
    found: Floats = np.where(span > 0, mean, count[first])
    return found


def _figures(rho: Floats) -> dict[str, float | None]:
    known = rho[~np.isnan(rho)]
    if not known.size:
        return {"max": None, "mean": None, "unfair_fraction": None}
    return {
        "max": float(known.max()),
        "mean": float(known.mean()),
        "unfair_fraction": float((known > 1).mean()),
    }


def fairness_variants(
    jobs: JobOutcomes, counted: Bools, gpus: int, active: Floats | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The headline's figures with its variant, and those of every variant that can be known.

    Args:
        jobs: the outcomes.
        counted: jobs that the figures are about.
        gpus: of the cluster.
        active: mean number of active jobs around each job; made from the outcomes when None.
    """
    crowd = int(counted.sum()) / gpus if gpus else math.nan
    static = shockwave_rho(jobs, crowd)[counted]
    around = mean_active(jobs.submit_time, jobs.finish_time) if active is None else active
    themis = shockwave_rho(jobs, around / gpus if gpus else math.nan)[counted]
    every = {"shockwave-static": _figures(static), "shockwave-themis": _figures(themis)}
    return {"variant": "shockwave-static", **every["shockwave-static"]}, every


def against_isolated(result: ReplayResult, isolated: ReplayResult) -> ReplayResult:
    """The same result with `gavel-report` as its ρ, job by job in a column `rho`.

    `isolated` is the run of the policy isolated on the same trace, cluster and load.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        rho: Floats = result.jobs.jct / isolated.jobs.jct
    figures = _figures(rho[result.jobs.counted])
    every: Mapping[str, Any] = result.summary.get("finish_time_fairness_variants", {})
    summary = {
        **result.summary,
        "finish_time_fairness": {"variant": "gavel-report", **figures},
        "finish_time_fairness_variants": {**every, "gavel-report": figures},
    }
    jobs = replace(result.jobs, extra={**result.jobs.extra, "rho": rho})
    return replace(result, jobs=jobs, summary=summary)


def variants_of(results: Sequence[ReplayResult]) -> list[str]:
    """The variants that the headlines of some runs are of."""
    named = (result.summary.get("finish_time_fairness") for result in results)
    return list(dict.fromkeys(str(each["variant"]) for each in named if isinstance(each, Mapping)))
