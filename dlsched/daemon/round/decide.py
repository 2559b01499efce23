"""One live round: a pure function from a snapshot to a decision.

The stages are the replay's own, from the registry; what is here makes the snapshot into their
tables and their allocation into names of jobs. No clock, no file, no network: the same snapshot
gives the same decision, byte for byte, in any process.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dlsched.core.allocation import Allocation
from dlsched.core.arrays import Ints, Rows
from dlsched.core.round import admit, choose
from dlsched.core.round import decide as decide_round
from dlsched.core.scheduling import Chooser
from dlsched.core.units import FUTURE, WAITING, Status, Units, UnitTable
from dlsched.daemon.round.decided import Decided
from dlsched.daemon.round.measured import latest_change
from dlsched.daemon.round.policy_state import PolicyState, named
from dlsched.daemon.round.reasons import reasons_of
from dlsched.daemon.round.restore import (
    numbering_of,
    table_of,
)
from dlsched.daemon.round.snapshot import LiveSnapshot
from dlsched.daemon.round.standing import Standing, enter, rows_of, stand
from simulate.forecast import replace_parts

__all__ = ["decide"]


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
    enter(ctx, entering)
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
        speeds_at=max(standing.state.speeds_at, latest_change(snapshot.speeds)),
    )


def _absent(standing: Standing, jobs: Ints) -> Rows:
    """Rows of jobs that were in before and may not be seen now (held, say), in their old order."""
    rows = rows_of(jobs, standing.row_of)
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
