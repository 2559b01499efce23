"""Conservative backfill: a job may start before others if it delays none of them.

Source: Feitelson & Weil, IPPS 1998. Every job gets a reservation when it arrives: the earliest time
at which its GPUs are free for as long as it is predicted to run. The plan is made anew, in order of
submission, when a job ends earlier or later than predicted; where predictions are wrong, that is at
nearly each end. So a plan has to be cheap: what runs is entered at once, and the search for a
job's time begins where that of an easier job has ended.

Durations are in seconds. GPUs are counted by pool, as in `backfill`.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from typing import Any

import numpy as np

from dlsched.core.allocation import Refused
from dlsched.core.arrays import Floats, Ints, Rows, carried
from dlsched.core.cluster.calendar import FreeSteps
from dlsched.core.context import RoundContext
from dlsched.core.options import NoOptions
from dlsched.core.scheduling import SchedulingPolicy
from dlsched.core.units import Units
from dlsched.core.walk.walk import Walk
from dlsched.policies.scheduling.backfill import clock_text, predicted_ends

UNPLANNED = math.nan


class Reservations(FreeSteps):
    """What a pool has free beside the reservations made, each at its earliest time.

    GPUs are only taken. So a job starts no earlier than one that was asked for before it and wants
    neither more GPUs nor a longer time.
    """

    def __init__(self, gpus: int, *, start: float = 0.0) -> None:
        super().__init__(gpus, start=start)
        # by GPUs: lengths asked for, and the start found for each; both ascend
        self._found: dict[int, tuple[list[float], list[float]]] = {}

    def run(self, gpus: Ints, ends: Floats) -> None:
        """Enter what runs from the first moment on, before anything is reserved."""
        order = np.argsort(ends)
        times, first = np.unique(ends[order], return_index=True)
        back = np.add.reduceat(gpus[order], first) if len(first) else gpus
        free = self.gpus - int(gpus.sum()) + np.cumsum(back)
        ends_some_time = np.isfinite(times)
        self._times += times[ends_some_time].tolist()
        self._free = [self.gpus - int(gpus.sum()), *free[ends_some_time].tolist()]

    def reserve(self, gpus: int, length: float, now: float) -> float:
        """Take GPUs for so long, as early as they are free; returns the start, inf if never."""
        start = self._known_start(gpus, length, now)
        if start < math.inf:
            start = self.earliest_start(gpus, length, not_before=start)
        if start < math.inf:
            self._note(gpus, length, start)
            if length > 0:
                self.take(gpus, start, start + length)
        return start

    def _known_start(self, gpus: int, length: float, now: float) -> float:
        """No job that wants so much can start before this."""
        known = now
        for fewer, (lengths, starts) in self._found.items():
            if fewer <= gpus and (k := bisect_right(lengths, length)) and starts[k - 1] > known:
                known = starts[k - 1]
        return known

    def _note(self, gpus: int, length: float, start: float) -> None:
        lengths, starts = self._found.setdefault(gpus, ([], []))
        at = bisect_left(lengths, length)
        if at and starts[at - 1] >= start:
            return
        past = bisect_right(starts, start, lo=at)  # longer ones that start no later: told by this
        lengths[at:past], starts[at:past] = [length], [start]


class Conservative(SchedulingPolicy[NoOptions]):
    """Every job gets a reservation when it arrives, and no job may delay it.

    The plan is kept from decision to decision; it is made again, in order of submission, when a job
    ends earlier or later than planned.
    """

    name = "conservative"
    summary = "FIFO with backfill that delays no job (conservative)"
    at_limits = "planned"
    needs = frozenset({"predicted_work"})

    def __init__(self, options: NoOptions) -> None:
        super().__init__(options)
        self._plans: dict[int, Reservations] = {}  # by pool
        self._planned: Rows = np.zeros(0, np.int64)  # waiting and running rows
        self._start: Floats = np.zeros(0)  # by row
        self._end: Floats = np.zeros(0)
        self._gone_until = -math.inf  # planned ends of rows that are no longer in the table

    def allocate(self, units: Units, ctx: RoundContext, walk: Walk) -> None:
        """Keep the plan or make a new one, then start the jobs that are due."""
        more = max(len(ctx.table) - len(self._start), 0)
        self._start, self._end = (
            np.concatenate([column, np.full(more, UNPLANNED)])
            for column in (self._start, self._end)
        )
        queue = units[np.argsort(units.submit_time, kind="stable")]
        running = ctx.running
        if self._is_off(queue, running, ctx) or self._is_passed(queue, walk):
            self._plan_anew(running, ctx)
            self._book(queue, queue.remaining_work, ctx, walk)
        else:
            new = queue[np.isnan(self._end[queue.rows])]
            self._book(new, new.predicted_work, ctx, walk)
        mark = walk.mark()
        while True:
            start = self._start[queue.rows]
            all_started, over = self._start_due(queue, start, ctx, walk)
            if not over:
                break
            walk.rollback(mark)  # what they had reserved is for others
            queue = queue[~ctx.table.marks(over)[queue.rows]]
            self._plan_anew(running, ctx)
            self._book(queue, queue.remaining_work, ctx, walk)
        later = start[start > ctx.now]
        walk.wake_at(float(later.min(initial=np.inf)))
        if all_started and (len(later) or len(self._planned)):
            walk.stable_until(float(min(later.min(initial=np.inf), self._end[self._planned].min())))
        else:
            walk.stable_until(-np.inf)

    def _is_off(self, queue: Units, running: Units, ctx: RoundContext) -> bool:
        """Whether something happened that the plan did not predict."""
        for pool, plan in self._plans.items():
            if plan.gpus != ctx.pools.capacity(pool, ctx.occupancy):
                return True
        is_there = np.zeros(len(ctx.table), np.bool_)
        is_there[queue.rows] = is_there[running.rows] = True
        gone = self._planned[~is_there[self._planned]]
        if max(self._gone_until, self._end[gone].max(initial=-np.inf)) > ctx.now:
            return True  # ended early
        self._planned = self._planned[is_there[self._planned]]
        self._start[gone] = self._end[gone] = UNPLANNED
        # runs longer than planned or unplanned, or did not start when planned
        longer = ~(self._end[running.rows] > ctx.now)
        return bool(longer.any() or (self._start[queue.rows] < ctx.now).any())

    def _is_passed(self, queue: Units, walk: Walk) -> bool:
        """Whether the plan has jobs that came after one for which its ceiling has room only now."""
        if walk.tenancy is None:
            return False
        unplanned = np.isnan(self._end[queue.rows])
        last_planned = int(np.flatnonzero(~unplanned).max(initial=0))
        passed = queue[:last_planned][unplanned[:last_planned]]
        asked = zip(passed.rows.tolist(), passed.gang.tolist(), strict=True)
        return any(walk.tenancy.over_ceiling(row, gang) is None for row, gang in asked)

    def _plan_anew(self, running: Units, ctx: RoundContext) -> None:
        """A plan of what runs."""
        self._plans.clear()
        self._gone_until = -math.inf
        self._start[self._planned] = self._end[self._planned] = UNPLANNED
        self._planned = running.rows
        ends: Floats = predicted_ends(running, ctx)
        self._start[running.rows], self._end[running.rows] = ctx.now, ends
        goes_on = ends > ctx.now  # in numbers: a time may be too large for a short rest to count
        for pool in np.unique(running.pool).tolist():
            here = goes_on & (running.pool == pool)
            self._plan_of(pool, ctx).run(running.gpus_now[here], ends[here])

    def _plan_of(self, pool: int, ctx: RoundContext) -> Reservations:
        if pool not in self._plans:
            capacity = ctx.pools.capacity(pool, ctx.occupancy)
            self._plans[pool] = Reservations(capacity, start=ctx.now)
        return self._plans[pool]

    def _book(self, units: Units, durations: Floats, ctx: RoundContext, walk: Walk) -> None:
        """Reserve in this order; a job over its tenant's ceiling gets no reservation yet.

        Those that start now count for the ceiling at once. A job that is planned for now and then
        refused costs a new plan, and each plan would bring forward further jobs of its tenant.
        """
        for plan in self._plans.values():
            plan.forget_before(ctx.now)
        lengths = np.maximum(durations, 0.0) + ctx.restart_overhead
        plans = {pool: self._plan_of(pool, ctx) for pool in np.unique(units.pool).tolist()}
        tenancy = walk.tenancy
        starts, booked = np.zeros(len(units)), np.ones(len(units), np.bool_)
        due: list[tuple[int, int]] = []
        columns = (units.rows, units.gang, units.pool, lengths)
        asked = zip(*(column.tolist() for column in columns), strict=True)
        for at, (row, gang, pool, length) in enumerate(asked):
            over = None if tenancy is None else tenancy.over_ceiling(row, gang)
            if over is not None:
                walk.refuse(row, over)
                booked[at] = False
                continue
            starts[at] = plans[pool].reserve(gang, length, ctx.now)
            if tenancy is not None and starts[at] <= ctx.now:
                tenancy.count(row, gang)
                due.append((row, gang))
        if tenancy is not None:
            for row, gang in due:
                tenancy.count(row, -gang)
        rows = units.rows[booked]
        self._start[rows] = starts[booked]
        self._end[rows] = starts[booked] + lengths[booked]
        self._planned = np.concatenate([self._planned, rows])

    def _start_due(
        self, queue: Units, start: Floats, ctx: RoundContext, walk: Walk
    ) -> tuple[bool, list[int]]:
        """Start the jobs that are due.

        Returns:
            whether all of them found their GPUs, and the rows that a quota refused after all.
        """
        all_started, over = True, []
        planned = ~np.isnan(start)  # the others have their refusal
        due = zip(queue.rows[planned].tolist(), start[planned].tolist(), strict=True)
        for row, moment in due:
            if moment > ctx.now:
                text = f"planned to start at {clock_text(moment)}"
                walk.refuse(row, Refused("Resources", text))
            elif isinstance(placed := walk.place(row), Refused):
                walk.refuse(row, placed)
                all_started = False
                if placed.reason == "Quota":
                    over.append(row)
        return all_started, over

    def renumber(self, old: Rows, finished_gone: int) -> None:
        """Follow a table that was packed; a row that is gone counts as ended early."""
        stays = np.isin(self._planned, old)
        self._gone_until = self._end[self._planned[~stays]].max(initial=self._gone_until)
        new = np.flatnonzero(np.isin(old, self._planned) & (old >= 0))
        self._planned = new
        self._start = carried(self._start, old, UNPLANNED)
        self._end = carried(self._end, old, UNPLANNED)

    def state_dict(self) -> dict[str, Any]:
        """The plan: rows as [row, start, end], free GPUs as steps, by pool."""
        rows = self._planned
        return {
            "planned": [
                list(each)
                for each in zip(
                    rows.tolist(), self._start[rows].tolist(), self._end[rows].tolist(), strict=True
                )
            ],
            "gone_until": self._gone_until,
            "plans": {pool: plan.steps() for pool, plan in self._plans.items()},
            "capacity": {pool: plan.gpus for pool, plan in self._plans.items()},
        }

    def load_state_dict(self, state: Any) -> None:
        """Continue with the plan."""
        table = np.array(state["planned"], np.float64).reshape(-1, 3)
        self._planned = table[:, 0].astype(np.int64)
        size = int(self._planned.max(initial=-1)) + 1
        self._start, self._end = np.full(size, UNPLANNED), np.full(size, UNPLANNED)
        self._start[self._planned], self._end[self._planned] = table[:, 1], table[:, 2]
        self._gone_until = float(state["gone_until"])
        self._plans = {
            int(pool): Reservations.of_steps(int(state["capacity"][pool]), steps)
            for pool, steps in state["plans"].items()
        }
