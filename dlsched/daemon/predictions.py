"""When pending jobs are predicted to start: a second worker process forecasts it.

A forecast costs a run of the simulated world. So one answer serves all callers while nothing
changes, and a forecast that takes too long is given up. Predictions are stored, to be compared with
the actual starts. Invariant: predictions change nothing, and a round never waits for one.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dlsched.core.errors import BadInput, PolicyFailed
from dlsched.core.scenarios import SURE
from dlsched.core.units import WAITING
from dlsched.daemon.cluster import Cluster
from dlsched.daemon.leader_driver import LedgerFollower
from dlsched.daemon.live.live_state import LiveState
from dlsched.daemon.round.forecasts.foreseen import Foreseen
from dlsched.daemon.round.snapshot import LiveSnapshot
from dlsched.daemon.round.snapshot_builder import copy_present
from dlsched.daemon.round.worker import PolicyWorker
from dlsched.daemon.turns import in_turns
from dlsched.daemon.writer import TermBegun
from dlsched.db.records import JobSpec, Prediction
from dlsched.protocol.messages import JobId
from dlsched.system.clock import boottime, wall

log = logging.getLogger("dlsched.daemon.predictions")
NICE = 5  # rounds come first
OLD_S = 60.0  # an answer serves no longer, though nothing happens
PAUSE_S, LONGEST_PAUSE_S = 30.0, 3600.0  # after one that failed, and each time twice as long
SHARE = 0.05  # of one processor's time, for predictions that no client asked for
MOVED_S, MOVED = 60.0, 0.1  # a prediction that has moved by so much is another one


@dataclass(frozen=True, slots=True, kw_only=True)
class JobForecast:
    """When a job is predicted to start and end, in seconds since the epoch; NaN for unknown.

    Attributes:
        at: its start; NaN for a job that runs.
        basis: what the prediction is based on.
        p10, p90: the interval of the start.
        end_at: its end.
        end_p10, end_p90: the interval of the end.
        on_time: the chance that it meets its deadline; NaN without one.
        gpus: that it asks for.
        source: of its own duration.
        refused: why the policy would refuse it for good; empty where it would not.
    """

    at: float
    basis: str
    p10: float = math.nan
    p90: float = math.nan
    end_at: float = math.nan
    end_p10: float = math.nan
    end_p90: float = math.nan
    on_time: float = math.nan
    gpus: int | None = None
    source: str = ""
    refused: str = ""

    @classmethod
    def of(cls, told: Foreseen, origin: float) -> JobForecast:
        """The forecast of a policy's clock that shows 0 at `origin`."""
        return cls(
            at=told.start_at + origin,
            basis=told.basis,
            p10=told.start_p10 + origin,
            p90=told.start_p90 + origin,
            end_at=told.end_at + origin,
            end_p10=told.end_p10 + origin,
            end_p90=told.end_p90 + origin,
            on_time=told.on_time,
            gpus=told.gpus,
            source=told.source,
            refused=told.refused,
        )


@dataclass(frozen=True, kw_only=True)
class _Answer:
    key: object
    made_at: float  # by `boottime`
    cost_s: float
    told: Mapping[int, JobForecast]

    @cached_property
    def starts(self) -> dict[int, JobForecast]:
        """Of the jobs with a predicted start."""
        return {job: each for job, each in self.told.items() if not math.isnan(each.at)}

    @cached_property
    def ends(self) -> dict[int, JobForecast]:
        """Of the jobs with a predicted end."""
        return {job: each for job, each in self.told.items() if not math.isnan(each.end_at)}


