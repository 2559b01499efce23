"""The policy `muri-antman`: AntMan as Muri's authors simulate it, to compare Muri with it.

A guaranteed job has GPUs that no other guaranteed job has. One that finds too few keeps those, and
collects the rest while it waits. An opportunistic job uses any GPUs without another opportunistic
job, the least used first, all at once or none. No job is ever stopped. Source: the artifact of Muri
(SIGCOMM 2022). AntMan itself is the policy `antman`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlsched.core.allocation import Refused
from dlsched.core.arrays import Rows
from dlsched.core.cluster.occupancy import Placement
from dlsched.core.context import RoundContext
from dlsched.core.options import NoOptions
from dlsched.core.scheduling import SchedulingPolicy
from dlsched.core.units import Units, UnitTable
from dlsched.core.walk.walk import Walk
from dlsched.policies.scheduling.muri.gang_collecting import collected
from dlsched.policies.scheduling.muri.least_used import GpuUse
from dlsched.policies.scheduling.ordering import order_by

OPPORTUNISTIC = 1.0  # in the column `guarantee`
NOTHING = Placement((), ())
TOO_FEW = Refused("Resources", "too few GPUs without another opportunistic job")


class MuriAntMan(SchedulingPolicy[NoOptions]):
    """Guaranteed jobs collect their gangs; then opportunistic jobs use what is least used."""

    name = "muri-antman"
    summary = "AntMan as Muri's authors simulate it: waiting jobs collect their gangs"
    preemptive = False
    rests = False  # it counts what jobs use that leave
    leaves_gpus_free = True

    def __init__(self, options: NoOptions) -> None:
        super().__init__(options)
        self._use = GpuUse()
        self.memories = (self._use,)

    @property
    def pairs_units(self) -> bool:
        """It decides itself which units share GPUs."""
        return True

    def allocate(self, units: Units, ctx: RoundContext, walk: Walk) -> None:
        """Guaranteed jobs, then the others, each in order of arrival."""
        self._use.follow(walk.occupancy)
        rows = units.rows[self.order_at_limits(units, ctx)]
        walk.ranked(rows)
        first = len(rows) - int((units.guarantee == OPPORTUNISTIC).sum())
        self._collect(rows[:first].tolist(), walk)
        self._share(rows[first:].tolist(), walk)

    def order_at_limits(self, units: Units, ctx: RoundContext) -> Rows:
        """Opportunistic jobs last, each in order of arrival."""
        is_other = units.guarantee == OPPORTUNISTIC
        return order_by(is_other.astype(np.float64), units.submit_time)

    def _collect(self, rows: Sequence[int], walk: Walk) -> None:
        """Guaranteed jobs start where their gangs are complete, and keep what there is of others.

        Where none runs and each lacks GPUs that others keep, only the first may keep any.
        """
        waiting = [row for row in rows if not self._starts(row, walk)]
        occupancy = walk.occupancy
        if len(waiting) > 1 and len(occupancy.held) == len(occupancy.opportunistic):
            for row in waiting[1:]:
                if row in occupancy.reserved:
                    walk.unreserve(row)
            for row in waiting:
                self._starts(row, walk)

    def _starts(self, row: int, walk: Walk) -> bool:
        """Start a guaranteed job if its gang is complete; else it keeps what it has found."""
        if _wants_a_layout(row, walk.table):
            return _starts_at_once(row, walk)
        gang, reserved = walk.table.gang.item(row), walk.occupancy.reserved
        if row not in reserved and not walk.free_gpus(walk.table.pool.item(row)):
            walk.refuse(row, Refused.too_few_free(gang, 0))
            return False
        refusal = None if walk.tenancy is None else walk.tenancy.over_ceiling(row, gang)
        found = collected(row, walk.unreserve(row) if row in reserved else NOTHING, walk)
        if refusal is None and found.gpus == gang and walk.has_host_for(row, found):
            walk.place_exactly(row, found)
            return True
        if refusal is None and found.gpus:
            walk.reserve(row, found, whole=False)
        walk.refuse(row, refusal or Refused("Resources", f"keeps {found.gpus} of its {gang} GPUs"))
        return False

    def _share(self, rows: Sequence[int], walk: Walk) -> None:
        """Opportunistic jobs start on the least used GPUs, where there are enough."""
        self._use.follow(walk.occupancy)
        for row in rows:
            if _wants_a_layout(row, walk.table) or not walk.ctx.may_share:
                _starts_at_once(row, walk)
            elif (placement := self._use.least_used(row, walk)) is not None:
                walk.start_opportunistic(row, placement)
                self._use.follow(walk.occupancy)
            else:
                walk.refuse(row, TOO_FEW)


def _wants_a_layout(row: int, table: UnitTable) -> bool:
    """Must the GPUs of a job lie in a way of its own? Such jobs neither collect nor share."""
    return row in table.shapes or row in table.whole_nodes or row in table.homes


def _starts_at_once(row: int, walk: Walk) -> bool:
    placed = walk.place(row)
    if isinstance(placed, Refused):
        walk.refuse(row, placed)
        return False
    return True
