"""What would happen from here: a live snapshot run on by the simulated world.

The same policies decide, predictions stand for durations, and nothing more arrives. So a pending
job's start can be predicted, together with what the prediction rests on.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace

import numpy as np

from dlsched.composition.parts import twin_of
from dlsched.composition.settings import Costs
from dlsched.core.allocation import Refused
from dlsched.core.arrays import Bools, Floats, Rows
from dlsched.core.context import RoundContext
from dlsched.core.gpu_request import FreeGpus, GpuRequest, HostResources
from dlsched.core.round.cycle import Cycle
from dlsched.core.speed.belief import AsBelieved
from dlsched.core.speed.truth import PerformanceModel
from dlsched.core.units import FUTURE, HELD_BACK, RUNNING, WAITING
from dlsched.core.walk.shape import place_shaped
from dlsched.daemon.round.prepared_round import PreparedRound, has_known_steps, prepare
from dlsched.daemon.round.scenarios import (
    INTERVAL,
    SCENARIOS,
    Foreseen,
    chance_by,
    weighted_quantile,
)
from dlsched.daemon.round.snapshot import LiveSnapshot
from simulate.engine import Engine
from simulate.forecast import forecaster, read
from simulate.results.recorder import Recorder
from simulate.results.tables import Segments
from simulate.world import World

HORIZON_S = 30 * 86400.0
LATE_S, LATE = 60.0, 0.1  # how much longer a job runs that has outrun its prediction
SOON_S = 1.0  # until a job ends that has reached its time limit


def engine_of(prepared: PreparedRound) -> Engine:
    """A simulated world in the state of a live one; it has no arrivals of its own."""
    ctx = prepared.ctx
    table = ctx.table
    believed = np.maximum(table.predicted_work, table.executed)
    performance = AsBelieved(ctx.perf)
    _run_as_believed(ctx, performance)
    world = World(
        table,
        ctx.occupancy,
        np.where(np.isnan(believed), prepared.snapshot.settings.unknown_s, believed),
        performance=performance,
        semantics=ctx.semantics,
        costs=Costs(restart_overhead=ctx.restart_overhead, min_run=ctx.min_run),
        recorder=Recorder(timeline=False, segments=False),
    )
    possible = _possible(prepared)
    active, queue = prepared.cycle.active, prepared.cycle.queue
    going = active[possible[active]]
    status = table.status[going]
    running = int(np.count_nonzero(status == RUNNING))
    world.begin_with(running, going[status == WAITING].tolist())
    world.finished = ctx.finished
    cycle = Cycle(
        replace(ctx, active=going), prepared.cycle.parts, held_back=queue[possible[queue]]
    )
    return Engine.resume(world, cycle, visible=table.submit_time)


def _run_as_believed(ctx: RoundContext, performance: PerformanceModel) -> None:
    """What a running job has done counts as it did; from now on it runs as is believed."""
    table, now = ctx.table, ctx.now
    for row, placement in ctx.occupancy.held.items():
        rate = performance.rate(row, placement, table, ctx.occupancy)
        before, since = float(table.rate[row]), float(table.progress_from[row])
        if rate != before and since < now:
            table.executed[row] += (now - since) * before
            table.progress_from[row] = now
        table.rate[row] = rate


def _possible(prepared: PreparedRound) -> Bools:
    """Which rows could be placed if all others left, on the nodes that there are now.

    The others (their node is drained, say) would keep a run-on going for ever.
    """
    ctx, table = prepared.ctx, prepared.ctx.table
    empty = ctx.occupancy.copy()
    for row in list(empty.held):
        empty.release(row)
    for row in list(empty.reserved):
        empty.unreserve(row)
    host = HostResources(empty, table) if empty.cluster.tracks_host else None
    placement = twin_of(prepared.cycle.parts.placement)
    answers: dict[object, bool] = {}
    possible = np.ones(len(table), np.bool_)
    for row in [*ctx.active.tolist(), *prepared.cycle.queue.tolist()]:
        if table.status[row] == RUNNING:
            continue
        pool = int(table.pool[row])
        request = GpuRequest(row, int(table.gang[row]), table)
        key = (pool, placement.sameness(request), request.shape, request.whole, request.host_needs)
        if key not in answers:
            free = FreeGpus(empty, ctx.pools.nodes[pool])
            if host is not None:
                free.limit(request, host)
            if request.is_shaped:
                chosen = place_shaped(placement, request, free)
            else:
                chosen = placement.place(request, free)
            answers[key] = not isinstance(chosen, Refused)
        possible[row] = answers[key]
    return possible


def forecaster_of(prepared: PreparedRound) -> forecaster:
    """For choosers: what other parts would make of the present state."""
    return forecaster(engine_of(prepared))


def foreseen(
    snapshot: LiveSnapshot,
    *,
    horizon_s: float = HORIZON_S,
    patience_s: float = math.inf,
) -> list[Foreseen]:
    """When each pending job would start, and each job end, under the snapshot's policy.

    Args:
        snapshot: the present.
        horizon_s: look no further.
        patience_s: what it may cost; what was not reached by then is left out.
    """
    prepared = prepare(snapshot)
    if prepared is None:
        return []
    until = time.monotonic() + patience_s
    outlook = Outlook(prepared)
    for factor, _ in SCENARIOS:
        if not outlook.look(factor, horizon_s, until - time.monotonic()):
            break
    start, finish = outlook.starts[0], outlook.ends[0]
    early, late = (outlook.quantile(outlook.starts, q) for q in INTERVAL)
    first, last = (outlook.quantile(outlook.ends, q) for q in INTERVAL)
    basis = basis_of(prepared)
    on_time = outlook.chance_to_meet_deadlines()
    gpus, sources = prepared.ctx.table.gang[outlook.rows], _sources(prepared, outlook.rows)
    columns = (
        *(outlook.jobs, start, finish, early, late, first, last, on_time, gpus),
        np.array(sources, np.object_),
    )
    return [
        Foreseen(job, start_at, end_at, basis, *rest)
        for job, start_at, end_at, *rest in zip(*(c.tolist() for c in columns), strict=True)
        if not (math.isnan(start_at) and math.isnan(end_at))
    ]


class Outlook:
    """The present run on in several scenarios, the likeliest one first.

    Attributes:
        rows: the units that have not ended.
        jobs: their ids.
        pending: which of them have no GPUs now.
        starts: of each scenario, the (next) start of each pending row; NaN for none.
        ends: likewise the end of each row.
        gpu_s: of the first scenario, the GPU time that each row takes from now on.
        segments: of the first scenario, when each row has which GPUs; None: they were not recorded.
        was_cut: whether the first scenario was stopped before its end.
    """

    def __init__(self, prepared: PreparedRound, *, segments: bool = False) -> None:
        """Get ready to look; `segments` has the first scenario's placements recorded."""
        self._prepared = prepared
        self._keeps_segments = segments
        table = prepared.ctx.table
        waits = np.isin(table.status, (WAITING, HELD_BACK, FUTURE))
        table.first_start[waits] = np.nan  # of those that ran before, the next start is asked for
        self._present = engine_of(prepared)
        self._forecaster = forecaster(self._present)
        self.rows: Rows = self._present.all_known
        self.jobs: Rows = prepared.snapshot.columns["job"][self.rows]
        self.pending: Bools = waits[self.rows]
        self.starts: list[Floats] = []
        self.ends: list[Floats] = []
        self.gpu_s: Floats = np.zeros(0)
        self.segments: Segments | None = None
        self.was_cut = False

    def look(
        self, factor: float, horizon_s: float, patience_s: float, *, only: int | None = None
    ) -> bool:
        """Run one scenario; returns whether it came to its end in time.

        One that was stopped counts only when it is the first.

        Args:
            factor: what the time that each job has left is multiplied by.
            horizon_s: look no further.
            patience_s: what it may cost.
            only: the row of interest; what becomes of others after its end is left out.
        """
        is_first = not self.starts
        if patience_s <= 0 and not is_first:
            return False
        ran = self._forecaster.run(
            horizon=horizon_s,
            patience_s=patience_s,
            true_work=self._durations(factor),
            until_ended=only,
            segments=is_first and self._keeps_segments,
        )
        if ran.was_cut and not is_first:
            return False
        found = read(ran.engine, self._present)
        self.starts.append(np.where(self.pending, found.first_start, np.nan))
        self.ends.append(found.finish)
        if is_first:
            self.was_cut = ran.was_cut
            self.gpu_s = self._gpu_s(ran.engine)
            self.segments = ran.engine.world.recorder.segments(ran.engine.now)
        return not ran.was_cut

    def quantile(self, values: list[Floats], q: float) -> Floats:
        """A quantile over the scenarios; NaN for all while not every scenario was run."""
        if len(values) < len(SCENARIOS):
            return np.full(len(self.rows), np.nan)
        return weighted_quantile(np.array(values), q)

    def chance_to_meet_deadlines(self) -> Floats:
        """The chance of each row to meet its deadline; NaN without one, or without scenarios."""
        if len(self.ends) < len(SCENARIOS):
            return np.full(len(self.rows), np.nan)
        table = self._prepared.ctx.table
        return chance_by(np.array(self.ends), (table.submit_time + table.deadline)[self.rows])

    def _durations(self, factor: float) -> Floats:
        """The work that each row really needs in a scenario, what it has done included.

        A running job that has taken longer than predicted is assumed to run on for a tenth of that,
        and for a minute at least. No job runs for longer than its time limit.
        """
        table, now = self._present.world.table, self._present.now
        runs = table.status == RUNNING
        rate = np.where(runs & (table.rate > 0), table.rate, 1.0)
        held_s = np.where(runs, np.maximum(now - table.since, 0.0), 0.0)
        done = table.executed + np.where(runs, np.maximum(now - table.progress_from, 0.0), 0) * rate
        unknown_s = self._prepared.snapshot.settings.unknown_s
        predicted = np.where(np.isnan(table.predicted_work), unknown_s, table.predicted_work)
        left = np.maximum(predicted - done, 0.0)
        late = runs & (left <= 0)
        left[late] = np.maximum(LATE_S, LATE * done[late])
        left *= factor
        most = np.maximum(table.time_limit - held_s, SOON_S) * rate
        needed: Floats = done + np.where(np.isnan(most), left, np.minimum(left, most))
        return needed

    def _gpu_s(self, fork: Engine) -> Floats:
        before, after = self._present.world.table, fork.world.table
        found: Floats = (after.attained - before.attained)[self.rows]
        runs = before.status[self.rows] == RUNNING  # what they held until now is not booked yet
        held = np.maximum(self._present.now - before.since, 0.0) * before.gpus_now
        rest: Floats = np.where(runs, np.maximum(found - held[self.rows], 0.0), found)
        return rest


