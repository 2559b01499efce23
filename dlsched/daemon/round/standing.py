"""A snapshot made ready for a decision: the replay's own tables, as the last round left them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dlsched.core.allocation import Refused
from dlsched.core.arrays import Floats, Ints, Rows
from dlsched.core.calendar import Calendar
from dlsched.core.context import Change, RoundContext
from dlsched.core.goodput.scaling import FittedScaling
from dlsched.core.performance import Speeds
from dlsched.core.round import Parts, predict
from dlsched.core.units import HELD_BACK, RUNNING, WAITING, Status, Units
from dlsched.daemon.round.believed_goodput import BelievedGoodput
from dlsched.daemon.round.measured import changed_since, measured_speeds
from dlsched.daemon.round.parts import live_semantics
from dlsched.daemon.round.policy_state import PolicyState
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

__all__ = ["Standing", "enter", "rows_of", "stand"]

RESTART_S = 30.0  # that a restart costs where nobody has measured or said it


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
    goodput = BelievedGoodput(
        snapshot.trainings, table, snapshot.settings.restart_overhead_s or RESTART_S
    )
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
        may_share=True,
        goodput=goodput,
        scaling=FittedScaling(goodput, cluster.largest_node) if snapshot.trainings else None,
        speeds=believed_speeds(snapshot, parts, table.gang),
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


def believed_speeds(snapshot: LiveSnapshot, parts: Parts, gangs: Ints) -> Speeds | None:
    """What policies may believe of speeds; None while nothing was measured of any live job."""
    known = measured_speeds(snapshot.speeds, gangs)
    return None if known is None else parts.estimator.believed(known)


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
    before = rows_of(state.active, row_of)
    held_back = rows_of(state.held_back, row_of)
    ctx.active = before[present[before]]
    seen = np.zeros(len(table), np.bool_)
    seen[before] = True
    seen[held_back] = True
    started = np.flatnonzero(present & ~seen & ((status == RUNNING) | (table.starts > 0)))
    enter(ctx, started)
    seen[started] = True
    arrived = np.flatnonzero(present & ~seen)
    queue = np.concatenate([held_back[present[held_back]], arrived])
    for row in [*started.tolist(), *arrived.tolist()]:
        ctx.changes.append(Change("arrive", ctx.now, row))
    gone = set(state.finished.tolist())
    for row in ctx.finished:
        if int(standing.snapshot.columns["job"][row]) not in gone:
            ctx.changes.append(Change("finish", float(table.finish[row]), row))
    for row in changed_since(standing.snapshot.speeds, state.speeds_at, ctx.active).tolist():
        ctx.changes.append(Change("adapt", ctx.now, row))
    _predict(standing, present)
    _predict_by_steps(standing, present)
    standing.queue = queue
    status[queue] = HELD_BACK


def rows_of(jobs: Ints, row_of: dict[int, int]) -> Rows:
    """The rows of those jobs that have one."""
    return np.array([row_of[job] for job in jobs.tolist() if job in row_of], np.int64)


def enter(ctx: RoundContext, rows: Rows) -> None:
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


def _predict_by_steps(
    standing: Standing, present: np.ndarray[tuple[int], np.dtype[np.bool_]]
) -> None:
    """How long jobs take whose steps are told and whose kind was measured, on its fastest type.

    What is left is counted anew each time, so that work done on a slow type counts as little as it
    was.
    """
    ctx, columns = standing.ctx, standing.snapshot.columns
    total, done = columns.get("extra:total_iterations"), columns.get("steps_done")
    if ctx.speeds is None or total is None or total.dtype.kind != "f" or done is None:
        return
    kind: Ints = standing.snapshot.speeds["kind"]
    known = np.zeros(len(ctx.table), np.bool_)
    known[: len(kind)] = kind >= 0
    rows = np.flatnonzero(present & known & ~np.isnan(total) & np.isnan(columns["expected"]))
    if rows.size:
        left = np.maximum(total[rows] - np.nan_to_num(done[rows]), 0.0)
        left /= ctx.speeds.steps_per_work(rows)
        ctx.table.predicted_work[rows] = Units(ctx.table, rows, ctx.now).executed + left


def _equal(a: Floats, b: Floats) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return np.asarray((a == b) | (np.isnan(a) & np.isnan(b)))
