"""Which rows fit, by counting GPUs alone: whole orders decided in a few vector operations."""

from __future__ import annotations

import numpy as np

from dlsched.core.arrays import Bools, Ints


def choose_by_count(gangs: Ints, capacity: int) -> Bools:
    """Which rows of an order fit when each takes its GPUs in turn and misfits are skipped.

    Each pass takes the longest prefix that fits; what remains is smaller than the first misfit,
    so the number of passes is at most the number of distinct gang sizes.
    """
    if int(gangs.sum()) <= capacity:
        return np.ones(len(gangs), np.bool_)
    chosen = np.zeros(len(gangs), np.bool_)
    left = (gangs <= capacity).nonzero()[0]
    while left.size:
        used = gangs[left].cumsum()
        fit = int(used.searchsorted(capacity, side="right"))
        chosen[left[:fit]] = True
        capacity -= used.item(fit - 1)
        left = left[fit + 1 :]
        left = left[gangs[left] <= capacity]
    return chosen


def prefix_by_count(gangs: Ints, capacity: int) -> Bools:
    """Which rows of an order fit before the first that does not."""
    return np.asarray(np.cumsum(gangs) <= capacity)
