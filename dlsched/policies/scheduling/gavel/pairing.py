"""Which jobs may share GPUs: all of equal scale that are known to fit together somewhere."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlsched.core.arrays import Ints
from dlsched.core.throughputs import ThroughputTable
from dlsched.policies.scheduling.gavel.problem import Pairs

__all__ = ["all_pairs"]


def all_pairs(table: ThroughputTable, kinds: Ints, scales: Ints, types: Sequence[str]) -> Pairs:
    """Pairs of jobs, in the order of their positions.

    Args:
        table: throughputs.
        kinds: codes in the table, by job.
        scales: GPUs, by job.
        types: GPU types, in the order of the columns.
    """
    first, second = np.triu_indices(len(kinds), 1)
    alike = scales[first] == scales[second]
    first, second = first[alike], second[alike]
    speed = table.pair_speeds(kinds[first], kinds[second], scales[first], types)
    fits = speed.any(axis=(1, 2))
    return Pairs(first[fits], second[fits], speed[fits])
