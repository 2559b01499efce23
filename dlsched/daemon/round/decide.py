"""One live round: a pure function from a snapshot to a decision.

The stages are the replay's own, from the registry; what is here makes the snapshot into their
tables and their allocation into names of jobs. No clock, no file, no network: the same snapshot
gives the same decision, byte for byte, in any process.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dlsched.core.allocation import Allocation, HostShare
from dlsched.core.arrays import Floats, Ints, Rows
from dlsched.core.context import RoundContext
from dlsched.core.scheduling import Chooser
from dlsched.core.stage import ESTIMATED
from dlsched.core.units import FUTURE, RUNNING, WAITING, Status, Units, UnitTable
from dlsched.daemon.round.decided import Decided
from dlsched.daemon.round.measured import latest_change
from dlsched.daemon.round.policy_state import NO_JOB, PolicyState, named
from dlsched.daemon.round.prepared_round import PreparedRound, prepare, rows_of
from dlsched.daemon.round.reasons import reasons_of
from dlsched.daemon.round.restore import (
    numbering_of,
    table_of,
)
from dlsched.daemon.round.snapshot import LiveSnapshot


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
    prepared = prepare(snapshot)
    if prepared is None:
        return _without_nodes(snapshot)
    cycle, ctx = prepared.cycle, prepared.ctx
    ctx.cpu_clock = cpu_clock
    if isinstance(cycle.parts.scheduling, Chooser):
        from dlsched.daemon.round.forecasts.forecasting import forecaster_of  # noqa: PLC0415 - seldom needed

        ctx.forecast = forecaster_of(prepared)
        cycle.choose()
        ctx.forecast = None
    came = cycle.admit()
    entered = came if cycle.has_news else []
    waits = ctx.table.status[cycle.active] == WAITING
    has_work = waits.any() or (len(waits) > 0 and not cycle.parts.rest)
    allocation = cycle.decide() if has_work else Allocation()
    return _decided(prepared, allocation, entered)


# -- the answer -----------------------------------------------------------------------------------


def _decided(prepared: PreparedRound, allocation: Allocation, entered: list[int]) -> Decided:
    snapshot, ctx = prepared.snapshot, prepared.ctx
    jobs: list[int] = snapshot.table.job.tolist()
    held = ctx.occupancy.held
    waiting = np.array([row for row in ctx.active.tolist() if row not in held], np.int64)
    reasons, reason_of = reasons_of(prepared, allocation, waiting)
    order = _order(prepared, allocation, waiting)
    before = set(prepared.state.refused.tolist())
    refused: list[int] = [jobs[row] for row in prepared.cycle.refused]
    return Decided(
        number=snapshot.number,
        mode=snapshot.mode,
        policy=snapshot.settings.policy,
        launched={jobs[row]: where for row, where in allocation.launched.items()},
        suspended=tuple(jobs[row] for row in allocation.suspended),
        completed=tuple(jobs[row] for row, grant in allocation.grants.items() if grant.complete),
        limits={
            jobs[r]: grant.time_limit for r, grant in allocation.grants.items() if grant.time_limit
        },
        host_shares={
            jobs[row]: _limited(ctx, row, share) for row, share in allocation.host_shares.items()
        },
        reasons=reasons,
        reason_of=reason_of,
        order=prepared.snapshot.table.job[order],
        terms=_terms(prepared, allocation, order),
        refused=tuple(job for job in refused if job not in before),
        admitted=tuple(jobs[row] for row in entered),
        wake_at=allocation.wake_at,
        stable_until=allocation.stable_until,
        nodes_wanted=allocation.nodes_wanted,
        state=_state(prepared, allocation).to_bytes(),
    )


def _limited(ctx: RoundContext, row: int, share: HostShare) -> tuple[float, float]:
    """What a row is limited to: of memory only where its profile says how much it needs."""
    needs = 0.0
    if ctx.perf.by_host is not None:
        needs = float(ctx.perf.by_host.ideal(np.array([row]))[0, 1])
    return share.cpus, share.memory_gb if needs > 0 else 0.0


def _order(prepared: PreparedRound, allocation: Allocation, waiting: Rows) -> Rows:
    """Waiting rows in the policy's order; those that admission holds back come last."""
    ranked = waiting
    if allocation.order is not None:
        waits = np.zeros(len(prepared.ctx.table), np.bool_)
        waits[waiting] = True
        ranked = allocation.order[waits[allocation.order]]
        waits[ranked] = False
        ranked = np.concatenate([ranked, waiting[waits[waiting]]])
    rows: Rows = np.concatenate([ranked, prepared.cycle.held_back])
    return rows


