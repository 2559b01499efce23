"""From X to leases, round by round: the job furthest behind its share goes first.

With f_ij the part of all time given on type j in this window that job i received, the priority of
job i on type j is X_ij / f_ij (Gavel, section 5). There is one queue over all types, and each job
runs in one place.

Beyond the paper: a job that has no share yet may use idle GPUs at once; GPUs of a type that are
left over go first to jobs with the largest deficit on other types; a job moves from a slow type to
a faster one that is idle; a job that keeps its type keeps its GPUs; time counts as it was received,
whatever happened in between; a new X does not erase the time received. A job in a part of another's
GPUs receives time, and X divides time among the others alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dlsched.core.allocation import Refused
from dlsched.core.arrays import Floats, Rows
from dlsched.core.cluster.occupancy import Placement
from dlsched.core.context import RoundContext
from dlsched.core.units import Units
from dlsched.core.walk.walk import Walk
from dlsched.policies.heterogeneous.gpu_types import GpuTypes
from dlsched.policies.heterogeneous.time_shares import Source
from dlsched.policies.scheduling.gavel.mechanisms.service_ledger import ALONE, ServiceLedger

WORTH_MOVING = 1.01  # a job moves to an idle type that is at least so many times as fast
DECIMALS = 6  # deficits are compared to these: smaller differences come from adding them up
WITHOUT_ROUNDS_S = 360.0  # seconds between two decisions where there are no rounds


@dataclass(slots=True)
class Assignment:
    """Where jobs are to run.

    Attributes:
        where: (GPU type, partner) by row, in the order of the choice.
        room: GPUs of each type that are still free.
        fixed: rows that stay as they are, whatever X says.
    """

    room: list[int]
    fixed: set[int]
    where: dict[int, tuple[int, int]] = field(default_factory=dict)


class CorrectedRounds:
    """The mechanism, and what it remembers from round to round."""

    def __init__(self, source: Source, *, resolve_s: float = 0.0, window_s: float = 1920.0) -> None:
        """Choose the intervals.

        `source` computes X, again after `resolve_s` seconds at the earliest; after `window_s`
        seconds received time is counted from 0 again.
        """
        self._source = source
        self._resolve_s, self._window_s = resolve_s, window_s
        self._gpu_types = GpuTypes()
        self._ledger = ServiceLedger(())
        self._given: Floats = np.zeros(0)
        self._dirty = False
        self._solved_at = -np.inf
        self._window_from = -np.inf
        self._updated_at = 0.0

    def decide(self, rows: Rows, ctx: RoundContext, walk: Walk) -> None:
        """One round, or between two rounds a fill of idle GPUs."""
        rows = np.sort(rows)
        aside = {row: where for where, there in walk.aside.items() for row in there}
        head_start = (ctx.round_length or WITHOUT_ROUNDS_S) / 2
        self._update_ledger(rows, aside, ctx, head_start)
        if ctx.mode == "full":
            if self._dirty and ctx.now - self._solved_at >= self._resolve_s and len(rows):
                self._solve(rows, ctx, head_start)
            if ctx.now - self._window_from >= self._window_s:
                self._begin_window(ctx, head_start)
        speed = self._usable_speed(ctx)
        assigned = self._free_room(ctx, walk)
        assigned.fixed.update(aside)
        queue = self._assign_entitled(assigned, speed, ctx)
        self._assign_leftovers(assigned, speed, ctx)
        self._carry_out(assigned, queue, speed, ctx, walk)
        if not ctx.round_length and len(rows):
            walk.wake_at(ctx.now + WITHOUT_ROUNDS_S)

    # -- the service ledger -----

    def _update_ledger(
        self, rows: Rows, aside: Mapping[int, Placement], ctx: RoundContext, head_start: float
    ) -> None:
        """Credit the time received, enter new jobs and remove those that have ended."""
        changed, ledger = self._gpu_types.update(ctx), self._ledger
        every = np.sort(np.concatenate([rows, np.fromiter(aside, np.int64, len(aside))]))
        if ledger.types != self._gpu_types.types:
            ledger = self._ledger = ledger.with_types(self._gpu_types.types, head_start)
            self._given = np.zeros(len(ledger.types))
        still_here = np.isin(ledger.rows, every)
        if not still_here.all():
            ledger.align(ledger.rows[still_here], head_start)
            changed = True
        type_of, now = self._gpu_types.of_node, {**ctx.occupancy.held, **aside}
        late = [row for row in ledger.nowhere() if row in now]
        ledger.note_late({row: type_of(now[row].nodes[0]) for row in late})
        held = Units(ctx.table, ledger.rows, ctx.now).held_s
        self._given += ledger.credit(held, ctx.now - self._updated_at)
        self._updated_at = ctx.now
        newcomers = len(every) - len(ledger)
        if ledger.align(every, head_start):
            self._given += newcomers * head_start
            ledger.held = Units(ctx.table, every, ctx.now).held_s
            changed = True
        is_aside = ~np.isin(every, rows)
        changed |= bool((is_aside != ledger.aside).any())
        ledger.aside = is_aside
        adapted = any(change.kind == "adapt" for change in ctx.changes)
        self._dirty = self._dirty or changed or adapted

    def _solve(self, rows: Rows, ctx: RoundContext, head_start: float) -> None:
        shares = self._source(rows, self._gpu_types.types, ctx)
        self._ledger.enter_shares(shares, head_start)
        self._dirty = False
        self._solved_at = ctx.now

    def _begin_window(self, ctx: RoundContext, head_start: float) -> None:
        self._ledger.begin_window(head_start)
        lines = len(self._ledger) + len(self._ledger.first)
        self._given = np.full(len(self._ledger.types), lines * head_start)
        self._window_from = ctx.now

    def _usable_speed(self, ctx: RoundContext) -> Floats:
        """Steps/s where a job may run, 0 elsewhere, [line, type]."""
        rows = self._ledger.rows
        speed = ctx.perf.rate(rows, self._gpu_types.types, ctx.table.gang[rows])
        return np.where(self._gpu_types.usable_by(rows, ctx), speed, 0.0)

    # -- which jobs run where ----------------------------------------------------------------------

    def _free_room(self, ctx: RoundContext, walk: Walk) -> Assignment:
        """GPUs that are free once all jobs that may be moved have left; others are fixed."""
        occupancy, gpu_types = ctx.occupancy, self._gpu_types
        assigned = Assignment(room=gpu_types.free(ctx), fixed=set())
        running = np.fromiter(occupancy.held, np.int64, len(occupancy.held))
        protected = walk.is_protected(running).tolist()
        for row, is_protected in zip(running.tolist(), protected, strict=True):
            types = gpu_types.of_placement(occupancy.held[row])
            drains = any(occupancy.draining >> node & 1 for node in occupancy.held[row].nodes)
            if ctx.mode == "fill" or is_protected or drains:
                assigned.fixed.add(row)
            elif len(types) == 1:
                others = occupancy.beside.get(row)
                if others is None or row < others[0]:
                    assigned.room[types.pop()] += int(ctx.table.gpus_now[row])
        return assigned

    def _assign_entitled(self, assigned: Assignment, speed: Floats, ctx: RoundContext) -> list[int]:
        """Assign jobs that have a share, by priority; returns their rows, most urgent first."""
        ledger = self._ledger
        alone = len(ledger)
        x = np.concatenate([ledger.x, ledger.pair_x])
        received = np.concatenate([ledger.received, ledger.pair_received])
        both = np.minimum(speed[ledger.lines(ledger.first)], speed[ledger.lines(ledger.second)])
        may = (x > 0) & (np.concatenate([speed, both]) > 0)
        with np.errstate(divide="ignore", invalid="ignore"):
            priority = np.where(may, x * self._given / received, 0.0)
        deficit = np.zeros(priority.shape)
        deficit[:alone] = np.round(ledger.deficit, DECIMALS)
        entry, gpu_type = np.nonzero(may)
        order = np.lexsort((entry, -deficit[entry, gpu_type], -priority[entry, gpu_type]))
        one = np.concatenate([ledger.rows, ledger.first])
        other = np.concatenate([np.full(alone, ALONE), ledger.second])
        gang: list[int] = ctx.table.gang[one].tolist()
        one_of, other_of = one.tolist(), other.tolist()
        queue: dict[int, None] = {}
        entries, types = entry[order].tolist(), gpu_type[order].tolist()
        chosen, room, fixed = assigned.where, assigned.room, assigned.fixed
        for place, where in zip(entries, types, strict=True):
            row, partner = one_of[place], other_of[place]
            queue[row] = None
            if row in chosen or row in fixed or gang[place] > room[where]:
                continue
            if partner != ALONE:
                queue[partner] = None
                if partner in chosen or partner in fixed:
                    continue
                chosen[partner] = (where, row)
            chosen[row] = (where, partner)
            room[where] -= gang[place]
        return list(queue)

    def _assign_leftovers(self, assigned: Assignment, speed: Floats, ctx: RoundContext) -> None:
        """Assign what is left: to jobs with the largest deficit, then new ones, where fastest."""
        if not any(assigned.room):
            return
        for row, usable in self._by_need(assigned, speed, ctx):
            gang = int(ctx.table.gang[row])
            for gpu_type in usable:
                if gang <= assigned.room[gpu_type]:
                    assigned.where[row] = (gpu_type, ALONE)
                    assigned.room[gpu_type] -= gang
                    break
            if not any(assigned.room):
                return
        self._upgrade(assigned, speed, ctx)

    def _upgrade(self, assigned: Assignment, speed: Floats, ctx: RoundContext) -> None:
        """Move jobs from a slow type to a faster one that is idle, the largest gain first."""
        alone = [row for row, (_, partner) in assigned.where.items() if partner == ALONE]
        rows = np.sort(np.array(alone, np.int64))
        if not rows.size:
            return
        speed = speed[self._ledger.lines(rows)]
        types = np.array([assigned.where[row][0] for row in rows.tolist()], np.int64)
        now = speed[np.arange(len(rows)), types]
        gain = np.where(np.array(assigned.room) > 0, speed / now[:, None], 0.0)
        line, gpu_type = np.nonzero(gain > WORTH_MOVING)
        order = np.lexsort((gpu_type, line, -gain[line, gpu_type]))
        moved: set[int] = set()
        for place in order.tolist():
            row, where = int(rows[line[place]]), int(gpu_type[place])
            gang = int(ctx.table.gang[row])
            if row in moved or gang > assigned.room[where]:
                continue
            moved.add(row)
            assigned.room[assigned.where[row][0]] += gang
            assigned.room[where] -= gang
            assigned.where[row] = (where, ALONE)

    def _by_need(
        self, assigned: Assignment, speed: Floats, ctx: RoundContext
    ) -> list[tuple[int, list[int]]]:
        """Rows that are not assigned, largest deficit first, with the types where they can run.

        The type on which a row runs comes first, then the others from fast to slow.
        """
        ledger = self._ledger
        owed = np.round(ledger.deficit.sum(axis=1), DECIMALS)
        deficit = np.where(ledger.x.any(axis=1), owed, -np.inf)
        order = np.lexsort((np.arange(len(ledger)), -deficit))
        free = np.array(
            [r not in assigned.where and r not in assigned.fixed for r in ledger.rows.tolist()]
        )
        lines = order[free[order]] if len(order) else order
        usable = np.argsort(-speed[lines], axis=1, kind="stable").tolist()
        found = []
        for line, types in zip(lines.tolist(), usable, strict=True):
            row, now = int(ledger.rows[line]), int(ledger.gpu_type[line])
            runs = row in ctx.occupancy.held
            wanted = [gpu_type for gpu_type in types if speed[line, gpu_type] > 0]
            if runs and now in wanted:
                wanted = [now, *(gpu_type for gpu_type in wanted if gpu_type != now)]
            found.append((row, wanted))
        return found

    # -- carrying it out --------------------------------------------------------------------------

    def _carry_out(
        self, assigned: Assignment, queue: list[int], speed: Floats, ctx: RoundContext, walk: Walk
    ) -> None:
        """Suspend and start jobs; a job that the placement refuses may use what is left over.

        `queue` are rows with a share, most urgent first; `speed` is steps/s, [line, type].
        """
        occupancy = ctx.occupancy
        stays = {
            row
            for row in occupancy.held
            if row in assigned.fixed or self._stays(row, assigned, ctx)
        }
        for row in [row for row in occupancy.held if row not in stays]:
            walk.suspend(row)
        rank = {row: place for place, row in enumerate(queue)}
        late = len(rank)
        starts = [row for row in assigned.where if row not in occupancy.held]
        starts.sort(key=lambda row: -int(ctx.table.gang[row]))
        for row in starts:
            gpu_type, partner = assigned.where[row]
            if row in occupancy.held:
                continue
            if partner in occupancy.held and assigned.where[partner] == (gpu_type, row):
                walk.share(row, partner)
                continue
            placed = walk.place(row, nodes=self._gpu_types.nodes[gpu_type])
            if isinstance(placed, Refused) and placed.reason != "Quota":
                weaker = [
                    other
                    for other in stays
                    if other not in assigned.fixed
                    and assigned.where[other][0] == gpu_type
                    and rank.get(other, late) > rank.get(row, late)
                ]
                weaker.sort(key=lambda other: (-rank.get(other, late), -other))
                self._preempt(row, gpu_type, weaker, stays, walk)
        self._fill(speed, assigned, ctx, walk)
        self._note(ctx)

    def _stays(self, row: int, assigned: Assignment, ctx: RoundContext) -> bool:
        """Whether a row already runs on its assigned type and with its assigned partner."""
        gpu_type, partner = assigned.where.get(row, (None, ALONE))
        if gpu_type is None:
            return False
        occupancy = ctx.occupancy
        if self._gpu_types.of_placement(occupancy.held[row]) != {gpu_type}:
            return False
        beside = occupancy.beside.get(row, ())
        if partner == ALONE:
            # when two co-located jobs are separated, the first one keeps the GPUs
            return not beside or not any(
                other < row and self._keeps_gpus(other, assigned, ctx) for other in beside
            )
        return not beside or beside == (partner,)

    def _keeps_gpus(self, row: int, assigned: Assignment, ctx: RoundContext) -> bool:
        nodes = ctx.occupancy.held[row].nodes
        return row in assigned.where and self._gpu_types.of_node(nodes[0]) == assigned.where[row][0]

    def _preempt(
        self, row: int, gpu_type: int, weaker: list[int], stays: set[int], walk: Walk
    ) -> None:
        """Suspend less urgent jobs until the placement accepts a row; undo it if it never does.

        This is needed where enough GPUs are free, but the row asks for particular ones. `weaker`
        are rows that may be suspended, least urgent first; those that are suspended leave `stays`.
        """
        start, suspended = walk.mark(), []
        for other in weaker:
            if walk.occupancy.beside.get(other):
                continue
            walk.suspend(other)
            suspended.append(other)
            if not isinstance(walk.place(row, nodes=self._gpu_types.nodes[gpu_type]), Refused):
                stays.difference_update(suspended)
                return
        walk.rollback(start)

    def _fill(self, speed: Floats, assigned: Assignment, ctx: RoundContext, walk: Walk) -> None:
        """Start waiting jobs on GPUs that are still free; tell the others why they wait."""
        held = ctx.occupancy.held
        assigned.where = {row: where for row, where in assigned.where.items() if row in held}
        waiting = [
            (row, types) for row, types in self._by_need(assigned, speed, ctx) if row not in held
        ]
        free = self._gpu_types.free(ctx)
        for row, types in waiting:
            gang = int(ctx.table.gang[row])
            refused = Refused("Priority", "other jobs are further behind their share of time")
            if not types:  # no type has enough GPUs for the gang: try a mix of types
                placed = walk.place(row) if gang <= sum(free) else None
                if isinstance(placed, Refused) or placed is None:
                    walk.refuse(row, placed or refused)
                else:
                    free = self._gpu_types.free(ctx)
                continue
            for gpu_type in types:
                if gang > free[gpu_type]:
                    continue
                placed = walk.place(row, nodes=self._gpu_types.nodes[gpu_type])
                if not isinstance(placed, Refused):
                    free[gpu_type] -= gang
                    break
                refused = placed
            else:
                walk.refuse(row, refused)

    def _note(self, ctx: RoundContext) -> None:
        """Note in the ledger where jobs run from now on."""
        beside, type_of = ctx.occupancy.beside, self._gpu_types.of_node
        running = {}
        for row, placement in ctx.occupancy.held.items():
            others = beside.get(row)
            running[row] = (type_of(placement.nodes[0]), others[0] if others else ALONE)
        self._ledger.note_running(running)

    def rename(self, place: Mapping[int, int]) -> None:
        """Follow a table that was packed: `place` is the new row number by the old one."""
        self._ledger.rename(place)

    def state_dict(self) -> dict[str, Any]:
        """Everything that decides future rounds."""
        return {
            "books": self._ledger.state_dict(),
            "given": self._given.tolist(),
            "dirty": self._dirty,
            "solved_at": self._solved_at,
            "window_from": self._window_from,
            "looked_at": self._updated_at,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict`."""
        self._ledger = ServiceLedger.of_state(state["books"])
        self._given = np.array(state["given"], np.float64)
        self._dirty = bool(state["dirty"])
        self._solved_at = float(state["solved_at"])
        self._window_from = float(state["window_from"])
        self._updated_at = float(state["looked_at"])
