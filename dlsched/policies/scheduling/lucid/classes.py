"""Lucid's Packing Analyze Model: which class of packing a job belongs to.

A class says how much of its speed a job loses beside others: `tiny` hardly any, `medium` some,
`jumbo` much. For measured workloads it follows from the speeds of all their pairs; for any other
job a small tree tells it from what profiling shows. The tree's limits are options; their defaults
were learned by `learned` from 66 workloads on an RTX 3090 (see docs/policies/lucid.md).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dlsched.core.arrays import Floats, Ints
from dlsched.policies.learning.tree import Node, grow
from dlsched.policies.scheduling.lucid.options import LucidOptions

TINY, MEDIUM, JUMBO = 0, 1, 2
NAMES = ("tiny", "medium", "jumbo")
LITTLE, SOME = 0.95, 0.85  # mean speeds beside others, relative to alone
COST = 1e-4  # of pruning


def classes_of_pairs(speed: Floats) -> Ints:
    """Classes by the mean speed of a workload beside all others, relative to alone."""
    return np.where(speed < SOME, JUMBO, np.where(speed < LITTLE, MEDIUM, TINY))


def learned(features: Mapping[str, Floats], classes: Ints, *, depth: int = 2) -> Node:
    """The tree that tells classes of measured workloads from features that profiling shows."""
    return grow(features, classes, depth=depth, cost=COST)


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
