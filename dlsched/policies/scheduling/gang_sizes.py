"""Elastic gangs: how many GPUs a row may have, and from chosen numbers to placements.

Shared by policies that choose only the number of GPUs of each row. A row that keeps its number
keeps its GPUs and pays nothing; all others leave first and are then placed again, small gangs
before large ones. A row with unknown scaling keeps the gang that it asked for.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dlsched.core.allocation import Refused
from dlsched.core.arrays import Bools, Floats, Ints, Rows
from dlsched.core.units import Units
from dlsched.core.walk.walk import Walk


class Bounds(NamedTuple):
    """The fewest and most GPUs that rows may have, if they have any."""

    least: Ints
    most: Ints


def bounds_of(units: Units, known: Bools) -> Bounds:
    """The fewest and most GPUs of each row; rows of unknown scaling have their gang or none."""
    table, rows, gang = units.table, units.rows, units.gang
    low, high = table.min_gpus[rows], table.max_gpus[rows]
    least = np.where(known & (low >= 0), np.maximum(low, 1), gang)
    most = np.where(known & (high >= 0), high, gang)
    return Bounds(np.minimum(least, most), most)


def capacity(units: Units, walk: Walk, pool: int) -> int:
    """GPUs that can be divided among the rows of a pool: the free ones, and those they hold."""
    held = 0 if not walk.may_preempt else int(units.gpus_now.sum())
    return walk.free_gpus(pool) + held


def share_by_pool(units: Units) -> list[tuple[int, Rows]]:
    """(Pool, positions of its units), in order; each pool is divided by itself."""
    pools = units.pool
    first = pools.item(0) if len(units) else 0
    if (pools == first).all():
        return [(first, np.arange(len(units)))]
    return [(int(pool), np.flatnonzero(pools == pool)) for pool in np.unique(pools)]


def resize(walk: Walk, units: Units, sizes: Ints) -> None:
    """Resize rows to chosen numbers of GPUs.

    A row that cannot be placed with its number gets the largest smaller number that can be placed,
    after all other rows have been placed. A size of 0 means no GPUs.
    """
    before = units.gpus_now
    changed = np.flatnonzero(sizes != before)
    rows = units.rows
    for place in changed[before[changed] > 0].tolist():
        walk.suspend(int(rows[place]))
    wanted = sizes[changed]
    order = np.argsort(wanted, kind="stable")
    homeless: list[tuple[int, Refused]] = []
    for place in changed[order[wanted[order] > 0]].tolist():
        placed = walk.place(int(rows[place]), int(sizes[place]))
        if isinstance(placed, Refused):
            homeless.append((place, placed))
    for place, why in homeless:
        _place_fewer(walk, int(rows[place]), int(sizes[place]), why)
    for place in np.flatnonzero(sizes == 0).tolist():
        walk.refuse(int(rows[place]), Refused("Resources", "other jobs got the GPUs"))


def _place_fewer(walk: Walk, row: int, size: int, why: Refused) -> None:
    """Try smaller and smaller numbers of GPUs, where the row permits them."""
    low = walk.table.min_gpus.item(row)
    least = max(low, 1) if low >= 0 else size
    for gpus in range(size - 1, least - 1, -1):
        placed = walk.place(row, gpus)
        if not isinstance(placed, Refused):
            return
        why = placed
    walk.refuse(row, why)


def has_known_scaling(rates: Floats) -> Bools:
    """Which rows have a known scaling: at least one known rate."""
    known: Bools = np.logical_not(np.isnan(rates).all(axis=1))
    return known
