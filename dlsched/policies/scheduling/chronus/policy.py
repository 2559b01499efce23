"""The policy `chronus`: admitted jobs with deadlines hold leases; the others use what is left.

At the start of each lease a plan says which admitted jobs hold it. At each slot arrivals are
admitted if all their leases fit before their deadlines, and waiting jobs start on GPUs that no
lease holder uses; jobs with a lease take them back. Between two slots idle GPUs are filled.

Paper: see the package. Inputs: predicted work, gang, deadline (a job without one is best effort),
value; a trace may give a job several deadlines of falling value in a column `deadline_steps`
("6000:10 7200:8", seconds after the submit and value).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from dlsched.core.allocation import Grant, Refused
from dlsched.core.arrays import Floats, Ints, Rows
from dlsched.core.context import RoundContext
from dlsched.core.deadlines import BEST_EFFORT as BEST_EFFORT_KIND
from dlsched.core.deadlines import WORTH, deadline_steps
from dlsched.core.options import option
from dlsched.core.rewards import RewardCurve
from dlsched.core.scheduling import SchedulingPolicy
from dlsched.core.units import RUNNING, WAITING, Units
from dlsched.core.walk.walk import Walk
from dlsched.policies.highs import Limits
from dlsched.policies.scheduling.chronus.lease_record import (
    ACCEPTED,
    BEST_EFFORT,
    LOWEST,
    UNACCEPTED,
    UNSEEN,
    LeaseRecord,
)
from dlsched.policies.scheduling.chronus.leases import (
    Row,
    all_fit,
    greedy_plan,
    least_most,
    rounded_up,
)
from dlsched.policies.scheduling.chronus.program import best_plan

MINUTE_S = 60.0
SAME_S = 1.0  # live, a deadline is counted from a moment before the submit
ROWS_PER_HOUR = 1200  # of one program, per hour of lease
CELLS = 4_000  # rows times leases of one program: HiGHS then takes a tenth of a second, not minutes


@dataclass(frozen=True, slots=True, kw_only=True)
class ChronusOptions:
    """Chronus."""

    lease_s: float = option(1200.0, "seconds of a lease", low=60.0)
    slot_s: float = option(300.0, "seconds between two admissions", low=1.0)
    overhead_s: float = option(
        30.0, "seconds that a lease loses to a checkpoint and a restart on one GPU", low=0.0
    )
    margin: float = option(1.1, "how many times its predicted time a job is given", low=1.0)
    finish_short: bool = option(
        True, "jobs that end within a short lease (30 minutes at most) run to their end"
    )
    plan: Literal["program", "greedy"] = option(
        "program", "leases by the 0-1 program, or most valuable first, as late as possible"
    )
    present: Literal["adaptive", "free", "full"] = option(
        "adaptive",
        "the program keeps the present lease free, or fills it; adaptive: free while a job with a "
        "deadline is not admitted",
    )
    gap: float = option(1e-4, "relative distance from the optimum that is accepted", low=0.0)
    nodes: int = option(2000, "most nodes of the search tree of one program", low=1)
    solve_limit_s: float = option(
        5.0, "seconds for one program in a live cluster; then the best plan found is used", low=0.1
    )
    clock: Literal["exact", "slots"] = option(
        "exact",
        "slots: as the released simulator, work counts from the slot before a start, idle GPUs are "
        "filled in odd minutes only, and a start that fills costs nothing",
    )


@dataclass(slots=True)
class _Moment:
    """One decision, in minutes.

    Attributes:
        t: now.
        k: leases that have begun.
        total: GPUs of the cluster.
        free: GPUs that no job holds, as decided so far.
    """

    t: float
    k: int
    total: int
    free: int


class Chronus(SchedulingPolicy[ChronusOptions]):
    """Leases for jobs with deadlines."""

    name = "chronus"
    summary = "deadlines: admitted jobs hold planned leases, the others use what is left"
    needs: ClassVar[frozenset[str]] = frozenset({"predicted_work"})
    preemptive = True
    knows_deadlines = True
    rests = False

    def __init__(self, options: ChronusOptions) -> None:
        """Start with an empty record."""
        super().__init__(options)
        self._record = LeaseRecord()
        self.memories = (self._record,)

    # -- the round --------------------------------------------------------------------------------

    def allocate(self, units: Units, ctx: RoundContext, walk: Walk) -> None:
        """One decision: the boundary of a lease, a slot, or a fill between them."""
        self._record.reserve(len(ctx.table))
        options, now, record = self.options, ctx.now, self._record
        lease, slot = int(now // options.lease_s), int(now // options.slot_s)
        self._forget_ended(ctx)
        at_slot = ctx.mode == "full" and (slot > record.slot or lease > record.lease)
        if not at_slot:
            self._fill(ctx, walk)
        else:
            self._decide(lease, ctx, walk)
            record.slot = slot
        nothing_waits = not (len(ctx.active) > len(ctx.occupancy.held))
        upcoming = min((slot + 1) * options.slot_s, (lease + 1) * options.lease_s)
        if nothing_waits and ctx.mode == "full":
            upcoming = (lease + 1) * options.lease_s
        if not at_slot and self._fills_later(ctx):
            upcoming = min(upcoming, now + ctx.round_length)
        if len(ctx.active):
            walk.wake_at(upcoming)
        walk.stable_until(upcoming)

    def _decide(self, lease: int, ctx: RoundContext, walk: Walk) -> None:
        """Steps 1 to 4: clocks, the boundary, arrivals, the queue."""
        record, table = self._record, ctx.table
        occupancy = ctx.occupancy
        m = _Moment(
            t=ctx.now / MINUTE_S,
            k=lease + 1,
            total=occupancy.capacity_in(occupancy.open_nodes),
            free=ctx.free_gpus,
        )
        running = ctx.active[table.status[ctx.active] == RUNNING]
        running = record.in_order(running[record.kind[running] != UNSEEN])
        waiting = ctx.active[table.status[ctx.active] == WAITING]
        at_boundary = lease > record.lease
        self._count_work(running, ctx, at_boundary=at_boundary)
        pending = record.in_order(waiting[record.kind[waiting] != UNSEEN])
        kept = running
        if at_boundary:
            record.lease = lease
            kept = self._begin_lease(running, pending, m, ctx)
            pending = np.concatenate([pending, running])
            pending = pending[~np.isin(pending, kept)]
            m.free += int(table.gang[running].sum() - table.gang[kept].sum())
        fresh = ctx.active[record.kind[ctx.active] == UNSEEN]
        if len(fresh):
            self._arrive(fresh, m, ctx)
            pending = np.concatenate([pending, fresh[table.status[fresh] == WAITING]])
        wanted = self._serve(kept, pending, m, ctx)
        stays = np.isin(running, wanted)
        if not ctx.semantics.rejoin:  # a job that was suspended above is launched anew
            stays &= np.isin(running, kept)
        self._carry_out(running[~stays], wanted, ctx, walk)

    def _begin_lease(self, running: Rows, pending: Rows, m: _Moment, ctx: RoundContext) -> Rows:
        """Step 2: the jobs that hold the lease that begins now; all others are suspended."""
        record, table, lease = self._record, ctx.table, m.k - 1
        record.holds_lease[running] = False
        record.forced[running] = False
        self._settle_requests(running, ctx)
        known = np.concatenate([pending, running])
        record.to_the_end(known)
        accepted = known[record.kind[known] == ACCEPTED]
        planned = accepted[record.plannable[accepted] & (record.request[accepted] > 0)]
        self._plan(planned, lease, m, ctx)
        for row in accepted.tolist():
            if row not in record.plans:
                record.kind[row] = UNACCEPTED
        begun: list[int] = []
        for row in accepted.tolist():
            leases = record.plans.get(row)
            while leases and leases[0] <= lease:
                if leases[0] == lease:
                    begun.append(row)
                record.cancel_first(row, table.gang.item(row), 1)
        record.turned_down = bool((record.kind[known] == UNACCEPTED).any())
        holders = np.array(begun, np.int64)
        record.holds_lease[holders] = True
        record.request[holders] -= 1
        return holders

    def _plan(self, rows: Rows, lease: int, m: _Moment, ctx: RoundContext) -> None:
        """Step 2b: plan all jobs anew by the program, or reserve leases for those without any."""
        record, gang = self._record, ctx.table.gang
        if self.options.plan == "program" and self._plan_by_program(rows, lease, m, ctx):
            return
        unplanned = [row for row in rows.tolist() if row not in record.plans]
        requests = [one for row in unplanned for one in self._rows_of(row, lease, ctx)]
        for row, leases in greedy_plan(requests, m.total, record.booked_from(lease)).items():
            record.plan(row, gang.item(row), (leases + lease).tolist())

    def _plan_by_program(self, rows: Rows, lease: int, m: _Moment, ctx: RoundContext) -> bool:
        """Plan by the 0-1 program; False where it finds none, and all plans stay as they were."""
        record, options = self._record, self.options
        requests = {row: self._rows_of(row, lease, ctx) for row in rows.tolist()}
        self._leave_out_the_largest(requests)
        if sum(one.most for of in requests.values() for one in of) > CELLS:
            return False
        if not requests:
            return True
        booked = record.booked_from(lease)
        old = {row: record.plans[row] for row in requests if row in record.plans}
        fresh = [one for row, of in requests.items() if row not in old for one in of]
        start = {row: np.array(leases, np.int64) - lease for row, leases in old.items()}
        start |= greedy_plan(fresh, m.total, booked)
        for row in old:
            record.drop_plan(row, ctx.table.gang.item(row))
        keeps_free = options.present == "free" or (
            options.present == "adaptive" and record.turned_down
        )
        found = best_plan(
            [one for of in requests.values() for one in of],
            m.total,
            record.booked_from(lease),
            sigma=-1 if keeps_free else 1,
            limits=Limits(
                gap=options.gap,
                nodes=options.nodes,
                seconds=options.solve_limit_s if ctx.cpu_clock is not None else math.inf,
            ),
            start=start,
        )
        plans = old if found is None else {r: (of + lease).tolist() for r, of in found[0].items()}
        for row, leases in plans.items():
            record.plan(row, ctx.table.gang.item(row), leases)
        return found is not None

    def _leave_out_the_largest(self, requests: dict[int, list[Row]]) -> None:
        """While a program would be too large, the largest planned jobs keep their plans."""
        rows = sum(map(len, requests.values()))
        cells = sum(one.most for of in requests.values() for one in of)
        size = {row: (-of[0].gpus, -max(o.most for o in of)) for row, of in requests.items()}
        planned = [row for row in requests if row in self._record.plans]
        for row in sorted(planned, key=size.__getitem__):
            if rows <= ROWS_PER_HOUR * self.options.lease_s / 3600 and cells <= CELLS:
                break
            left_out = requests.pop(row)
            rows -= len(left_out)
            cells -= sum(one.most for one in left_out)

    def _arrive(self, fresh: Rows, m: _Moment, ctx: RoundContext) -> None:
        """Step 3: admit arrivals whose leases all fit before their last deadlines."""
        record, table = self._record, ctx.table
        length = self.options.lease_s / MINUTE_S
        self._enter(fresh, ctx)
        with_deadline = fresh[np.isfinite(record.due[fresh])]
        if not len(with_deadline):
            return
        known = ctx.active[record.kind[ctx.active] == ACCEPTED]
        known = known[record.plannable[known] & (record.request[known] > 0)]
        rows = [
            one
            for row in known.tolist()
            if row not in record.plans
            for one in self._rows_of(row, m.k, ctx)
        ]
        booked = record.booked_from(m.k)
        for row in with_deadline.tolist():
            rows += self._rows_of(row, m.k, ctx)
            last, submit = rows[-1], table.submit_time.item(row) / MINUTE_S
            fits = last.leases <= last.most and all_fit(rows, m.total, booked)
            most = last.most if fits else least_most(rows, m.total, booked)
            end = length * (most + m.k) - submit
            if fits or end <= record.options[row][-1][0]:
                record.kind[row], record.due[row] = ACCEPTED, end
                record.plannable[row] = True
            else:
                record.kind[row] = UNACCEPTED
                record.turned_down = True

    def _enter(self, fresh: Rows, ctx: RoundContext) -> None:
        """Estimate new jobs, and note their deadlines."""
        record, table = self._record, ctx.table
        length, overhead = self.options.lease_s / MINUTE_S, self.options.overhead_s / MINUTE_S
        work = np.nan_to_num(table.predicted_work[fresh] / MINUTE_S, nan=1e9)
        share = 1 + (1 + np.log2(table.gang[fresh])) * overhead / length
        record.estimate[fresh] = np.floor(work * share * self.options.margin)
        record.request[fresh] = np.ceil(record.estimate[fresh] / length).astype(np.int64)
        record.to_the_end(fresh)
        steps, curves = table.extra.get("deadline_steps"), table.extra.get("sla")
        for row in fresh.tolist():
            due, value = table.deadline.item(row), table.deadline_value.item(row)
            if math.isnan(due) or table.deadline_kind[row] == BEST_EFFORT_KIND:
                record.kind[row] = BEST_EFFORT
                continue
            record.options[row] = ((due / MINUTE_S, WORTH if math.isnan(value) else value),)
            falling = (
                () if curves is None or not curves[row] else RewardCurve.of_text(curves[row]).steps
            )
            if falling and abs(falling[0][0] - due) < SAME_S:  # else it says another deadline
                record.options[row] = tuple((at / MINUTE_S, worth) for at, worth in falling)
            elif steps is not None and steps[row]:
                record.options[row] = tuple(
                    (at / MINUTE_S, worth) for at, worth in deadline_steps(steps[row])
                )
            record.due[row] = record.options[row][0][0]

    def _serve(self, kept: Rows, pending: Rows, m: _Moment, ctx: RoundContext) -> Rows:
        """Step 4: which jobs run until the next slot, lease holders included."""
        record, gang = self._record, ctx.table.gang
        left = ctx.table.predicted_work[pending] / MINUTE_S - self._done(pending, ctx)
        rest = m.k * self.options.lease_s / MINUTE_S - m.t
        if self.options.finish_short and self.options.lease_s <= 1800.0:
            self._force(kept, pending, left, rest, m, ctx)
        self._rate(pending, m, ctx)
        must = pending[record.forced[pending]]
        need = int(gang[must].sum())
        others = pending[~record.forced[pending]]
        if need > m.free:
            kept, others = self._make_room(need, kept, others, m, ctx)
        forced = self._that_fit(must, m, ctx)
        others = np.concatenate([others, must[~np.isin(must, forced)]])
        order = others = self._by_class(others, ctx)
        if m.free or self.options.clock == "exact":  # only then the released simulator sorts anew
            order = others[np.lexsort(tuple(-1.0 * key for key in self._urgency(others, ctx)))]
        record.to_the_end(order)
        chosen = np.concatenate([kept, forced, self._that_fit(order, m, ctx)])
        record.to_the_end(chosen)
        return chosen

    def _force(
        self, kept: Rows, pending: Rows, left: Floats, rest: float, m: _Moment, ctx: RoundContext
    ) -> None:
        """Step 4a: jobs that end before the next boundary run to their end, shortest first."""
        record, gang, submit = self._record, ctx.table.gang, ctx.table.submit_time
        fixed = kept[record.holds_lease[kept] | record.forced[kept]]
        spot = m.total - int(gang[fixed].sum())
        short = (record.kind[pending] == UNACCEPTED) & (left <= rest)
        rows, service = pending[short], (left * gang[pending])[short]
        begun = (m.k - 1) * self.options.lease_s
        for row in rows[np.argsort(service, kind="stable")].tolist():
            if gang.item(row) <= spot:
                record.forced[row], record.plannable[row] = True, False
                spot -= gang.item(row)
                if submit.item(row) >= begun:
                    record.kind[row] = ACCEPTED

    def _make_room(
        self, need: int, kept: Rows, others: Rows, m: _Moment, ctx: RoundContext
    ) -> tuple[Rows, Rows]:
        """Step 4c: suspend the least urgent running jobs until so many GPUs are free."""
        record, gang = self._record, ctx.table.gang
        loose = kept[~(record.holds_lease[kept] | record.forced[kept])]
        self._rate(loose, m, ctx)
        gone: list[int] = []
        for row in loose[np.lexsort(self._urgency(loose, ctx))].tolist():
            if need <= m.free:
                break
            m.free += gang.item(row)
            gone.append(row)
        rows = np.array(gone, np.int64)
        self._settle_requests(rows, ctx, always=True)
        record.to_the_end(rows)
        return kept[~np.isin(kept, rows)], np.concatenate([others, rows])

    def _rate(self, rows: Rows, m: _Moment, ctx: RoundContext) -> None:
        """Step 4b: class and emergence of jobs."""
        record, table = self._record, ctx.table
        submit, done = table.submit_time[rows] / MINUTE_S, self._done(rows, ctx)
        work = table.predicted_work[rows] / MINUTE_S
        due, kind = record.due[rows], record.kind[rows]
        late = (kind != BEST_EFFORT) & (kind != LOWEST) & (due + submit < m.t + work - done)
        record.kind[rows[late]] = kind[late] = LOWEST
        left = record.estimate[rows] - done
        free = (kind == BEST_EFFORT) | (kind == UNACCEPTED)
        slack = np.where(free, left, due + submit - m.t - left)
        record.emergence[rows] = -slack * table.gang[rows]

    def _urgency(self, rows: Rows, ctx: RoundContext) -> tuple[Floats, ...]:
        """Keys of running jobs and of starts, from the last to the first; more is more urgent."""
        record = self._record
        return (
            -ctx.table.submit_time[rows],
            record.emergence[rows],
            np.minimum(record.kind[rows], UNACCEPTED).astype(np.float64),
            record.overrun[rows].astype(np.float64),
        )

    def _by_class(self, rows: Rows, ctx: RoundContext) -> Rows:
        """Waiting jobs by class and emergence, largest first, and the latest of equal ones."""
        record = self._record
        keys = (ctx.table.submit_time[rows], record.emergence[rows], record.kind[rows])
        return rows[np.lexsort(tuple(-key for key in keys))]

    def _that_fit(self, order: Rows, m: _Moment, ctx: RoundContext) -> Rows:
        """The rows that get GPUs when each that fits takes them, in order."""
        chosen: list[int] = []
        gangs: Ints = ctx.table.gang[order]
        if len(order) and m.free:
            least = int(gangs.min())
            for row, gang in zip(order.tolist(), gangs.tolist(), strict=True):
                if gang <= m.free:
                    m.free -= gang
                    chosen.append(row)
                    if m.free < least:
                        break
        return np.array(chosen, np.int64)

    def _carry_out(self, leaving: Rows, wanted: Rows, ctx: RoundContext, walk: Walk) -> None:
        """Suspend and start jobs, so that the wanted ones run."""
        for row in leaving[~walk.is_protected(leaving)].tolist():
            walk.suspend(row)
        held, holds_lease = ctx.occupancy.held, self._record.holds_lease
        slot = Grant(head_start=self.options.slot_s)
        for row in wanted.tolist():
            if row not in held:
                self._start(row, slot if holds_lease[row] else None, walk)

    def _start(self, row: int, grant: Grant | None, walk: Walk) -> bool:
        """A job begins if there is a place; its work may count from a slot before."""
        if isinstance(refused := walk.place(row), Refused):
            walk.refuse(row, refused)
            return False
        if grant is not None and self.options.clock == "slots":
            walk.grant(row, grant)
            self._record.credit[row] += grant.head_start / MINUTE_S
        return True

    # -- step 5 -----------------------------------------------------------------------------------

    def _fill(self, ctx: RoundContext, walk: Walk) -> None:
        """Step 5: between two slots, idle GPUs go to waiting jobs, those with leases first."""
        record, table = self._record, ctx.table
        if self._fills_later(ctx) or not ctx.free_gpus:
            return
        rows = ctx.active[table.status[ctx.active] == WAITING]
        rows = rows[record.kind[rows] != UNSEEN]
        rows = rows[np.lexsort((record.place[rows], record.emergence[rows], record.kind[rows]))]
        if self.options.clock == "slots":
            record.to_the_end(rows)
        m = _Moment(t=ctx.now / MINUTE_S, k=record.lease + 1, total=0, free=ctx.free_gpus)
        since_slot = ctx.now - self._record.slot * self.options.slot_s
        grant = Grant(head_start=since_slot, free_start=True)
        chosen = self._that_fit(rows, m, ctx).tolist()
        started = [row for row in chosen if self._start(row, grant, walk)]
        record.to_the_end(np.array(started, np.int64))

    def _fills_later(self, ctx: RoundContext) -> bool:
        """By slots, GPUs are filled in odd minutes only."""
        return self.options.clock == "slots" and int(ctx.now // MINUTE_S) % 2 == 0

    # -- clocks -----------------------------------------------------------------------------------

    def _done(self, rows: Rows, ctx: RoundContext) -> Floats:
        """p, minutes on GPUs so far."""
        done: Floats = Units(ctx.table, rows, ctx.now).held_s / MINUTE_S + self._record.credit[rows]
        return done

    def _count_work(self, running: Rows, ctx: RoundContext, *, at_boundary: bool) -> None:
        """Step 1: jobs that have used up their estimates; leases that others need no more."""
        record, table = self._record, ctx.table
        done = self._done(running, ctx)
        over = (done >= record.estimate[running]) & (~record.holds_lease[running] | at_boundary)
        for row in running[over].tolist():
            record.drop_plan(row, table.gang.item(row))
        record.kind[running[over]] = UNACCEPTED
        record.overrun[running[over]] = True
        record.plannable[running[over]] = False
        loose = ~(record.holds_lease[running] | record.forced[running])
        loose &= record.kind[running] == ACCEPTED
        self._settle_requests(running[loose], ctx, at_most=1)

    def _settle_requests(
        self, rows: Rows, ctx: RoundContext, *, at_most: int | None = None, always: bool = False
    ) -> None:
        """Jobs that ran need fewer leases: ⌈(estimate − p) / L⌉."""
        record, gang = self._record, ctx.table.gang
        length = self.options.lease_s / MINUTE_S
        rows = rows if always else rows[record.kind[rows] == ACCEPTED]
        need = np.ceil((record.estimate[rows] - self._done(rows, ctx)) / length).astype(np.int64)
        for row, fewer, now in zip(
            rows.tolist(), (record.request[rows] - need).tolist(), need.tolist(), strict=True
        ):
            if fewer > 0 or at_most or always:
                if fewer != 0:
                    record.cancel_first(row, gang.item(row), min(fewer, at_most or fewer))
                record.request[row] = now

    def _rows_of(self, row: int, lease: int, ctx: RoundContext) -> list[Row]:
        """A job's rows, one for each deadline, with leases counted from one."""
        record, length = self._record, self.options.lease_s / MINUTE_S
        submit = ctx.table.submit_time.item(row) / MINUTE_S
        gpus = rounded_up(ctx.table.gang.item(row))
        return [
            Row(gpus, record.request.item(row), math.floor((submit + due) / length) - lease, row, v)
            for due, v in record.options[row]
        ]

    def _forget_ended(self, ctx: RoundContext) -> None:
        """Jobs that have ended hold no plans."""
        status, gang = ctx.table.status, ctx.table.gang
        for row in [row for row in self._record.plans if status.item(row) > RUNNING]:
            self._record.drop_plan(row, gang.item(row))
