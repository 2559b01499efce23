"""When pending jobs are thought to start: asked of a process beside the rounds', and remembered.

A prediction costs a run of the simulated world, so one answer serves all who ask while nothing
changes, and a slow one is given up rather than waited for. What was told is stored, so that it can
be compared with what came. Invariant: predictions change nothing; a round never waits for one.
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
from dlsched.daemon.clock import boottime, wall
from dlsched.daemon.cluster import Cluster
from dlsched.daemon.round.snapshot import LiveSnapshot
from dlsched.daemon.round.taking import take_snapshot
from dlsched.daemon.round.worker import PolicyWorker
from dlsched.db.records import JobSpec, Prediction
from dlsched.protocol.messages import JobId

__all__ = ["Foretold", "Predictions"]

log = logging.getLogger("dlsched.daemon.predictions")
NICE = 5  # rounds come first
OLD_S = 60.0  # an answer serves no longer, though nothing happens
PAUSE_S, LONGEST_PAUSE_S = 30.0, 3600.0  # after one that failed, and each time twice as long
SHARE = 0.05  # of one processor's time, for predictions that nobody asked for
MOVED_S, MOVED = 60.0, 0.1  # a prediction that has moved by so much is another one


@dataclass(frozen=True, slots=True, kw_only=True)
class Foretold:
    """When a job is thought to start (seconds since the epoch), and what that rests on."""

    at: float
    basis: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    key: object
    of: float  # the moment that it was asked about
    cost_s: float
    starts: Mapping[int, Foretold]
    ends: Mapping[int, float]


class Predictions:
    """Asks, remembers and records.

    Attributes:
        failure: why the last attempt came to nothing; empty when it did not.
    """

    def __init__(self, cluster: Cluster, worker: PolicyWorker | None = None) -> None:
        self._cluster = cluster
        self._worker = worker or PolicyWorker(nice=NICE)
        self._answer: _Answer | None = None
        self._asking: asyncio.Task[_Answer | None] | None = None
        self._not_before = 0.0
        self._failures = 0
        self._told: dict[int, float] = {}
        self._task: asyncio.Task[None] | None = None
        self.failure = ""
        cluster.predictions = self
        cluster.shell.on_term.append(lambda loaded: self._told.clear())

    def start(self) -> None:
        """Begin to foretell now and then, so that every job that waits long has a prediction."""
        self._task = asyncio.create_task(self._now_and_then(), name="predictions")

    async def stop(self) -> None:
        """End."""
        tasks = [task for task in (self._task, self._asking) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._worker.close()

    # -- asked ---------------------------------------------------------------------------------

    async def starts(self, patience_s: float | None = None) -> Mapping[int, Foretold]:
        """Predicted starts by job; the last known ones when new ones take too long.

        Args:
            patience_s: wait no longer; None: as long as a prediction may take.
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

    async def suppose(self, specs: Sequence[Sequence[JobSpec]]) -> list[Foretold | str]:
        """When jobs would start that are not there; or why that cannot be said.

        Args:
            specs: of each job, or the elements of each array: its first start counts.
        """
        board, now = self._cluster.board, self._cluster.now
        flat = [spec for some in specs for spec in some]
        with board.supposing(flat, now) as ids:
            snapshot = take_snapshot(board, "full", now)
            why = {job: board.reason(JobId(job)) for job in ids}
        try:
            found, _ = await self._forecast(snapshot)
        except (PolicyFailed, BadInput) as error:
            return [f"not predicted: {error}" for _ in specs]
        waits = set(snapshot.columns["job"][snapshot.columns["status"] == WAITING].tolist())
        answers: list[Foretold | str] = []
        place = 0
        for some in specs:
            mine = ids[place : place + len(some)]
            place += len(some)
            starts = [found[job] for job in mine if job in found]
            if not some:
                answers.append("")
            elif starts:
                answers.append(min(starts, key=lambda told: told.at))
            elif mine[0] in waits:
                answers.append("not predicted: none within the time looked ahead")
            else:
                answers.append(f"not predicted while it waits: {why[mine[0]]}")
        return answers

    def _key(self) -> object:
        board = self._cluster.board
        return (board.stamp, board.round_number, board.settings, self._cluster.shell.state.epoch)

    def _serves(self, answer: _Answer) -> bool:
        """An answer of now; one that costs much serves as long again, whatever has happened."""
        age = boottime() - answer.of
        return age <= 2 * answer.cost_s or (age <= OLD_S and answer.key == self._key())

    def _is_recent(self, answer: _Answer) -> bool:
        return boottime() - answer.of <= OLD_S + answer.cost_s

    async def _ask(self) -> _Answer | None:
        try:
            await self._worker.start()
            cluster, began, key = self._cluster, boottime(), self._key()
            snapshot = take_snapshot(cluster.board, "full", cluster.now)
            starts, ends = await self._forecast(snapshot)
            cost_s = boottime() - began
            self._answer = _Answer(key=key, of=began, cost_s=cost_s, starts=starts, ends=ends)
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
    ) -> tuple[dict[int, Foretold], dict[int, float]]:
        """Starts of pending jobs, and ends of all."""
        limit_s = self._cluster.settings.round.predict_within_s
        found = await self._worker.forecast(snapshot, limit_s=limit_s)
        origin = self._cluster.board.origin
        starts = {
            p.job: Foretold(at=p.start_at + origin, basis=p.basis)
            for p in found
            if not math.isnan(p.start_at)
        }
        return starts, {p.job: p.end_at + origin for p in found if not math.isnan(p.end_at)}

    # -- recorded ------------------------------------------------------------------------------

    def _record(self, snapshot: LiveSnapshot, starts: Mapping[int, Foretold]) -> None:
        """Store first starts that were not told before, or that have moved."""
        at = wall()
        fresh = snapshot.columns["job"][np.isnan(snapshot.columns["first_start"])].tolist()
        rows: list[Prediction] = []
        for job in fresh:
            told = starts.get(job)
            if told is None:
                continue
            before = self._told.get(job)
            moves = max(MOVED_S, MOVED * max(told.at - at, 0.0))
            if before is not None and abs(told.at - before) < moves:
                continue
            self._told[job] = told.at
            rows.append(Prediction(job=JobId(job), made_at=at, start_at=told.at, basis=told.basis))
        self._told = {job: known for job, known in self._told.items() if job in starts}
        if rows:
            self._cluster.shell.note(*rows)

    def lacking(self) -> bool:
        """Does somebody wait of whom nothing has been foretold?"""
        return any(job not in self._told for job in self._cluster.board.waiting())

    async def _now_and_then(self) -> None:
        while True:
            every = self._cluster.settings.round.predict_every_s
            cost = self._answer.cost_s if self._answer is not None else 0.0
            await asyncio.sleep(max(every or OLD_S, cost / SHARE))
            shell = self._cluster.shell
            if every and shell.leading and not shell.store_down and self.lacking():
                await self.starts()
