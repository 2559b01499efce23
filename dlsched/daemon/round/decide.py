"""One live round: a pure function from a snapshot to a decision.

The stages are the replay's own, from the registry; what is here makes the snapshot into their
tables and their allocation into names of jobs. No clock, no file, no network: the same snapshot
gives the same decision, byte for byte, in any process.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dlsched.core.allocation import Allocation, Refused
from dlsched.core.arrays import Floats, Ints, Rows
from dlsched.core.calendar import Calendar
from dlsched.core.context import Change, RoundContext
from dlsched.core.round import Parts, admit, choose, predict
from dlsched.core.round import decide as decide_round
from dlsched.core.scheduling import Chooser
from dlsched.core.units import FUTURE, HELD_BACK, RUNNING, WAITING, Status, Units, UnitTable
from dlsched.daemon.round.decided import Decided
from dlsched.daemon.round.parts import live_semantics
from dlsched.daemon.round.policy_state import PolicyState, named
from dlsched.daemon.round.reasons import reasons_of
from dlsched.daemon.round.restore import (
    Numbering,
    cluster_of,
    numbering_of,
    occupancy_of,
    parts_of,
    pools_of,
    restore_reserved,
    table_of,
)
from dlsched.daemon.round.snapshot import LiveSnapshot
from simulate.forecast import replace_parts

__all__ = ["Standing", "decide", "stand"]


@dataclass(slots=True, kw_only=True)
class Standing:
    """A snapshot made ready for a decision.

    Attributes:
        snapshot: what it was made of.
        state: what the last round left behind.
        numbering: how the two belong together.
        row_of: the row of each job.
        parts: the stages.
        ctx: what policies are told.
        queue: rows that wait for admission, in order of arrival.
        why_not: reasons of rows that are not admitted.
        refused: jobs that admission refuses for good, those of before too.
    """

    snapshot: LiveSnapshot
    state: PolicyState
    numbering: Numbering
    row_of: dict[int, int]
    parts: Parts
    ctx: RoundContext
    queue: Rows
    why_not: dict[int, Refused]
    refused: list[int]


def decide(snapshot: LiveSnapshot, cpu_clock: Callable[[], float] | None = None) -> Decided:
    """Decide a round.

    Args:
        snapshot: everything that the decision depends on.
        cpu_clock: what parts with a time limit measure themselves by; None: they have no limit, and
            the decision does not depend on the machine.

    Raises:
        PolicyFailed: a part raised or asked for what cannot be.
        BadInput: the settings name what is not there.
    """
    standing = stand(snapshot)
    if standing is None:
        return _without_nodes(snapshot)
    standing.ctx.cpu_clock = cpu_clock
    _choose(standing)
    _admit(standing)
    parts, ctx = standing.parts, standing.ctx
    has_work = (ctx.table.status[ctx.active] == WAITING).any() or not parts.scheduling.rests
    has_work = has_work and len(ctx.active) > 0
    allocation = decide_round(parts, ctx) if has_work else Allocation()
    for booking in allocation.future:
        ctx.calendar.book(booking)
    return _told(standing, allocation)


def stand(snapshot: LiveSnapshot) -> Standing | None:
    """Make everything that a decision needs; None when there are no nodes."""
    cluster = cluster_of(snapshot)
    if cluster is None:
        return None
    state = PolicyState.from_bytes(snapshot.state)
    numbering = numbering_of(snapshot, state)
    table = table_of(snapshot, numbering)
    jobs: Ints = snapshot.columns["job"]
    row_of = {job: row for row, job in enumerate(jobs.tolist())}
    occupancy = occupancy_of(snapshot, cluster)
    restore_reserved(occupancy, state, row_of, table)
    parts = parts_of(snapshot, state, numbering)
    calendar = Calendar(cluster.total_gpus)
    if state.calendar:
        calendar = Calendar.of_steps(cluster.total_gpus, state.calendar)
        calendar.forget_before(snapshot.now)
    ctx = RoundContext(
        now=snapshot.now,
        number=snapshot.number,
        mode=snapshot.mode,
        table=table,
        active=np.zeros(0, np.int64),
        occupancy=occupancy,
        pools=pools_of(snapshot, numbering, cluster),
        semantics=live_semantics(snapshot.settings),
        changes=[],
        finished=snapshot.finished.tolist(),
        calendar=calendar,
        restart_overhead=snapshot.settings.restart_overhead_s,
        min_run=snapshot.settings.min_run_s,
        seed=snapshot.settings.seed,
    )
    standing = Standing(
        snapshot=snapshot,
        state=state,
        numbering=numbering,
        row_of=row_of,
        parts=parts,
        ctx=ctx,
        queue=np.zeros(0, np.int64),
        why_not={},
        refused=[job for job in state.refused.tolist() if job in row_of],
    )
    _carry_over(standing, row_of)
    return standing


def _carry_over(standing: Standing, row_of: dict[int, int]) -> None:
    """Who was admitted or held back before, who has arrived, what was predicted."""
    ctx, state, table = standing.ctx, standing.state, standing.ctx.table
    status = table.status
    for job in standing.refused:
        if status[row_of[job]] == WAITING:
            status[row_of[job]] = Status.REFUSED
    old = standing.numbering.old
    known = old >= 0
    table.admitted_at[known] = state.admitted_at[old[known]]
    first = known & (table.starts == 0) & (status == WAITING) & ~np.isnan(table.admitted_at)
    table.since[first] = table.admitted_at[first]
    present = (status == WAITING) | (status == RUNNING)
    before = _rows(state.active, row_of)
    held_back = _rows(state.held_back, row_of)
    ctx.active = before[present[before]]
    seen = np.zeros(len(table), np.bool_)
    seen[before] = True
    seen[held_back] = True
    started = np.flatnonzero(present & ~seen & ((status == RUNNING) | (table.starts > 0)))
    _enter(ctx, started)
    seen[started] = True
    arrived = np.flatnonzero(present & ~seen)
    queue = np.concatenate([held_back[present[held_back]], arrived])
    for row in [*started.tolist(), *arrived.tolist()]:
        ctx.changes.append(Change("arrive", ctx.now, row))
    gone = set(state.finished.tolist())
    for row in ctx.finished:
        if int(standing.snapshot.columns["job"][row]) not in gone:
            ctx.changes.append(Change("finish", float(table.finish[row]), row))
    _predict(standing, present)
    standing.queue = queue
    status[queue] = HELD_BACK


def _rows(jobs: Ints, row_of: dict[int, int]) -> Rows:
    return np.array([row_of[job] for job in jobs.tolist() if job in row_of], np.int64)


def _enter(ctx: RoundContext, rows: Rows) -> None:
    """Rows are admitted now."""
    table = ctx.table
    table.admitted_at[rows] = ctx.now
    fresh = rows[(table.starts[rows] == 0) & (table.status[rows] != RUNNING)]
    table.since[fresh] = ctx.now
    ctx.active = np.concatenate([ctx.active, rows])


def _predict(standing: Standing, present: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> None:
    """How long jobs take: the user's word, else the estimator's, else what the cluster assumes."""
    state, ctx, table = standing.state, standing.ctx, standing.ctx.table
    expected: Floats = standing.snapshot.columns["expected"]
    old = standing.numbering.old
    known = np.flatnonzero(old >= 0)
    was = old[known]
    as_before = _equal(state.expected[was], expected[known])
    as_before &= _equal(state.time_limit[was], table.time_limit[known])
    table.predicted_work[known[as_before]] = state.predicted[was[as_before]]
    rows = np.flatnonzero(present & np.isnan(table.predicted_work))
    if not rows.size:
        return
    nobody_knows = np.full(len(rows), np.nan)
    units = Units(table, rows, ctx.now)
    work = predict(standing.parts, units, nobody_knows, ctx)
    work = np.where(np.isnan(expected[rows]), work, expected[rows])
    work = np.where(np.isnan(work), table.time_limit[rows], work)
    table.predicted_work[rows] = np.where(
        np.isnan(work), standing.snapshot.settings.unknown_s, work
    )


def _equal(a: Floats, b: Floats) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return np.asarray((a == b) | (np.isnan(a) & np.isnan(b)))


def _choose(standing: Standing) -> None:
    """A chooser may seat other parts."""
    ctx, policy = standing.ctx, standing.parts.scheduling
    if not isinstance(policy, Chooser) or not len(ctx.active) + len(standing.queue):
        return
    if ctx.mode == "fill" and policy.has_chosen:
        return
    from dlsched.daemon.round.forecasting import forecaster_of  # noqa: PLC0415 - seldom needed

    ctx.forecast = forecaster_of(standing)
    chosen = choose(policy, ctx)
    ctx.forecast = None
    if chosen is not None:
        standing.parts = replace_parts(standing.parts, chosen, ctx.semantics)
        standing.state.chosen = {**standing.state.chosen, **chosen}


def _admit(standing: Standing) -> None:
    ctx, table, queue = standing.ctx, standing.ctx.table, standing.queue
    if not len(queue):
        return
    if standing.parts.admission.admits_all:
        enters = np.ones(len(queue), np.bool_)
    else:
        enters, standing.why_not = admit(standing.parts, Units(table, queue, ctx.now), ctx)
    stays = ~enters
    for row, why in standing.why_not.items():
        if why.reason == "Never":
            table.status[row] = Status.REFUSED
            standing.refused.append(int(standing.snapshot.columns["job"][row]))
            stays[queue == row] = False
    entering = queue[enters]
    table.status[entering] = WAITING
    _enter(ctx, entering)
    standing.queue = queue[stays]


# -- the answer -----------------------------------------------------------------------------------


def _told(standing: Standing, allocation: Allocation) -> Decided:
    snapshot, ctx = standing.snapshot, standing.ctx
    jobs: list[int] = snapshot.columns["job"].tolist()
    held = ctx.occupancy.held
    waiting = np.array([row for row in ctx.active.tolist() if row not in held], np.int64)
    reasons, reason_of = reasons_of(standing, allocation, waiting)
    before = set(standing.state.refused.tolist())
    return Decided(
        number=snapshot.number,
        mode=snapshot.mode,
        policy=snapshot.settings.policy,
        launched={jobs[row]: where for row, where in allocation.launched.items()},
        suspended=tuple(jobs[row] for row in allocation.suspended),
        completed=tuple(jobs[row] for row, grant in allocation.grants.items() if grant.complete),
        reasons=reasons,
        reason_of=reason_of,
        order=_order(standing, allocation, waiting),
        refused=tuple(job for job in standing.refused if job not in before),
        wake_at=allocation.wake_at,
        stable_until=allocation.stable_until,
        nodes_wanted=allocation.nodes_wanted,
        state=_state(standing, allocation).to_bytes(),
    )


def _order(standing: Standing, allocation: Allocation, waiting: Rows) -> Ints:
    """Waiting jobs in the policy's order; those that admission holds back come last."""
    ranked = waiting
    if allocation.order is not None:
        waits = np.zeros(len(standing.ctx.table), np.bool_)
        waits[waiting] = True
        ranked = allocation.order[waits[allocation.order]]
        waits[ranked] = False
        ranked = np.concatenate([ranked, waiting[waits[waiting]]])
    rows = np.concatenate([ranked, standing.queue])
    jobs: Ints = standing.snapshot.columns["job"][rows]
    return jobs


