"""What a trace is like, in numbers fit for JSON: seconds, shares of 1, None for "not known"."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulate.traces.trace import FloatColumn, TextColumn, Trace

SCHEMA = "dlsched.trace/1"
HOUR_S = 3600.0
PERCENTILES = (5, 10, 25, 50, 75, 90, 95, 99)


def offered_load(trace: Trace, gpus: int) -> float | None:
    """Return GPU-seconds asked for over the cluster's GPU-seconds from first to last submit.

    None when all jobs come at once; jobs of unknown size or duration are left out.
    """
    span_s = _span_s(trace)
    return float(np.nansum(trace.num_gpus * trace.duration)) / (gpus * span_s) if span_s else None


def describe(trace: Trace, *, gpus: int | None = None) -> dict[str, Any]:
    """Describe a trace of one job or more; the GPUs of a cluster add the load it would be to it."""
    gpu_seconds = np.nan_to_num(trace.num_gpus * trace.duration)
    span_s = _span_s(trace)
    description: dict[str, Any] = {
        "schema": SCHEMA,
        "name": trace.name,
        "source": trace.source,
        "jobs": len(trace),
        "first_submit": _instant(trace),
        "zone": trace.zone or None,
        "submit_span_s": span_s,
        "gpu_hours": float(gpu_seconds.sum()) / HOUR_S,
        "mean_demand_gpus": float(gpu_seconds.sum()) / span_s if span_s else None,
        "sizes": _by_size(trace.num_gpus, gpu_seconds),
        "duration_s": _durations(trace.duration),
        "arrivals": _arrivals(trace.submit_time),
        "statuses": _by_text(trace.status, gpu_seconds),
        "users": len(set(trace.user.tolist()) - {""}),
        "vcs": _by_text(trace.vc, gpu_seconds),
        "dropped": dict(trace.dropped),
        "notes": list(trace.notes),
    }
    if gpus is not None:
        description["cluster_gpus"] = gpus
        description["offered_load"] = offered_load(trace, gpus)
    return description


def _span_s(trace: Trace) -> float:
    return float(trace.submit_time[-1] - trace.submit_time[0]) if len(trace) else 0.0


def _instant(trace: Trace) -> str | None:
    """RFC 3339 in UTC; without Z when the log doesn't say its zone."""
    if trace.epoch is None:
        return None
    try:
        moment = datetime.fromtimestamp(trace.epoch, tz=UTC)
    except (OverflowError, ValueError, OSError):
        return None  # beyond the calendar
    return moment.strftime("%Y-%m-%dT%H:%M:%S") + ("" if trace.zone == "naive" else "Z")


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _by_size(num_gpus: FloatColumn, gpu_seconds: FloatColumn) -> list[dict[str, Any]]:
    known = ~np.isnan(num_gpus)
    sizes, index = np.unique(num_gpus[known], return_inverse=True)
    time = np.bincount(index, weights=gpu_seconds[known], minlength=len(sizes))
    return [
        {
            "num_gpus": int(size) if size.is_integer() else size,
            "jobs": count,
            "share": _share(count, len(num_gpus)),
            "gpu_time_share": _share(seconds, float(gpu_seconds.sum())),
        }
        for size, count, seconds in zip(
            sizes.tolist(), np.bincount(index).tolist(), time.tolist(), strict=True
        )
    ]


def _by_text(column: TextColumn, gpu_seconds: FloatColumn) -> list[dict[str, Any]]:
    """Shares by value, the most frequent first; jobs without a value are left out."""
    names = sorted(set(column.tolist()) - {""})
    index_of = {name: index for index, name in enumerate(names)}
    index = np.array([index_of.get(name, -1) for name in column.tolist()], dtype=np.int64)
    known: NDArray[np.bool_] = index >= 0
    count = np.bincount(index[known], minlength=len(names)).tolist()
    time = np.bincount(index[known], weights=gpu_seconds[known], minlength=len(names)).tolist()
    shares = [
        {
            "name": name,
            "jobs": count[at],
            "share": _share(count[at], len(column)),
            "gpu_time_share": _share(time[at], float(gpu_seconds.sum())),
        }
        for at, name in enumerate(names)
    ]
    return sorted(shares, key=lambda each: (-each["jobs"], each["name"]))


def _durations(duration: FloatColumn) -> dict[str, float | None]:
    known = duration[~np.isnan(duration)]
    if not known.size:
        return dict.fromkeys(("mean", *(f"p{each}" for each in PERCENTILES), "max"))
    values = np.percentile(known, PERCENTILES).tolist()
    return {
        "mean": float(known.mean()),
        **{f"p{each}": value for each, value in zip(PERCENTILES, values, strict=True)},
        "max": float(known.max()),
    }


def _arrivals(submit_time: FloatColumn) -> dict[str, float | None]:
    """Describe gaps, and the counts of the full hours."""
    gaps = np.diff(submit_time)
    mean_gap = float(gaps.mean()) if gaps.size else 0.0
    # Only hours with jobs are listed: a stray time may lie years from the others.
    hour, count = np.unique((submit_time - submit_time[:1]) // HOUR_S, return_counts=True)
    full_hours = float(hour[-1])
    per_hour = float(count[:-1].sum()) / full_hours if full_hours else 0.0
    variance = float((count[:-1] ** 2).sum()) / full_hours - per_hour**2 if full_hours else 0.0
    return {
        "mean_gap_s": mean_gap if gaps.size else None,
        "gap_cv": float(gaps.std()) / mean_gap if mean_gap else None,
        "jobs_per_hour": per_hour if full_hours else None,
        "hourly_variance_over_mean": variance / per_hour if per_hour else None,
    }
