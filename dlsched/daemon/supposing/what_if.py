"""Questions of users about alternatives: another process simulates them, one after the other.

Invariant: a question changes nothing, and neither a round nor a recorded prediction waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from dlsched.core.units import FUTURE, WAITING
from dlsched.daemon.cluster import Cluster
from dlsched.daemon.live.job_columns import SUSPENDED
from dlsched.daemon.round.forecasts.alternatives import Alternative, Outcome, Question, row_of
from dlsched.daemon.round.parts import RoundSettings
from dlsched.daemon.round.snapshot_builder import copy_present
from dlsched.daemon.round.worker import PolicyWorker
from dlsched.daemon.rpc_errors import NotPossible, TooMuch
from dlsched.db.records import JobSpec
from dlsched.protocol.messages import JobId
from dlsched.system.clock import boottime

NICE = 10  # rounds and predictions come first
IN_LINE_S = 30.0  # so long a question waits for those before it


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """One alternative as a user asks for it.

    Attributes:
        spec: what the job of interest asks for; None: as it does now, or there is none.
        gang: GPUs for which the duration of the job was said, where it asks for others.
        settings: the policy; None: the present one.
    """

    spec: JobSpec | None = None
    gang: int = 0
    settings: RoundSettings | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Answer:
    """What came of the alternatives, by their places.

    Attributes:
        at: when the snapshot was taken, on the policy's clock.
        outcomes: of the alternatives, in their order.
        why: the reasons for which the job of interest may not start now; empty: it may.
    """

    at: float
    outcomes: Sequence[Outcome]
    why: Sequence[str]


class WhatIf:
    """Answers questions, one of each user at a time."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._worker = PolicyWorker(nice=NICE)
        self._turn = asyncio.Lock()
        self._since: dict[str, float] = {}  # by user, when the question came

    async def stop(self) -> None:
        """End the process."""
        await self._worker.close()

    async def ask(
        self,
        user: str,
        wanted: Sequence[Wanted],
        *,
        job: JobId | None = None,
        lists_jobs: bool = False,
        schedule: bool = False,
    ) -> Answer:
        """What comes of some alternatives of a live job, of one that is not submitted, or of all.

        Args:
            user: whose question it is.
            wanted: the alternatives; of a live job and of all jobs, the first is the present.
            job: the live job; None: one that is not submitted if the alternatives have specs.
            lists_jobs: tell what becomes of each job.
            schedule: tell when each job has which GPUs.

        Raises:
            BadInput: parts of a policy that are not known, or that do not fit the jobs.
            PolicyFailed: a part failed, or took too long.
            TooMuch: the user's last question is not answered yet, or others take long.
        """
        before = self._since.get(user)
        if before is not None:
            raise TooMuch(
                f"what-if: one question of a user at a time; the last one of {user}, "
                f"{boottime() - before:.0f} s ago, is not answered yet"
            )
        self._since[user] = boottime()
        try:
            try:
                async with asyncio.timeout(IN_LINE_S):
                    await self._turn.acquire()
            except TimeoutError:
                raise TooMuch(
                    f"what-if: questions of other users have taken {IN_LINE_S:g} s; ask again later"
                ) from None
            try:
                return await self._answer(wanted, job, lists_jobs=lists_jobs, schedule=schedule)
            finally:
                self._turn.release()
        finally:
            del self._since[user]

    async def _answer(
        self, wanted: Sequence[Wanted], job: JobId | None, *, lists_jobs: bool, schedule: bool
    ) -> Answer:
        cluster = self._cluster
        within_s = cluster.settings.what_if.within_s
        # the same request is supposed once, however many policies are asked for
        bodies = {id(each.spec): _alone(each.spec) for each in wanted if each.spec is not None}
        unseen: dict[int, str] = {}
        for key, spec in bodies.items() if job is None else ():
            unseen[key] = self._hindrance(spec)
            await asyncio.sleep(0)  # others have the loop: with many jobs each takes milliseconds
        live, now = cluster.live, cluster.now
        if job is not None and job not in live.jobs.row_of:
            raise NotPossible(f"job {job} has ended")
        with live.supposing(list(bodies.values()), now) as ids:
            snapshot = copy_present(cluster.round_state, now)
            status = snapshot.table.status
            for number, key in zip(ids, bodies, strict=True):
                if key in unseen:  # supposed together, they would share what quotas leave
                    status[row_of(snapshot, number)] = FUTURE if unseen[key] else WAITING
            if job is not None and status[row_of(snapshot, job)] == FUTURE:
                suspended = live.jobs.get("phase", live.jobs.row_of[job]) == SUSPENDED
                unseen[0] = "it is suspended" if suspended else live.reason(job)
        numbers = dict(zip(bodies, ids, strict=True))
        asked = []
        for each in wanted:
            other = numbers[id(each.spec)] if each.spec is not None else 0
            mine, like = (job, other) if job is not None else (other, 0)
            gang = each.gang if other else 0
            settings = each.settings
            asked.append(Alternative(job=mine, like=like, gang=gang, settings=settings))
        # all are compared with the first: for a job that is not there, the cluster without it
        is_new = job is None and bool(ids)
        question = Question(
            snapshot=snapshot,
            supposed=tuple(ids),
            alternatives=(Alternative(), *asked) if is_new else tuple(asked),
            lists_jobs=lists_jobs,
            schedule=schedule,
        )
        outcomes = (await self._worker.suppose(question, limit_s=within_s))[is_new:]
        why = [unseen.get(0 if job is not None else id(each.spec), "") for each in wanted]
        return Answer(at=now, outcomes=outcomes, why=why)

    def _hindrance(self, spec: JobSpec) -> str:
        """Why a job that is not submitted could not start now, though GPUs were free; or empty."""
        live, now = self._cluster.live, self._cluster.now
        with live.supposing([spec], now) as [number]:
            eligible = live.judge(now)[live.jobs.row_of[number]]
            return "" if eligible else live.reason(JobId(number))


def _alone(spec: JobSpec) -> JobSpec:
    """The spec without what ties a job to others."""
    return replace(spec, array=None, index=0, body=replace(spec.body, dependencies=()))