def _sources(prepared: PreparedRound, rows: Rows) -> list[str]:
    """What the duration of each row comes from, as `prepare` has predicted it."""
    table, expected = prepared.ctx.table, prepared.snapshot.columns["expected"]
    by_steps, estimator = has_known_steps(prepared), prepared.cycle.parts.estimator.name
    other = np.where(np.isnan(table.time_limit), "assumed", "time limit")
    if estimator != "user":
        other = np.full(len(table), estimator)
    unsaid = np.where(by_steps, "measured speed", other)
    found = np.where(np.isnan(expected), unsaid, "expected time")
    sources: list[str] = found[rows].tolist()
    return sources


def basis_of(prepared: PreparedRound) -> str:
    """What the durations are that a prediction rests on."""
    table, snapshot = prepared.ctx.table, prepared.snapshot
    live = np.concatenate([prepared.ctx.active, prepared.cycle.queue])
    says = ~np.isnan(snapshot.columns["expected"][live])
    limits = ~np.isnan(table.time_limit[live]) & ~says
    estimator = prepared.cycle.parts.estimator.name
    words = ["expected times"] if says.any() else []
    if not says.all():
        if estimator != "user":
            words.append(estimator)
        elif limits.any():
            words.append("time limits")
        if estimator == "user" and not (says | limits).all():
            words.append("the assumed time of jobs without a limit")
    if prepared.ctx.perf.by_type is not None:
        words.append("measured speeds")
    return ", ".join(words)
