"""Which jobs ran beside which on the same GPUs, for how long, how fast, and in how much memory."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlsched.core.sums import ordered_sum
from dlsched.core.units import UnitTable
from simulate.shared_gpus import SharedGpus, Stretch

NAMED = 8  # partners of a job that are named; others are counted
TIGHT = 0.9  # of a GPU's memory, from which on a job may run out of it


def co_residence_columns(
    shared: SharedGpus, units: UnitTable, job_id: Sequence[str] | NDArray[Any]
) -> dict[str, NDArray[Any]]:
    """Columns of jobs; none where no job shared GPUs or needed only a part of them.

    `gpu_share` is the part of each GPU that a job needs. `beside` names the jobs that it shared its
    GPUs with, the longest first, `shared_seconds` says for how long it had any, `shared_speed` how
    fast it was then, relative to alone, and `gpu_memory_peak` how much of the memory of a GPU it
    and its partners needed at most (NaN where that is not known of all of them).
    """
    found: dict[str, NDArray[Any]] = {}
    if units.says_shares:
        found["gpu_share"] = np.where(units.gpu_share > 0, units.gpu_share, 1.0)
    if not shared.stretches:
        return found
    count = len(units)
    seconds, progress = np.zeros(count), np.zeros(count)
    memory = np.full(count, -math.inf)
    partners: dict[int, Counter[int]] = {}
    for each in shared.stretches:
        for row, speed in zip(each.rows, each.speeds, strict=True):
            seconds[row] += each.end - each.start
            progress[row] += (each.end - each.start) * speed
            memory[row] = np.maximum(memory[row], each.memory)  # NaN stays
            beside = partners.setdefault(row, Counter())
            for other in each.rows:
                if other != row:
                    beside[other] += each.end - each.start  # type: ignore[assignment]  # seconds
    names = np.full(count, "", np.object_)
    for row, beside in partners.items():
        names[row] = _named([str(job_id[other]) for other, _ in beside.most_common()])
    found["beside"] = names
    found["shared_seconds"] = seconds
    found["shared_speed"] = np.divide(
        progress, seconds, out=np.full(count, np.nan), where=seconds > 0
    )
    found["gpu_memory_peak"] = np.where(np.isinf(memory), np.nan, memory)
    return found


def _named(partners: list[str]) -> str:
    more = len(partners) - NAMED
    return " ".join(partners[:NAMED]) + (f" +{more}" if more > 0 else "")


def co_residence_figures(shared: SharedGpus, units: UnitTable) -> dict[str, Any]:
    """Figures of a run; none where no job shared GPUs or needed only a part of them.

    `shared_gpu_seconds` is the time of GPUs with several jobs, of which `memory_risk_gpu_seconds`
    had jobs that need more than nine tenths of its memory together, and
    `memory_unknown_gpu_seconds` jobs of which that is not known.
    """
    if not (shared.stretches or units.says_shares):
        return {}
    gpu_s = np.array([(each.end - each.start) * each.gpus for each in shared.stretches])
    memory = np.array([each.memory for each in shared.stretches])
    jobs = {row for each in shared.stretches for row in each.rows}
    return {
        "jobs_with_partners": len(jobs),
        "most_jobs_together": max((len(each.rows) for each in shared.stretches), default=1),
        "shared_gpu_seconds": float(gpu_s.sum()),
        "mean_shared_speed": _mean_speed(shared.stretches),
        "memory_risk_gpu_seconds": float(gpu_s[memory > TIGHT].sum()),
        "memory_unknown_gpu_seconds": float(gpu_s[np.isnan(memory)].sum()),
        "counted_twice_gpu_seconds": shared.counted_twice,
        "unneeded_gpu_seconds": shared.unneeded,
    }


def _mean_speed(stretches: Sequence[Stretch]) -> float | None:
    """The speed of jobs beside others relative to alone, weighted by GPU time."""
    weight = ordered_sum((each.end - each.start) * each.gpus * len(each.rows) for each in stretches)
    speed = ordered_sum(
        (each.end - each.start) * each.gpus * ordered_sum(each.speeds) for each in stretches
    )
    return speed / weight if weight and math.isfinite(speed) else None
