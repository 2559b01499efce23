"""Answers to questions of the form "what if": each alternative run on in every scenario.

The likeliest scenario of all alternatives comes first, so that an answer whose time is over has
predictions without intervals rather than intervals of a few.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import Any

import numpy as np

from dlsched.core.arrays import Floats
from dlsched.core.errors import BadInput, plural
from dlsched.core.scenarios import INTERVAL, SCENARIOS, SURE
from dlsched.core.units import FUTURE, Units
from dlsched.daemon.round.forecasts.alternatives import Alternative, Outcome, Question, row_of
from dlsched.daemon.round.forecasts.forecasting import basis_of, engine_of, future_of
from dlsched.daemon.round.forecasts.later_arrivals import LaterArrivals
from dlsched.daemon.round.parts import refuse_unfit
from dlsched.daemon.round.prepared_round import PreparedRound, has_known_steps, prepare
from dlsched.daemon.round.snapshot import LiveSnapshot

MOST_JOBS = 2_000  # in one answer
MOST_BLOCKS = 20_000


def answer(question: Question) -> list[Outcome]:
    """What comes of each alternative.

    Raises:
        BadInput: parts that are not known or do not fit the jobs, or there are no nodes.
        PolicyFailed: a part failed.
    """
    until = time.monotonic() + question.patience_s
    asked = [_Asked(question, each) for each in question.alternatives]
    for count, each in enumerate(asked):
        share = (until - time.monotonic()) / (len(asked) - count)
        each.future.look(1.0, max(share, 0.0))
    for factor, _ in SCENARIOS[1:]:
        for each in asked:
            if each.needs_interval and not each.future.scenarios.was_cut:
                each.future.look(factor, until - time.monotonic(), only=each.is_alone)
    found = [
        replace(each.outcome(asked[0]), latest_submit=each.latest_submit(until)) for each in asked
    ]
    as_it_is = next((k for k, each in enumerate(question.alternatives) if each.job), None)
    if as_it_is is not None:
        moves = asked[as_it_is].future.must_move(until)
        found[as_it_is] = replace(found[as_it_is], must_move=moves)
    return found


class _Asked:
    """One alternative, ready to be run on."""

    def __init__(self, question: Question, alternative: Alternative) -> None:
        self._question = question
        self._alternative = alternative
        snapshot = question.present(alternative)
        self._prepared = prepared = _prepared(snapshot)
        row = row_of(snapshot, alternative.job) if alternative.job else -1
        # of others only the likeliest scenario is told
        self.is_alone = row >= 0 and not question.lists_jobs
        self.needs_interval = bool(alternative.job) or question.lists_jobs
        table = prepared.ctx.table
        if alternative.settings is not None:
            live = np.concatenate([prepared.ctx.active, prepared.cycle.queue])
            refuse_unfit(prepared.cycle.parts, table.take(live))
        remarks = []
        if alternative.gang:
            remarks = _resized(prepared, row, alternative.gang)
        self._basis = "; ".join([basis_of(prepared), *remarks])
        self.future = future_of(prepared, row, segments=question.schedule)

    def outcome(self, first: _Asked) -> Outcome:
        """What came of it, beside the first alternative."""
        future = self.future
        more = self._jobs() if self._question.lists_jobs else {}
        if self._question.schedule:
            more |= self._blocks()
        return Outcome(
            starts=future.starts,
            ends=future.ends,
            gpu_s=future.gpu_s,
            basis=self._basis,
            others_later_s=future.others_later_s(first.future),
            reward=future.reward,
            others_reward=future.others_reward(first.future),
            was_cut=future.scenarios.was_cut,
            **self._figures(),
            **more,
        )

    def latest_submit(self, until: float) -> float:
        """When a job that is not submitted can be submitted at the latest and keep its deadline.

        NaN for a job that is submitted, or not sure to keep its deadline.
        """
        is_sure = self.future.on_time >= SURE
        if self._alternative.job not in self._question.supposed or not is_sure:
            return math.nan
        snapshot, row = self._question.present(self._alternative), self.future.row
        jobs = snapshot.table.copy()
        jobs.status[row] = FUTURE
        prepared = _prepared(replace(snapshot, table=jobs))
        table = prepared.ctx.table
        table.predicted_work[row] = self._prepared.ctx.table.predicted_work[row]
        later = LaterArrivals(np.array([row]), table.submit_time.copy())
        unsubmitted = engine_of(prepared, later)
        return self.future.latest_submit(prepared.ctx.now, until, unsubmitted=unsubmitted)

    def _figures(self) -> dict[str, Any]:
        scenarios, ctx = self.future.scenarios, self._prepared.ctx
        ends = scenarios.ends[0]
        known = ~np.isnan(ends)
        jct = (ends - ctx.table.submit_time[scenarios.rows])[known]
        found: dict[str, Any] = {"never": int((~known).sum()), "total": len(ends)}
        if jct.size:
            found["mean_jct_s"] = float(jct.mean())
            found["p95_jct_s"] = float(np.percentile(jct, 95))
            found["all_done_s"] = float(ends[known].max()) - ctx.now
        return found

    def _jobs(self) -> dict[str, Any]:
        future, scenarios = self.future, self.future.scenarios
        columns: dict[str, Any] = {
            "job": future.jobs,
            "gpus": self._prepared.ctx.table.gang[scenarios.rows],
            "waits": scenarios.pending.astype(np.int64),
            "start": scenarios.starts[0],
            "end": scenarios.ends[0],
        }
        for name, q in zip(("p10", "p90"), INTERVAL, strict=True):
            columns[f"start_{name}"] = scenarios.quantile(scenarios.starts, q)
            columns[f"end_{name}"] = scenarios.quantile(scenarios.ends, q)
        first = np.where(scenarios.pending, scenarios.starts[0], scenarios.ends[0])
        order = np.lexsort((future.jobs, first, scenarios.pending))[:MOST_JOBS]
        return {name: column[order] for name, column in columns.items()}

    def _blocks(self) -> dict[str, Any]:
        blocks = self.future.scenarios.segments
        if blocks is None:
            return {}
        jobs = self._prepared.snapshot.table.job
        first = np.lexsort((blocks.job, blocks.start))[:MOST_BLOCKS]
        return {
            "block_job": jobs[blocks.job[first]],
            "block_node": blocks.node[first],
            "block_gpus": blocks.gpus[first],
            "block_start": blocks.start[first],
            "block_end": blocks.end[first],
        }


def _prepared(snapshot: LiveSnapshot) -> PreparedRound:
    prepared = prepare(snapshot)
    if prepared is None:
        raise BadInput("there are no nodes: nothing can be predicted")
    return prepared


def _resized(prepared: PreparedRound, row: int, before: int) -> list[str]:
    """Predict a job on other GPUs than it asked for; returns what that assumes.

    What is left is divided by the speed there over that before, where both are known.
    """
    ctx, table = prepared.ctx, prepared.ctx.table
    gang = int(table.gang[row])
    scales = _measured_scales(prepared, row)
    remarks = []
    if len(ctx.occupancy.cluster.gpu_types) > 1 and not scales:
        remarks.append("as fast on every GPU type (not measured)")
    if gang == before or has_known_steps(prepared)[row]:
        return remarks
    ratio = ctx.perf.step_s(row, gang) / ctx.perf.step_s(row, before)
    if not (math.isfinite(ratio) and ratio > 0) and {gang, before} <= scales:
        rows, types = np.array([row]), ctx.occupancy.cluster.gpu_types
        rates: list[Floats] = [
            ctx.perf.rate(rows, types, np.array([count])) for count in (before, gang)
        ]
        ratio = float(rates[0].max() / rates[1].max())
    if math.isfinite(ratio) and ratio > 0:
        done = float(Units(table, np.array([row]), ctx.now).executed[0])
        left = max(float(table.predicted_work[row]) - done, 0.0)
        table.predicted_work[row] = done + left * ratio
        return [*remarks, "measured speeds on each number of GPUs"]
    return [*remarks, f"as long on {plural(gang, 'GPU')} as on {before} (speed not measured)"]


def _measured_scales(prepared: PreparedRound, row: int) -> set[int]:
    """The numbers of GPUs on which the speed of a job's kind was measured."""
    speeds = prepared.snapshot.speeds
    if not speeds or row >= len(speeds["kind"]) or speeds["kind"][row] < 0:
        return set()
    mine = (speeds["of"] == speeds["kind"][row]) & (speeds["partner"] < 0)
    return set(speeds["gpus"][mine].tolist())
