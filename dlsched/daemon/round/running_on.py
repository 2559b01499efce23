"""A live snapshot run on to its end under one policy or another: what if we switched now?

Running jobs go on from where they are, with the work that they are thought to have left; waiting
ones start when the policy lets them, after what they wait for; nothing more is submitted. Durations
are beliefs (expected times, time limits, …), so figures compare policies with each other; they do
not predict a day.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dlsched.core.arrays import Floats, Ints
from dlsched.core.errors import BadInput
from dlsched.core.units import FUTURE, HELD_BACK, RUNNING, WAITING
from dlsched.daemon.round.forecasts.forecasting import forecast_with
from dlsched.daemon.round.forecasts.later_arrivals import LaterArrivals
from dlsched.daemon.round.parts import RoundSettings, refuse_unfit
from dlsched.daemon.round.prepared_round import predict_rows, prepare
from dlsched.daemon.round.snapshot import LiveSnapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOn:
    """What becomes of the jobs of a snapshot; times are seconds from it, NaN for never.

    Attributes:
        policy: by name.
        jobs: their ids, in order.
        running: had they GPUs in the snapshot?
        gpus: how many each asks for.
        waited_s: how long each had waited since its submission.
        start_s: (next) starts of those that waited.
        finish_s: ends.
    """

    policy: str
    jobs: Ints
    running: np.ndarray[tuple[int], np.dtype[np.bool_]]
    gpus: Ints
    waited_s: Floats
    start_s: Floats
    finish_s: Floats

    def figures(self) -> dict[str, float | int | None]:
        """What comparisons show; None for what cannot be said."""
        waits = ~self.running
        ends = self.finish_s[~np.isnan(self.finish_s)]
        starts = self.start_s[waits & ~np.isnan(self.start_s)]
        jct = (self.finish_s + self.waited_s)[~np.isnan(self.finish_s)]
        return {
            "jobs": len(self.jobs),
            "running": int(self.running.sum()),
            "never_start": int((waits & np.isnan(self.start_s)).sum()),
            "avg_jct": _mean(jct),
            "p95_jct": float(np.percentile(jct, 95)) if jct.size else None,
            "avg_start_in": _mean(starts),
            "makespan": float(ends.max()) if ends.size else None,
        }


def _mean(values: Floats) -> float | None:
    return float(values.mean()) if values.size else None


def run_on(
    snapshot: LiveSnapshot,
    settings: RoundSettings | None = None,
    *,
    horizon_s: float = 365 * 86400.0,
) -> RunOn:
    """Run a snapshot on.

    Other settings know nothing yet; None: those of the snapshot, with their state. It looks no
    further than `horizon_s`.

    Raises:
        BadInput: parts that are not known or do not fit its jobs, or there are no nodes.
        PolicyFailed: a part failed.
    """
    if settings is not None:
        snapshot = snapshot.under(settings)
    prepared = prepare(snapshot)
    if prepared is None:
        raise BadInput("the snapshot has no nodes: nothing can run on")
    table = prepared.ctx.table
    pending = np.isin(table.status, (WAITING, HELD_BACK, FUTURE))
    live = np.flatnonzero(pending | (table.status == RUNNING))
    refuse_unfit(prepared.cycle.parts, table.take(live))
    table.first_start[pending] = np.nan  # the next start counts
    later = LaterArrivals.restored(snapshot.later, table, snapshot.now)
    predict_rows(prepared, later.rows)
    found = forecast_with(prepared, later, horizon_s)
    start, finish = np.full(len(table), np.nan), np.full(len(table), np.nan)
    start[found.rows], finish[found.rows] = found.first_start, found.finish
    now = snapshot.now
    return RunOn(
        policy=snapshot.settings.policy,
        jobs=snapshot.table.job[live],
        running=table.status[live] == RUNNING,
        gpus=table.gang[live],
        waited_s=now - table.submit_time[live],
        start_s=np.where(pending, start - now, np.nan)[live],
        finish_s=(finish - now)[live],
    )