class Predictions(LedgerFollower):
    """Makes, remembers and records predictions.

    Attributes:
        failure: why the last forecast failed; empty when it did not.
    """

    def __init__(self, cluster: Cluster, worker: PolicyWorker | None = None) -> None:
        self._cluster = cluster
        self._worker = worker or PolicyWorker(nice=NICE)
        self._answer: _Answer | None = None
        self._asking: asyncio.Task[_Answer | None] | None = None
        self._not_before = 0.0
        self._failures = 0
        self._recorded: dict[int, float] = {}
        self._task: asyncio.Task[None] | None = None
        self.failure = ""
        cluster.driver.follow(self)

    def term_began(self, term: TermBegun) -> None:
        """Forget which predictions were recorded."""
        self._recorded.clear()

    def start(self) -> None:
        """Start to predict now and then, so that every job that waits long has a prediction."""
        self._task = asyncio.create_task(self._now_and_then(), name="predictions")

    async def stop(self) -> None:
        """Stop, with the worker."""
        tasks = [task for task in (self._task, self._asking) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._worker.close()

    # -- asked ---------------------------------------------------------------------------------

    async def starts(self, patience_s: float | None = None) -> Mapping[int, JobForecast]:
        """Predicted starts by job; the last known ones when new ones take too long.

        It waits `patience_s`; None: as long as a forecast may take.
        """
        known = self._answer
        if known is not None and self._serves(known):
            return known.starts
        if self._asking is None:
            if boottime() < self._not_before:
                return {}
            self._asking = asyncio.create_task(self._ask(), name="prediction")
        await asyncio.wait([self._asking], timeout=patience_s)
        known = self._answer
        return known.starts if known is not None and self._is_recent(known) else {}

    @property
    def ends(self) -> Mapping[int, JobForecast]:
        """Forecasts of the jobs with a predicted end, of the answer that `starts` gave last."""
        known = self._answer
        return known.ends if known is not None and self._is_recent(known) else {}

    async def of(self, job: int, patience_s: float) -> JobForecast | None:
        """The forecast for one job, from a snapshot that has it; None: not within `patience_s`."""
        until = boottime() + patience_s
        for _ in range(2):  # the one that is being made may be from before the job
            known = self._answer
            if known is not None and self._is_recent(known) and job in known.told:
                return known.told[job]
            if self._asking is None:
                if boottime() < self._not_before:
                    return None
                self._asking = asyncio.create_task(self._ask(), name="prediction")
            await asyncio.wait([self._asking], timeout=max(until - boottime(), 0.0))
        known = self._answer
        return known.told.get(job) if known is not None and self._is_recent(known) else None

    async def suppose(self, specs: Sequence[Sequence[JobSpec]]) -> list[JobForecast | str]:
        """Predict the starts of jobs that are not submitted; of each array, the first element's.

        Returns:
            for each, its predicted start, or a text that says why there is none.
        """
        live, now = self._cluster.live, self._cluster.now
        flat = [spec for some in specs for spec in some]
        with live.supposing(flat, now) as ids:
            snapshot = copy_present(self._cluster.round_state, now)
            why = dict(zip(ids, live.reasons(ids), strict=True))
        try:
            found = await self._forecast(snapshot)
        except (PolicyFailed, BadInput) as error:
            return [f"not predicted: {error}" for _ in specs]
        waits = set(snapshot.table.job[snapshot.table.status == WAITING].tolist())
        answers: list[JobForecast | str] = []
        place = 0
        for some in specs:
            mine = ids[place : place + len(some)]
            place += len(some)
            told = [found[job] for job in mine if job in found]
            starts = [each for each in told if not math.isnan(each.at)]
            if not some:
                answers.append("")
            elif starts:
                answers.append(min(starts, key=lambda start: start.at))
            elif refused := next((each.refused for each in told if each.refused), ""):
                answers.append(f"would be declined: {refused}")
            elif mine[0] in waits:
                answers.append("not predicted: none within the time looked ahead")
            else:
                answers.append(f"not predicted while it waits: {why[mine[0]]}")
        return answers

    async def with_and_without(
        self, specs: Sequence[JobSpec]
    ) -> tuple[list[JobForecast | None], list[int]]:
        """Predict the cluster with jobs that are not submitted, and without them.

        Returns:
            the forecast of each of them, None where there is none; and the jobs that keep their
            deadlines without them only (with the chance that is called `ok`).

        Raises:
            PolicyFailed: there is no prediction.
        """
        cluster = self._cluster
        live, now = cluster.live, cluster.now
        without = copy_present(cluster.round_state, now)
        with live.supposing(specs, now) as ids:
            supposed = copy_present(cluster.round_state, now)
        before, after = await self._forecast(without), await self._forecast(supposed)
        kept = {job for job, told in before.items() if told.on_time >= SURE}
        still = {job for job, told in after.items() if told.on_time >= SURE}
        return [after.get(job) for job in ids], sorted(kept - still)

    def _key(self) -> object:
        state = self._cluster.round_state
        return (state.live.stamp, state.number, state.settings, self._cluster.driver.state.epoch)

    def _serves(self, answer: _Answer) -> bool:
        """Whether an answer still holds; a costly one holds for as long as it took, in any case."""
        age = boottime() - answer.made_at
        return age <= 2 * answer.cost_s or (age <= OLD_S and answer.key == self._key())

    def _is_recent(self, answer: _Answer) -> bool:
        return boottime() - answer.made_at <= OLD_S + answer.cost_s

    async def _ask(self) -> _Answer | None:
        try:
            await self._worker.start()
            cluster, began, key = self._cluster, boottime(), self._key()
            snapshot = copy_present(cluster.round_state, cluster.now)
            told = await self._forecast(snapshot)
            cost_s = boottime() - began
            every = {**told, **_of_unseen(cluster.live, told)}
            self._answer = _Answer(key=key, made_at=began, cost_s=cost_s, told=every)
            self.failure, self._failures = "", 0
            seen = {job: each for job, each in self._answer.starts.items() if job in told}
            self._record(snapshot, seen)
            return self._answer
        except (PolicyFailed, BadInput, OSError, TimeoutError) as error:
            self.failure = str(error) or type(error).__name__
            self._not_before = boottime() + min(PAUSE_S * 2.0**self._failures, LONGEST_PAUSE_S)
            self._failures += 1
            log.warning("event=prediction-failed why=%r", self.failure)
            return None
        finally:
            self._asking = None

    async def _forecast(self, snapshot: LiveSnapshot) -> dict[int, JobForecast]:
        """The forecasts by job."""
        limit_s = self._cluster.settings.round.predict_within_s
        found = await self._worker.forecast(snapshot, limit_s=limit_s)
        origin = self._cluster.live.origin
        return {each.job: JobForecast.of(each, origin) async for each in in_turns(found)}

    # -- recorded ------------------------------------------------------------------------------

    def _record(self, snapshot: LiveSnapshot, starts: Mapping[int, JobForecast]) -> None:
        """Store predicted first starts that are new or have moved."""
        at = wall()
        fresh = snapshot.table.job[np.isnan(snapshot.table.first_start)].tolist()
        rows: list[Prediction] = []
        for job in fresh:
            start = starts.get(job)
            if start is None:
                continue
            before = self._recorded.get(job)
            moves = max(MOVED_S, MOVED * max(start.at - at, 0.0))
            if before is not None and abs(start.at - before) < moves:
                continue
            self._recorded[job] = start.at
            rows.append(
                Prediction(
                    job=JobId(job),
                    made_at=at,
                    start_at=start.at,
                    basis=start.basis,
                    policy=snapshot.settings.policy,
                    source=start.source,
                    gpus=start.gpus,
                    start_p10=_known(start.p10),
                    start_p90=_known(start.p90),
                    end_at=_known(start.end_at),
                    end_p10=_known(start.end_p10),
                    end_p90=_known(start.end_p90),
                )
            )
        self._recorded = {job: known for job, known in self._recorded.items() if job in starts}
        if rows:
            self._cluster.driver.note(*rows)

    def lacking(self) -> bool:
        """Whether any waiting job has no recorded prediction."""
        return any(job not in self._recorded for job in self._cluster.live.waiting())

    async def _now_and_then(self) -> None:
        while True:
            every = self._cluster.settings.round.predict_every_s
            cost = self._answer.cost_s if self._answer is not None else 0.0
            await asyncio.sleep(max(every or OLD_S, cost / SHARE))
            driver = self._cluster.driver
            if every and driver.leading and not driver.store_down and self.lacking():
                await self.starts()


def _of_unseen(live: LiveState, told: Mapping[int, JobForecast]) -> dict[int, JobForecast]:
    """The forecasts of jobs that policies do not see yet: they follow from the others'.

    A job with a later begin starts then, if GPUs are free. An array's element over its limit starts
    when an earlier one ends.
    """
    found: dict[int, JobForecast] = {}
    arrays: dict[int, list[int]] = {}
    for job in sorted(live.requests.specs):
        reason = "" if job in told else live.unseen_because(JobId(job))
        spec = live.requests.specs[job]
        if reason.startswith("BeginTime") and spec.body.begin_at is not None:
            basis = "its begin time, if GPUs are free then"
            found[job] = _from(spec, spec.body.begin_at, basis, math.nan)
        elif reason.startswith("JobArrayTaskLimit"):
            arrays.setdefault(job - spec.index, []).append(job)
    for first, waiting in arrays.items():
        shape = live.requests.specs[waiting[0]].array
        members = range(first, first + (len(shape.tasks) if shape is not None else 0))
        earlier = [told[job] for job in members if job in told]
        ends = [each.end_at for each in earlier if not math.isnan(each.end_at)]
        took = [each.end_at - each.at for each in earlier if not math.isnan(each.end_at - each.at)]
        heapq.heapify(ends)
        for job in waiting:
            if not ends:
                break
            spec = live.requests.specs[job]
            basis = "the ends of earlier elements of its array"
            made = _from(spec, heapq.heappop(ends), basis, max(took, default=math.nan))
            found[job] = made
            if not math.isnan(made.end_at):
                heapq.heappush(ends, made.end_at)
    return found


def _from(spec: JobSpec, at: float, basis: str, otherwise_s: float) -> JobForecast:
    """The forecast of a job that starts at `at`; it takes what it says, else `otherwise_s`."""
    said = (spec.body.expected_s, spec.body.time_limit_s)
    takes_s = next((each for each in said if each is not None), otherwise_s)
    return JobForecast(at=at, basis=basis, end_at=at + takes_s, gpus=spec.body.gpus)


def _known(at: float) -> float | None:
    return None if math.isnan(at) else at