def _terms(prepared: PreparedRound, allocation: Allocation, order: Rows) -> dict[str, Floats]:
    """The numbers behind the order, by name; NaN for a row that was not ranked."""
    ctx = prepared.ctx
    estimated = prepared.cycle.parts.estimator.terms(Units(ctx.table, order, ctx.now), ctx)
    found = {f"{ESTIMATED}{name}": values for name, values in estimated.items()}
    for name, values in allocation.terms.items():
        by_row = np.full(len(prepared.ctx.table), np.nan)
        by_row[allocation.order] = values
        found[name] = by_row[order]
    return found


def _state(prepared: PreparedRound, allocation: Allocation) -> PolicyState:
    """What the next round begins with."""
    snapshot, ctx, table = prepared.snapshot, prepared.ctx, prepared.ctx.table
    jobs = snapshot.table.job
    names = ctx.occupancy.cluster.names
    absent = _absent(prepared, prepared.state.active)
    kept = np.concatenate([ctx.active, absent])
    runs_on = set(ctx.active[table.status[ctx.active] == RUNNING].tolist())
    runs_on = (runs_on - allocation.suspended.keys()) | allocation.launched.keys()
    claimed: list[int] = np.flatnonzero(snapshot.table.claimed).tolist()
    claims = {row: ctx.occupancy.held[row] for row in claimed if row in ctx.occupancy.held}
    claims |= allocation.launched
    runs = snapshot.table.runs
    return PolicyState(
        jobs=jobs,
        predicted=table.predicted_work,
        expected=snapshot.table.expected,
        time_limit=snapshot.table.time_limit,
        admitted_at=table.admitted_at,
        active=jobs[kept],
        running=jobs[np.array(sorted(runs_on), np.int64)],
        unseen=jobs[absent],
        held_back=jobs[
            np.concatenate([prepared.cycle.held_back, _absent(prepared, prepared.state.held_back)])
        ],
        refused=jobs[np.array(prepared.cycle.refused, np.int64)],
        finished=jobs[snapshot.finished],
        names={kind: list(known) for kind, known in prepared.numbering.names.items()},
        pools=list(prepared.numbering.pools),
        parts=prepared.cycle.parts.state_dict(),
        chosen=prepared.cycle.chosen,
        bookings=[
            [int(jobs[row]) if row >= 0 else NO_JOB, b.gpus, b.start, b.end]
            for row, booked in ctx.calendar.bookings.items()
            for b in booked
        ],
        claims=[
            [int(jobs[row]), int(runs[row]) + 1, named(where, names)]
            for row, where in claims.items()
        ],
        reserved=[
            [int(jobs[row]), named(where, names)] for row, where in ctx.occupancy.reserved.items()
        ],
        host_shares=[
            [int(jobs[row]), table.gpu_cpus.item(row), table.gpu_memory_gb.item(row)]
            for row in ctx.occupancy.held
            if not np.isnan(table.gpu_cpus[row])
        ],
        speeds_at=max(prepared.state.speeds_at, latest_change(snapshot.speeds)),
        room=prepared.room,
        decided_at=snapshot.now,
    )


def _absent(prepared: PreparedRound, jobs: Ints) -> Rows:
    """Rows of jobs that were in before and may not be seen now (held, say), in their old order."""
    rows = rows_of(jobs, prepared.row_of)
    absent: Rows = rows[prepared.ctx.table.status[rows] == FUTURE]
    return absent


def _without_nodes(snapshot: LiveSnapshot) -> Decided:
    jobs = snapshot.table.job[snapshot.table.status == WAITING]
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
