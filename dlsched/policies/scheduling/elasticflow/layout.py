"""From chosen numbers of GPUs to exact GPUs.

Jobs of a power of two GPUs, placed largest first, always fit without a gap (buddy allocation). Jobs
that keep their number keep their GPUs, as long as the others fit between them; else all are placed
anew, and a job that comes to lie on its own GPUs again stays there.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlsched.core.allocation import Refused
from dlsched.core.arrays import Ints
from dlsched.core.units import Units
from dlsched.core.walk.walk import Walk
from dlsched.policies.scheduling.elasticflow.planner import by_deadline
from dlsched.policies.scheduling.elasticflow.planning import Demand

PLANNED = Refused("Planned", "its deadline can be kept without GPUs now, and others need them")


def lay_out(
    walk: Walk, units: Units, sizes: Ints, *, anew: bool, largest_first: bool = True
) -> None:
    """Give jobs their numbers of GPUs.

    Args:
        walk: of the decision.
        units: the jobs, none of them protected.
        sizes: GPUs of each; 0: none.
        anew: all jobs lose their GPUs first.
        largest_first: whole nodes are placed first, not in the order of the jobs.
    """
    mark = walk.mark()
    changed = np.ones(len(units), np.bool_) if anew else sizes != units.gpus_now
    homeless = _place(walk, units, sizes, np.flatnonzero(changed), largest_first)
    if homeless and not changed.all():
        walk.rollback(mark)
        homeless = _place(walk, units, sizes, np.arange(len(units)), largest_first)
    for row, why in homeless.items():
        walk.refuse(row, why)
    for row in units.rows[sizes == 0].tolist():
        walk.refuse(row, PLANNED)


def start_waiting(walk: Walk, units: Units, demands: Sequence[Demand]) -> None:
    """Start waiting jobs on idle GPUs until the next plan, the earliest deadline first.

    A job gets as few as keep its deadline by themselves, or else as many as there are.
    """
    for place in by_deadline(demands):
        demand, row = demands[place], units.rows.item(place)
        free = walk.free_gpus(units.table.pool.item(row))
        sizes = [size for size in demand.sizes.gpus if size <= free]
        enough = (s for s in sizes if demand.seconds(demand.left, s, demand.restart) <= demand.due)
        if sizes:
            placed = walk.place(row, next(enough, sizes[-1]))
            if isinstance(placed, Refused):
                walk.refuse(row, placed)


def _place(
    walk: Walk, units: Units, sizes: Ints, places: Ints, largest_first: bool
) -> dict[int, Refused]:
    """Take the GPUs of some jobs and place them; says which have no place."""
    rows, before = units.rows[places], units.gpus_now[places]
    for row in rows[before > 0].tolist():
        walk.suspend(row)
    wanted, homeless = sizes[places], {}
    whole = np.minimum(wanted, walk.occupancy.cluster.largest_node)  # these leave no gaps
    if not largest_first:
        whole = np.zeros_like(whole)
    for place in np.argsort(-whole, kind="stable").tolist():
        if wanted[place] > 0:
            placed = walk.place(rows.item(place), wanted.item(place))
            if isinstance(placed, Refused):
                homeless[rows.item(place)] = placed
    return homeless