def _state(standing: Standing, allocation: Allocation) -> PolicyState:
    """What the next round begins with."""
    snapshot, ctx, table = standing.snapshot, standing.ctx, standing.ctx.table
    jobs: Ints = snapshot.columns["job"]
    names = ctx.occupancy.cluster.names
    kept = np.concatenate([ctx.active, _absent(standing, standing.state.active)])
    claimed: list[int] = np.flatnonzero(snapshot.columns["claimed"]).tolist()
    claims = {row: ctx.occupancy.held[row] for row in claimed if row in ctx.occupancy.held}
    claims |= allocation.launched
    runs: Ints = snapshot.columns["runs"]
    return PolicyState(
        jobs=jobs,
        predicted=table.predicted_work,
        expected=snapshot.columns["expected"],
        time_limit=snapshot.columns["time_limit"],
        admitted_at=table.admitted_at,
        active=jobs[kept],
        held_back=jobs[
            np.concatenate([standing.queue, _absent(standing, standing.state.held_back)])
        ],
        refused=np.array(standing.refused, np.int64),
        finished=jobs[snapshot.finished],
        names={kind: list(known) for kind, known in standing.numbering.names.items()},
        pools=list(standing.numbering.pools),
        parts=standing.parts.state_dict(),
        chosen=standing.state.chosen,
        calendar=ctx.calendar.steps() if ctx.calendar.bookings else standing.state.calendar,
        claims=[
            [int(jobs[row]), int(runs[row]) + 1, named(where, names)]
            for row, where in claims.items()
        ],
        reserved=[
            [int(jobs[row]), named(where, names)] for row, where in ctx.occupancy.reserved.items()
        ],
    )


def _absent(standing: Standing, jobs: Ints) -> Rows:
    """Rows of jobs that were in before and may not be seen now (held, say), in their old order."""
    rows = _rows(jobs, standing.row_of)
    absent: Rows = rows[standing.ctx.table.status[rows] == FUTURE]
    return absent


def _without_nodes(snapshot: LiveSnapshot) -> Decided:
    jobs: Ints = snapshot.columns["job"][snapshot.columns["status"] == WAITING]
    return Decided(
        number=snapshot.number,
        mode=snapshot.mode,
        policy=snapshot.settings.policy,
        launched={},
        suspended=(),
        completed=(),
        reasons=("Resources: no node has registered yet",),
        reason_of=np.stack([jobs, np.zeros(len(jobs), np.int64)], axis=1),
        order=jobs,
        refused=(),
        wake_at=np.inf,
        stable_until=np.inf,
        nodes_wanted=None,
        state=snapshot.state,
    )


def table_for_needs(snapshot: LiveSnapshot) -> UnitTable:
    """The live units only, to see whether a part finds the columns that it needs."""
    table = table_of(snapshot, numbering_of(snapshot, PolicyState()))
    status = table.status
    return table.take(np.flatnonzero(status < Status.COMPLETED))
