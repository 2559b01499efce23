"""A snapshot made ready for a decision: the replay's own tables, as the last round left them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import Any

import numpy as np

from dlsched.composition.parts import replace_parts
from dlsched.core.arrays import Bools, Floats, Ints, Rows
from dlsched.core.cluster.description import Cluster
from dlsched.core.context import Change, RoundContext
from dlsched.core.errors import BadInput
from dlsched.core.goodput.scaling import FittedScaling
from dlsched.core.round.cycle import Cycle
from dlsched.core.round.steps import Parts
from dlsched.core.semantics import Semantics
from dlsched.core.speed.belief import Belief
from dlsched.core.units import (
    FUTURE,
    HELD_BACK,
    RUNNING,
    WAITING,
    Status,
    Units,
    UnitTable,
)
from dlsched.daemon.round.believed_goodput import BelievedGoodput
from dlsched.daemon.round.host_profiles import host_speeds
from dlsched.daemon.round.measured import changed_since, measured_speeds
from dlsched.daemon.round.parts import live_semantics
from dlsched.daemon.round.policy_state import PolicyState
from dlsched.daemon.round.restore import (
    Numbering,
    calendar_of,
    cluster_of,
    numbering_of,
    occupancy_of,
    parts_of,
    pools_of,
    reserved_of,
    restore_reserved,
    table_of,
)
from dlsched.daemon.round.snapshot import LiveSnapshot

GONE = -1  # the row of a job that has left the table
RESTART_S = 30.0  # that a restart costs where it was neither measured nor said


@dataclass(slots=True, kw_only=True)
class PreparedRound:
    """A snapshot made ready for a decision.

    Attributes:
        snapshot: what it was made of.
        state: what the last round left behind.
        numbering: how the two belong together.
        row_of: the row of each job.
        room: how each node serves, and how many of its GPUs are not closed: [node, service, GPUs].
        cycle: the round, with what is admitted and what waits for admission.
    """

    snapshot: LiveSnapshot
    state: PolicyState
    numbering: Numbering
    row_of: dict[int, int]
    room: list[list[Any]]
    cycle: Cycle

    @property
    def ctx(self) -> RoundContext:
        """What parts see."""
        return self.cycle.ctx


def prepare(snapshot: LiveSnapshot) -> PreparedRound | None:
    """Make everything that a decision needs; None when there are no nodes.

    Raises:
        BadInput: parts that are not known, or that count usage as this cluster does not.
    """
    cluster = cluster_of(snapshot)
    if cluster is None:
        return None
    state = PolicyState.from_bytes(snapshot.state)
    numbering = numbering_of(snapshot, state)
    table = table_of(snapshot, numbering)
    jobs = snapshot.table.job
    row_of = {job: row for row, job in enumerate(jobs.tolist())}
    for job, cpus, memory in state.host_shares if snapshot.settings.gives_host else ():
        if (row := row_of.get(job, -1)) >= 0:
            table.gpu_cpus[row], table.gpu_memory_gb[row] = cpus, memory
    parts = parts_of(snapshot, state, numbering)
    _refuse_other_half_life(parts, cluster)
    occupancy = occupancy_of(snapshot, cluster, leaves_gpus_free=parts.scheduling.leaves_gpus_free)
    restore_reserved(occupancy, state, row_of, table)
    semantics = live_semantics(snapshot.settings)
    calendar = calendar_of(state, row_of, cluster.total_gpus)
    calendar.forget_before(snapshot.now)
    pools = pools_of(snapshot, numbering, cluster)
    ctx = RoundContext(
        now=snapshot.now,
        number=_number(snapshot, semantics),
        mode=snapshot.mode,
        table=table,
        active=np.zeros(0, np.int64),
        occupancy=occupancy,
        pools=pools,
        reserved=reserved_of(snapshot, table, pools),
        semantics=semantics,
        changes=[],
        finished=snapshot.finished.tolist(),
        calendar=calendar,
        restart_overhead=snapshot.settings.restart_overhead_s,
        min_run=snapshot.settings.min_run_s,
        seed=snapshot.settings.seed,
        may_share=True,
        perf=belief_of(snapshot, parts, table, cluster.largest_node),
    )
    cycle = Cycle(ctx, parts, replace=partial(replace_parts, semantics=semantics))
    cycle.chosen = state.chosen
    prepared = PreparedRound(
        snapshot=snapshot,
        state=state,
        numbering=numbering,
        row_of=row_of,
        room=_room_of(snapshot, cluster),
        cycle=cycle,
    )
    _carry_over(prepared)
    return prepared


def _number(snapshot: LiveSnapshot, semantics: Semantics) -> int:
    """The round's number for policies: as in a replay, that of the interval that has begun last."""
    length = semantics.round_length
    return int(snapshot.now // length) if length else snapshot.number


def belief_of(snapshot: LiveSnapshot, parts: Parts, table: UnitTable, node_gpus: int) -> Belief:
    """What policies may believe of speeds: what was measured, and what jobs have reported.

    Args:
        snapshot: what is known.
        parts: the estimator may guess what was not measured.
        table: the units.
        node_gpus: GPUs of the largest node.
    """
    restart_s = snapshot.settings.restart_overhead_s or RESTART_S
    goodput = BelievedGoodput(snapshot.trainings, table, restart_s)
    cluster = cluster_of(snapshot)
    belief = Belief(
        by_host=None if cluster is None else host_speeds(snapshot.host, table, cluster),
        by_type=measured_speeds(snapshot.speeds, table.gang),
        by_count=FittedScaling(goodput, node_gpus) if snapshot.trainings else None,
        goodput=goodput,
    )
    return belief if belief.by_type is None else parts.estimator.believed(belief)


def _refuse_other_half_life(parts: Parts, cluster: Cluster) -> None:
    wanted, counted = parts.scheduling.half_life_s(cluster), cluster.rules.half_life_s
    if wanted != counted:
        raise BadInput(
            f"half_life_s={wanted:g}: this cluster counts usage with {counted:g} s "
            "([fair_share] half_life_s)"
        )


def _carry_over(prepared: PreparedRound) -> None:
    """Carry over what was admitted, held back and refused; see what has arrived and ended since."""
    cycle, ctx, state, row_of = prepared.cycle, prepared.ctx, prepared.state, prepared.row_of
    table = ctx.table
    status = table.status
    refused = rows_of(state.refused, row_of)
    status[refused[status[refused] == WAITING]] = Status.REFUSED
    cycle.refused = refused.tolist()
    old = prepared.numbering.old
    known = old >= 0
    table.admitted_at[known] = state.admitted_at[old[known]]
    first = known & (table.starts == 0) & (status == WAITING) & ~np.isnan(table.admitted_at)
    table.since[first] = table.admitted_at[first]
    present = (status == WAITING) | (status == RUNNING)
    before = rows_of(state.active, row_of)
    held_back = rows_of(state.held_back, row_of)
    seen = np.zeros(len(table), np.bool_)
    seen[before] = True
    seen[held_back] = True
    started = np.flatnonzero(present & ~seen & ((status == RUNNING) | (table.starts > 0)))
    table.admitted_at[started] = ctx.now  # a round of which this state does not know admitted them
    ctx.active = np.concatenate([before[present[before]], started])
    seen[started] = True
    arrived = np.flatnonzero(present & ~seen)
    for row in started.tolist():
        ctx.changes.append(Change("arrive", ctx.now, row))
    came = table.since[arrived]  # some of them could not be seen before: those begin to wait now
    is_new = (state.decided_at < came) & (came < ctx.now)
    cycle.arrive(arrived.tolist(), np.where(is_new, came, ctx.now))
    _tell_changes(prepared)
    for row in changed_since(prepared.snapshot.speeds, state.speeds_at, ctx.active).tolist():
        ctx.changes.append(Change("adapt", ctx.now, row))
    cycle.held_back = held_back[present[held_back]]
    _predict(prepared, present)
    _predict_by_steps(prepared, present)
    status[cycle.held_back] = HELD_BACK


def _tell_changes(prepared: PreparedRound) -> None:
    """Tell which jobs have ended, wait again or are seen again, and which nodes have changed."""
    ctx, state, row_of = prepared.ctx, prepared.state, prepared.row_of
    status = ctx.table.status
    known = set(state.finished.tolist())
    for row in ctx.finished:
        if int(prepared.snapshot.table.job[row]) not in known:
            ctx.changes.append(Change("finish", float(ctx.table.finish[row]), row))
    before = _row_or_gone(state.active, row_of)
    is_over = before == GONE
    there = before[~is_over]
    is_over[~is_over] = status[there] > RUNNING
    over = zip(state.active[is_over].tolist(), before[is_over].tolist(), strict=True)
    told = known | {int(prepared.snapshot.table.job[row]) for row in ctx.finished}
    for job, row in over:  # failed, cancelled, or not among those to learn from
        if job not in told:
            ctx.changes.append(Change("finish", ctx.now, row))
    lost = rows_of(state.running, row_of)
    lost = lost[(status[lost] == WAITING) | (status[lost] == FUTURE)]
    seen = rows_of(state.unseen, row_of)
    seen = seen[(status[seen] == WAITING) | (status[seen] == RUNNING)]
    for row in np.union1d(lost, seen).tolist():
        ctx.changes.append(Change("arrive", ctx.now, row))
    rooms = {name: room for name, *room in state.room}
    for node, (name, *room) in enumerate(prepared.room):
        if rooms and (was := rooms.get(name, [0, 0])) != room:
            ctx.changes.append(Change("node-up" if room > was else "node-down", ctx.now, node))


def _room_of(snapshot: LiveSnapshot, cluster: Cluster) -> list[list[Any]]:
    closed = np.bincount(snapshot.closed[:, 0], minlength=len(cluster.names))
    columns = (snapshot.service.tolist(), (cluster.gpus - closed).tolist())
    return [[*each] for each in zip(cluster.names, *columns, strict=True)]


def rows_of(jobs: Ints, row_of: dict[int, int]) -> Rows:
    """The rows of those jobs that have one."""
    rows = _row_or_gone(jobs, row_of)
    found: Rows = rows[rows != GONE]
    return found


def _row_or_gone(jobs: Ints, row_of: dict[int, int]) -> Rows:
    """The row of each job, or `GONE`."""
    return np.fromiter(map(row_of.get, jobs.tolist(), repeat(GONE)), np.int64, len(jobs))


def _predict(prepared: PreparedRound, present: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> None:
    """How long jobs take: the user's word, else the estimator's, else what the cluster assumes."""
    state, table = prepared.state, prepared.ctx.table
    expected = prepared.snapshot.table.expected
    old = prepared.numbering.old
    known = np.flatnonzero(old >= 0)
    was = old[known]
    as_before = _equal(state.expected[was], expected[known])
    as_before &= _equal(state.time_limit[was], table.time_limit[known])
    table.predicted_work[known[as_before]] = state.predicted[was[as_before]]
    predict_rows(prepared, np.flatnonzero(present & np.isnan(table.predicted_work)))


def predict_rows(prepared: PreparedRound, rows: Rows) -> None:
    """Predict how long the jobs of some rows take that have no prediction yet."""
    if not rows.size:
        return
    table = prepared.ctx.table
    expected = prepared.snapshot.table.expected
    work = prepared.cycle.predict(rows, np.full(len(rows), np.nan))
    work = np.where(np.isnan(expected[rows]), work, expected[rows])
    work = np.where(np.isnan(work), table.time_limit[rows], work)
    table.predicted_work[rows] = np.where(
        np.isnan(work), prepared.snapshot.settings.unknown_s, work
    )


def _predict_by_steps(
    prepared: PreparedRound, present: np.ndarray[tuple[int], np.dtype[np.bool_]]
) -> None:
    """How long jobs with known steps take on the fastest type, where their kind was measured.

    What is left is counted anew each time, so that work done on a slow type counts as little as it
    was.
    """
    ctx, seen = prepared.ctx, prepared.snapshot.table
    rows = np.flatnonzero(present & has_known_steps(prepared))
    if rows.size:
        total, done = seen.extra["total_iterations"], seen.steps_done
        left = np.maximum(total[rows] - np.nan_to_num(done[rows]), 0.0)
        left /= ctx.perf.steps_per_work(rows)
        ctx.table.predicted_work[rows] = Units(ctx.table, rows, ctx.now).executed + left


def has_known_steps(prepared: PreparedRound) -> Bools:
    """The rows whose duration follows from their steps and the measured speed of their kind."""
    ctx, seen = prepared.ctx, prepared.snapshot.table
    total = seen.extra.get("total_iterations")
    known = np.zeros(len(ctx.table), np.bool_)
    if ctx.perf.by_type is None or total is None or total.dtype.kind != "f":
        return known
    kind: Ints = prepared.snapshot.speeds["kind"]
    known[: len(kind)] = kind >= 0
    found: Bools = known & ~np.isnan(total) & np.isnan(seen.expected)
    return found


def _equal(a: Floats, b: Floats) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return np.asarray((a == b) | (np.isnan(a) & np.isnan(b)))
