"""AntMan (Xiao et al., OSDI 2020): GPUs have owners, and others use what the owners leave.

A *guaranteed* job consumes its tenant's quota and gets GPUs that no other guaranteed job has, as if
opportunistic jobs were not there. An *opportunistic* one consumes none: it starts beside owners,
where a GPU is little used, and the node policy sees to it that no owner is slowed. An *auto* job is
guaranteed if it can start soon enough; else it starts as an opportunistic one, and becomes
guaranteed where it is as soon as its GPUs and the quota allow.

Ours: guaranteed jobs are placed by any placement (the published plug-in shuffles the free GPUs of a
node), the first that must wait reserves what comes free, and bounds of memory are parts of a GPU's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dlsched.core.allocation import Refused
from dlsched.core.arrays import Rows
from dlsched.core.context import RoundContext
from dlsched.core.memory import rows
from dlsched.core.options import option
from dlsched.core.scheduling import SchedulingPolicy
from dlsched.core.units import Units, UnitTable
from dlsched.core.walk.room_under_limits import OVER_LIMIT
from dlsched.core.walk.walk import Walk
from dlsched.policies.scheduling.antman.leftovers import Leftovers
from dlsched.policies.scheduling.ordering import order_by

OPPORTUNISTIC, AUTO = 1.0, 2.0  # in the column `guarantee`
BEHIND = Refused("Resources", "waits behind a guaranteed job that needs the next free GPUs")
NO_CANDIDATE = Refused("Resources", "no GPU leaves enough for an opportunistic job")


@dataclass(frozen=True, slots=True, kw_only=True)
class AntManOptions:
    """Guaranteed, opportunistic and auto jobs."""

    most_used: float = option(
        80.0, "percent of a GPU's time below which one more job may use it", low=0.0, high=100.0
    )
    most_memory: float = option(
        0.9, "part of a GPU's memory below which one more job may use it", low=0.0, high=1.0
    )
    most_opportunistic: int = option(4, "opportunistic jobs on a GPU at most", low=1)
    look_s: float = option(
        30.0, "seconds until GPUs are looked at again for opportunistic jobs that wait", low=1.0
    )
    patience_s: float = option(
        60.0,
        "seconds that an auto job would wait for its own GPUs rather than use others'",
        low=0.0,
    )


class AntMan(SchedulingPolicy[AntManOptions]):
    """Owners first; then others in what they leave."""

    name = "antman"
    summary = "guaranteed jobs own their GPUs, opportunistic ones use what is left (AntMan)"
    at_limits = "tries"
    preemptive = False
    rests = False
    node_policy = "antman-node"
    leaves_gpus_free = True

    _owning: list[int] = rows(list, optional=True)  # auto jobs that own their GPUs

    @property
    def pairs_units(self) -> bool:
        """It decides itself which units share GPUs."""
        return True

    def allocate(self, units: Units, ctx: RoundContext, walk: Walk) -> None:
        """Owners and promotions in order of arrival, then opportunistic jobs."""
        table, occupancy = ctx.table, ctx.occupancy
        for row in self._owning:
            if row in occupancy.opportunistic:  # a live world does not keep what a job has become
                walk.promote(row)
        beside = np.array(
            [row for row in occupancy.opportunistic if _is(row, AUTO, table)], np.int64
        )
        rows = _in_order(np.concatenate([units.rows, beside]), table)
        walk.ranked(rows)
        kind = table.guarantee[rows]
        hurried = self._owners(rows[kind != OPPORTUNISTIC].tolist(), ctx, walk)
        self._owning = [
            r for r in occupancy.held if _is(r, AUTO, table) and r not in occupancy.opportunistic
        ]
        opportunistic = sorted(
            [*hurried, *rows[kind == OPPORTUNISTIC].tolist()], key=rows.tolist().index
        )
        if opportunistic:
            self._start_opportunistic(opportunistic, walk)
        waits = any(row not in occupancy.held for row in opportunistic)
        walk.stable_until(-math.inf if waits or len(beside) or hurried else math.inf)
        if waits or hurried:
            walk.wake_at(ctx.now + self.options.look_s)

    def _owners(self, rows: list[int], ctx: RoundContext, walk: Walk) -> list[int]:
        """Guaranteed jobs get GPUs in order; returns the auto jobs that would wait too long.

        The first that finds too few GPUs keeps those that come free from the jobs behind it, unless
        only its tenant's quota is used up.
        """
        table, opportunistic = ctx.table, walk.occupancy.opportunistic
        hurried: list[int] = []
        ahead = 0  # GPUs that jobs before this one wait for
        for row in rows:
            if row in opportunistic:
                if not ahead:
                    walk.promote(row)
                continue
            placed = BEHIND if ahead else walk.place(row)
            if not isinstance(placed, Refused):
                continue
            walk.refuse(row, placed)
            if _is(row, AUTO, table) and self._would_wait(row, ahead, ctx, walk):
                hurried.append(row)  # it needs no free GPUs: no other waits for it
            elif placed.reason != "Quota":
                ahead += table.gang.item(row)
        return hurried

    def _would_wait(self, row: int, ahead: int, ctx: RoundContext, walk: Walk) -> bool:
        """Is an auto job expected to wait longer for GPUs of its own than it has patience?

        By counting: the jobs that hold GPUs end when they are expected to, and those before it get
        theirs first. What is not known of running jobs takes for ever.
        """
        held = walk.occupancy.held
        holders = np.array([r for r in held if r not in walk.occupancy.opportunistic], np.int64)
        left = Units(ctx.table, holders, ctx.now).remaining_work
        left = np.where(np.isnan(left), np.inf, left)
        free = walk.free_gpus(ctx.table.pool.item(row)) - ahead - ctx.table.gang.item(row)
        for position in np.argsort(left, kind="stable").tolist():
            if free >= 0:
                break
            if left[position] > self.options.patience_s:
                return True
            free += held[int(holders[position])].gpus
        return free < 0

    def _start_opportunistic(self, rows: list[int], walk: Walk) -> None:
        """Opportunistic jobs start where a GPU leaves enough."""
        options = self.options
        room = int(min(options.most_opportunistic, walk.ctx.perf.most_together - 1))
        leftovers = Leftovers(walk, options.most_used, options.most_memory, room, self._owning)
        for row in rows:
            if walk.is_over_limit(row):
                walk.refuse(row, OVER_LIMIT)
                continue
            placement = leftovers.place(row)
            if placement is None:
                walk.refuse(row, NO_CANDIDATE)
            else:
                walk.start_opportunistic(row, placement)


def _is(row: int, kind: float, table: UnitTable) -> bool:
    return bool(table.guarantee[row] == kind)


def _in_order(rows: Rows, table: UnitTable) -> Rows:
    """By priority, then by submit time, then by number."""
    rows = np.sort(rows)
    return rows[order_by(-np.nan_to_num(table.priority[rows]), table.submit_time[rows])]
