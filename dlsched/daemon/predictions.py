"""When pending jobs are predicted to start: a second worker process forecasts it.

A forecast costs a run of the simulated world. So one answer serves all callers while nothing
changes, and a forecast that takes too long is given up. Predictions are stored, to be compared with
the actual starts. Invariant: predictions change nothing, and a round never waits for one.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dlsched.core.errors import BadInput, PolicyFailed
from dlsched.core.units import WAITING
from dlsched.daemon.cluster import Cluster
from dlsched.daemon.leader_driver import LedgerFollower
from dlsched.daemon.round.snapshot import LiveSnapshot
from dlsched.daemon.round.snapshot_builder import take_snapshot
from dlsched.daemon.round.worker import PolicyWorker
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
class StartForecast:
    """When a job is predicted to start (seconds since the epoch), and what that is based on."""

    at: float
    basis: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    key: object
    made_at: float  # by `boottime`
    cost_s: float
    starts: Mapping[int, StartForecast]
    ends: Mapping[int, float]


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

    async def starts(self, patience_s: float | None = None) -> Mapping[int, StartForecast]:
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
    def ends(self) -> Mapping[int, float]:
        """Predicted ends by job, of the answer that `starts` gave last; seconds since the epoch."""
        known = self._answer
        return known.ends if known is not None and self._is_recent(known) else {}

    async def suppose(self, specs: Sequence[Sequence[JobSpec]]) -> list[StartForecast | str]:
        """Predict the starts of jobs that are not submitted; of each array, the first element's.

        Returns:
            for each, its predicted start, or a text that says why there is none.
        """
        live, now = self._cluster.live, self._cluster.now
        flat = [spec for some in specs for spec in some]
        with live.supposing(flat, now) as ids:
            snapshot = take_snapshot(self._cluster.round_state, "full", now)
            why = {job: live.reason(JobId(job)) for job in ids}
        try:
            found, _ = await self._forecast(snapshot)
        except (PolicyFailed, BadInput) as error:
            return [f"not predicted: {error}" for _ in specs]
        waits = set(snapshot.columns["job"][snapshot.columns["status"] == WAITING].tolist())
        answers: list[StartForecast | str] = []
        place = 0
        for some in specs:
            mine = ids[place : place + len(some)]
            place += len(some)
            starts = [found[job] for job in mine if job in found]
            if not some:
                answers.append("")
            elif starts:
                answers.append(min(starts, key=lambda start: start.at))
            elif mine[0] in waits:
                answers.append("not predicted: none within the time looked ahead")
            else:
                answers.append(f"not predicted while it waits: {why[mine[0]]}")
        return answers

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
            snapshot = take_snapshot(cluster.round_state, "full", cluster.now)
            starts, ends = await self._forecast(snapshot)
            cost_s = boottime() - began
            self._answer = _Answer(key=key, made_at=began, cost_s=cost_s, starts=starts, ends=ends)
            self.failure, self._failures = "", 0
            self._record(snapshot, starts)
            return self._answer
        except (PolicyFailed, BadInput, OSError, TimeoutError) as error:
            self.failure = str(error) or type(error).__name__
            self._not_before = boottime() + min(PAUSE_S * 2.0**self._failures, LONGEST_PAUSE_S)
            self._failures += 1
            log.warning("event=prediction-failed why=%r", self.failure)
            return None
        finally:
            self._asking = None

    async def _forecast(
        self, snapshot: LiveSnapshot
    ) -> tuple[dict[int, StartForecast], dict[int, float]]:
        """The predicted starts of pending jobs, and the predicted ends of all."""
        limit_s = self._cluster.settings.round.predict_within_s
        found = await self._worker.forecast(snapshot, limit_s=limit_s)
        origin = self._cluster.live.origin
        starts = {
            p.job: StartForecast(at=p.start_at + origin, basis=p.basis)
            for p in found
            if not math.isnan(p.start_at)
        }
        return starts, {p.job: p.end_at + origin for p in found if not math.isnan(p.end_at)}

    # -- recorded ------------------------------------------------------------------------------

    def _record(self, snapshot: LiveSnapshot, starts: Mapping[int, StartForecast]) -> None:
        """Store predicted first starts that are new or have moved."""
        at = wall()
        fresh = snapshot.columns["job"][np.isnan(snapshot.columns["first_start"])].tolist()
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
                Prediction(job=JobId(job), made_at=at, start_at=start.at, basis=start.basis)
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
