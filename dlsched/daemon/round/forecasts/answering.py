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
from dlsched.daemon.round.forecasts.forecasting import HORIZON_S, Outlook, basis_of, latest_submit
from dlsched.daemon.round.must_move import must_move
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
    futures = [_Future(question, each) for each in question.alternatives]
    for count, future in enumerate(futures):
        share = (until - time.monotonic()) / (len(futures) - count)
        future.outlook.look(1.0, HORIZON_S, max(share, 0.0))
    for factor, _ in SCENARIOS[1:]:
        for future in futures:
            if future.needs_interval and not future.outlook.was_cut:
                patience_s = until - time.monotonic()
                future.outlook.look(factor, HORIZON_S, patience_s, only=future.only)
    found = [
        replace(future.outcome(futures[0]), latest_submit=future.latest_submit(until))
        for future in futures
    ]
    as_it_is = next((k for k, each in enumerate(question.alternatives) if each.job), None)
    if as_it_is is not None:
        alternative, outlook = question.alternatives[as_it_is], futures[as_it_is].outlook
        moves = must_move(question, alternative, outlook, until)
        found[as_it_is] = replace(found[as_it_is], must_move=moves)
    return found


class _Future:
    """One alternative, ready to be run on."""

    def __init__(self, question: Question, alternative: Alternative) -> None:
        self._question = question
        self._job = alternative.job
        self._alternative = alternative
        snapshot = question.present(alternative)
        self._prepared = prepared = _prepared(snapshot)
        # the row of interest, if it alone is: of others only the likeliest scenario is told
        self.only = row_of(snapshot, self._job) if self._job and not question.lists_jobs else None
        self.needs_interval = bool(self._job) or question.lists_jobs
        table = prepared.ctx.table
        if alternative.settings is not None:
            live = np.concatenate([prepared.ctx.active, prepared.cycle.queue])
            refuse_unfit(prepared.cycle.parts, table.take(live))
        remarks = []
        if alternative.gang:
            remarks = _resized(prepared, row_of(snapshot, alternative.job), alternative.gang)
        self._basis = "; ".join([basis_of(prepared), *remarks])
        self.outlook = Outlook(prepared, segments=question.schedule)

    def outcome(self, first: _Future) -> Outcome:
        outlook = self.outlook
        mine = np.flatnonzero(outlook.jobs == self._job)
        place = int(mine[0]) if mine.size else -1
        more = self._jobs() if self._question.lists_jobs else {}
        if self._question.schedule:
            more |= self._blocks()
        return Outcome(
            starts=np.array([s[place] for s in outlook.starts if place >= 0], np.float64),
            ends=np.array([e[place] for e in outlook.ends if place >= 0], np.float64),
            gpu_s=float(outlook.gpu_s[place]) if place >= 0 else math.nan,
            basis=self._basis,
            others_later_s=self._later_than(first),
            reward=outlook.reward(place) if place >= 0 else math.nan,
            others_reward=self._more_than(first),
            was_cut=outlook.was_cut,
            **self._figures(),
            **more,
        )

    def latest_submit(self, until: float) -> float:
        """When a job that is not submitted can be submitted at the latest and keep its deadline.

        NaN for a job that is submitted, or not sure to keep its deadline.
        """
        place = np.flatnonzero(self.outlook.jobs == self._job)
        chance = self.outlook.chance_to_meet_deadlines()[place]
        if self._job not in self._question.supposed or not (chance >= SURE).all() or not place.size:
            return math.nan
        snapshot = self._question.present(self._alternative)
        row, columns = row_of(snapshot, self._job), dict(snapshot.columns)
        columns["status"] = columns["status"].copy()
        columns["status"][row] = FUTURE
        prepared = _prepared(replace(snapshot, columns=columns))
        prepared.ctx.table.predicted_work[row] = self._prepared.ctx.table.predicted_work[row]
        return latest_submit(prepared, row, until)

    def _later_than(self, before: _Future) -> float:
        """How much later other jobs end than in another future, on average."""
        mine, theirs = self.outlook, before.outlook
        _, here, there = np.intersect1d(mine.jobs, theirs.jobs, return_indices=True)
        is_other = mine.jobs[here] != self._job
        later = (mine.ends[0][here] - theirs.ends[0][there])[is_other]
        later = later[~np.isnan(later)]
        return float(later.mean()) if later.size else math.nan

    def _more_than(self, before: _Future) -> float:
        """How much more other jobs earn than in another future, together."""
        mine, theirs = self.outlook, before.outlook
        _, here, there = np.intersect1d(mine.jobs, theirs.jobs, return_indices=True)
        more = (mine.rewards()[here] - theirs.rewards()[there])[mine.jobs[here] != self._job]
        return float(np.nansum(more)) if not np.isnan(more).all() else math.nan

    def _figures(self) -> dict[str, Any]:
        outlook, ctx = self.outlook, self._prepared.ctx
        ends = outlook.ends[0]
        known = ~np.isnan(ends)
        jct = (ends - ctx.table.submit_time[outlook.rows])[known]
        found: dict[str, Any] = {"never": int((~known).sum()), "total": len(ends)}
        if jct.size:
            found["mean_jct_s"] = float(jct.mean())
            found["p95_jct_s"] = float(np.percentile(jct, 95))
            found["all_done_s"] = float(ends[known].max()) - ctx.now
        return found

    def _jobs(self) -> dict[str, Any]:
        outlook = self.outlook
        columns: dict[str, Any] = {
            "job": outlook.jobs,
            "gpus": self._prepared.ctx.table.gang[outlook.rows],
            "waits": outlook.pending.astype(np.int64),
            "start": outlook.starts[0],
            "end": outlook.ends[0],
        }
        for name, q in zip(("p10", "p90"), INTERVAL, strict=True):
            columns[f"start_{name}"] = outlook.quantile(outlook.starts, q)
            columns[f"end_{name}"] = outlook.quantile(outlook.ends, q)
        first = np.where(outlook.pending, outlook.starts[0], outlook.ends[0])
        order = np.lexsort((outlook.jobs, first, outlook.pending))[:MOST_JOBS]
        return {name: column[order] for name, column in columns.items()}

    def _blocks(self) -> dict[str, Any]:
        blocks = self.outlook.segments
        if blocks is None:
            return {}
        jobs = self._prepared.snapshot.columns["job"]
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
