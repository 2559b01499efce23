"""Elastic gangs: how many GPUs a row may have, and from chosen numbers to placements.

Policies that only choose how many GPUs each row gets share this: who keeps its number keeps its
GPUs and pays nothing; all others leave first and are then placed anew, small gangs before large
ones. Rows of which nobody knows how they scale stay at the gang they asked for.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dlsched.core.allocation import Refused
from dlsched.core.arrays import Bools, Floats, Ints, Rows
from dlsched.core.units import Units
from dlsched.core.walk import Walk

__all__ = ["Bounds", "bounds_of", "capacity", "resize", "share_by_pool"]


class Bounds(NamedTuple):
    """How many GPUs rows may have, if any."""

    least: Ints
    most: Ints


def bounds_of(units: Units, known: Bools) -> Bounds:
    """The fewest and most GPUs of each row.

    Args:
        units: the rows.
        known: of which rows it is known how they scale; others have their gang or nothing.
    """
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
    """Positions of the units of each pool, in order; pools of one cluster are divided apart."""
    pools = units.pool
    first = pools.item(0) if len(units) else 0
    if (pools == first).all():
        return [(first, np.arange(len(units)))]
    return [(int(pool), np.flatnonzero(pools == pool)) for pool in np.unique(pools)]


def resize(walk: Walk, units: Units, sizes: Ints) -> None:
    """Carry out chosen numbers of GPUs.

    A row that cannot be placed at its new number gets the next smaller one that can be, when all
    others have theirs.

    Args:
        walk: the decision's walk.
        units: rows.
        sizes: GPUs of each, 0 for none.
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
        walk.refuse(int(rows[place]), Refused("Resources", "the GPUs went to other jobs"))


def _place_fewer(walk: Walk, row: int, size: int, why: Refused) -> None:
    """Try smaller and smaller gangs, where the row may have such."""
    low = walk.table.min_gpus.item(row)
    least = max(low, 1) if low >= 0 else size
    for gpus in range(size - 1, least - 1, -1):
        placed = walk.place(row, gpus)
        if not isinstance(placed, Refused):
            return
        why = placed
    walk.refuse(row, why)


def shown(rates: Floats) -> Bools:
    """Rows of which it is known how they scale: some rate is."""
    known: Bools = np.logical_not(np.isnan(rates).all(axis=1))
    return known
