"""Lucid's Packing Analyze Model: which class of packing a job belongs to.

A class says how much of its speed a job loses beside others: `tiny` hardly any, `medium` some,
`jumbo` much. For measured workloads it follows from the speeds of all their pairs; for any other
job a small tree tells it from what profiling shows. The tree's limits are options; their defaults
are `learned_limits` of 66 workloads on an RTX 3090 (see docs/policies/lucid.md).
"""

from __future__ import annotations

import numpy as np

from dlsched.core.arrays import Bools, Floats, Ints
from dlsched.policies.learning.tree import grow
from dlsched.policies.scheduling.lucid.options import LucidOptions

TINY, MEDIUM, JUMBO = 0, 1, 2
NAMES = ("tiny", "medium", "jumbo")
LITTLE, SOME = 0.95, 0.85  # mean speeds beside others, relative to alone


def classes_of_pairs(speed: Floats) -> Ints:
    """Classes by the mean speed of a workload beside all others, relative to alone."""
    return np.where(speed < SOME, JUMBO, np.where(speed < LITTLE, MEDIUM, TINY))


def learned_limits(gpu_util: Floats, memory_util: Floats | None, classes: Ints) -> dict[str, float]:
    """The limits of the tree by the options' names, each the one that divides best in its place.

    Args:
        gpu_util: of measured workloads, as in `classes_of_use`, all known.
        memory_util: likewise; None: it was not measured.
        classes: of the same workloads.

    Returns:
        those that can be told: a limit needs workloads on both sides.
    """
    is_jumbo, is_tiny = classes == JUMBO, classes == TINY
    found = {"jumbo_util": _best_limit(gpu_util, is_jumbo)}
    asked, limit = gpu_util, found["jumbo_util"]
    if memory_util is not None:
        asked, limit = memory_util, _best_limit(memory_util, is_jumbo)
        found["jumbo_memory_util"] = limit
    below = ~(asked > limit)
    found["tiny_util"] = _best_limit(gpu_util[below], is_tiny[below])
    return {name: limit for name, limit in found.items() if not np.isnan(limit)}


def _best_limit(values: Floats, is_so: Bools) -> float:
    """The number that best divides what is so from what is not; NaN where none does."""
    root = grow({"use": values}, is_so.astype(np.int64), depth=1) if len(values) else None
    return np.nan if root is None or root.low is None else root.limit


def classes_of_use(gpu_util: Floats, memory_util: Floats, options: LucidOptions) -> Floats:
    """Classes by what was measured of jobs, NaN where too little is known.

    Args:
        gpu_util: per cent of the time in which a GPU computes; NaN where unknown.
        memory_util: per cent of the time in which its memory is read or written; likewise.
        options: the limits.
    """
    busy = np.where(
        np.isnan(memory_util),
        gpu_util > options.jumbo_util,
        memory_util > options.jumbo_memory_util,
    )
    found = np.where(busy, JUMBO, np.where(gpu_util <= options.tiny_util, TINY, MEDIUM))
    return np.where(np.isnan(gpu_util), np.nan, found)
