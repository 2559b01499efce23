"""The round loop: when a round is due, who decides it, and what comes of it.

A full round comes by the timer; a fill as soon as something has changed, after a short pause in
which more may change. One round at a time, and its transaction is durable before the next begins:
a slow database makes rounds slower, never more. A policy that fails leaves the present plan alone.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Sequence
from typing import Any

from dlsched.core.context import Mode
from dlsched.core.errors import BadInput, DlschedError, PolicyFailed
from dlsched.daemon.clock import boottime, wall
from dlsched.daemon.cluster import Cluster
from dlsched.daemon.control.machines import evict
from dlsched.daemon.faultpoints import faultpoint
from dlsched.daemon.metrics import Metrics
from dlsched.daemon.round.decided import Decided
from dlsched.daemon.round.parts import RoundSettings
from dlsched.daemon.round.plan import Plan, carry_out, due, refuse_offences, verify
from dlsched.daemon.round.taking import take_snapshot
from dlsched.daemon.round.worker import PolicyWorker
from dlsched.db.records import Event, PolicyState, RoundDone
from dlsched.protocol import leader
from dlsched.protocol.ledger import JobStatus, Write
from dlsched.protocol.messages import JobId, RunId, StopReason

__all__ = ["Rounds"]

log = logging.getLogger("dlsched.daemon.rounds")
LOOK_S = 1.0  # between two looks at limits, deadlines and silence
LATE_S = 60.0  # the node's keeper ends a run at its limit; after this the daemon asks
LONGEST_PAUSE_S = 60.0
Wish = leader.StopAsked | leader.CancelAsked | leader.AttachAsked


class Rounds:
    """Decides rounds while this process leads.

    Attributes:
        failures: rounds in a row that failed.
        total_failures: since this process began.
        last_failure: why, in one line.
        last_wall_s: how long the last decision took.
        slow: why rounds are said to be slow; empty when they are not.
    """

    def __init__(self, cluster: Cluster, worker: PolicyWorker, metrics: Metrics) -> None:
        self._cluster = cluster
        self._worker = worker
        self._metrics = metrics
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._full_at = 0.0
        self._look_at = 0.0
        self._pause_until = 0.0
        self._wake_at = self._policy_wake_at = float("inf")
        self._seen_until = float("-inf")  # on the policy's clock: the last snapshot
        self.failures = 0
        self.total_failures = 0
        self.last_failure = ""
        self.last_wall_s = 0.0
        self.slow = ""
        cluster.rounds = self
        cluster.shell.on_reserve.append(self._reserved)
        cluster.shell.on_refused.append(self._refused)
        cluster.shell.on_term.append(lambda loaded: self._wake.set())

    def start(self) -> None:
        """Begin."""
        self._task = asyncio.create_task(self._loop(), name="rounds")

    async def stop(self) -> None:
        """End; a round that is being decided is lost whole."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._worker.close()

    # -- what others say ---------------------------------------------------------------------------

    def _reserved(self, writes: Sequence[Write]) -> None:
        if self._cluster.board.changed:
            self._wake.set()

    def _refused(self, job: JobId, why: str) -> None:
        self._cluster.board.decline(job, why, self._cluster.now)

    def nudge(self) -> None:
        """Something has changed that is not in the ledger."""
        self._wake.set()

    def policy_switched(self) -> None:
        """Another policy decides: at once, and with a clean record."""
        self.failures, self.last_failure = 0, ""
        self._pause_until = self._full_at = 0.0
        self._wake.set()

    def configured(self) -> None:
        """The configuration has changed."""
        self._worker.time_limit_s = self._cluster.settings.round.time_limit_s
        self._full_at = min(self._full_at, boottime() + self._cluster.settings.round.interval_s)
        self._wake.set()

    async def validate(self, settings: RoundSettings) -> None:
        """Whether parts could decide, tried in the worker.

        Raises:
            BadInput: one line.
        """
        board = self._cluster.board
        try:
            await self._worker.try_policy(settings, take_snapshot(board, "full", self._cluster.now))
        except PolicyFailed as error:
            raise BadInput(str(error)) from None

    # -- the loop ----------------------------------------------------------------------------------

    async def _loop(self) -> None:
        while True:
            try:
                await self._turn()
            except DlschedError as error:
                log.warning("event=round-lost why=%r", str(error))
                await asyncio.sleep(0.1)
            except Exception:
                log.exception("event=round-defect")
                self._failed("a defect of the daemon; see its log")
                await asyncio.sleep(1.0)

    async def _turn(self) -> None:
        cluster, now = self._cluster, boottime()
        due_at = min(self._full_at, self._look_at, self._wake_at)
        pause = max(self._pause_until - now, 0.0)
        try:
            async with asyncio.timeout(max(due_at - now, 0.001)):
                await self._wake.wait()
                await asyncio.sleep(max(cluster.settings.round.fill_after_s, min(pause, LOOK_S)))
        except TimeoutError:
            pass
        self._wake.clear()
        shell, now = cluster.shell, boottime()
        if not shell.leading or shell.store_down:
            self._look_at = self._full_at = now + LOOK_S
            return
        if now >= self._look_at:
            self._look_at = now + LOOK_S
            self._look()
        if leader.recovering(shell.state, now):
            self._look_at = now + 0.2
            return
        await self._start_due()
        if now < self._pause_until:
            return
        full = now >= self._full_at
        if full:
            self._full_at = now + cluster.settings.round.interval_s
        if not any(not row.status.is_terminal for row in shell.reserved.jobs.values()):
            cluster.board.changed = False
            return
        if full or cluster.board.changed or now >= self._wake_at:
            await self._round("full" if full else "fill")
        # what has become due while a round was decided was not in its snapshot
        again = boottime() + cluster.board.next_moment(self._seen_until) - cluster.now
        self._wake_at = min(self._policy_wake_at, again)
        if cluster.board.changed:
            self._wake.set()

    async def _round(self, mode: Mode) -> None:
        cluster, began = self._cluster, boottime()
        board = cluster.board
        self._seen_until = cluster.now
        self._policy_wake_at = float("inf")
        board.changed = False  # from here on: what this snapshot does not have
        snapshot = take_snapshot(board, mode, self._seen_until)
        faultpoint("before-round-decided")
        try:
            decided = await self._worker.decide(snapshot)
            self.last_wall_s = boottime() - began
            faultpoint("after-round-decided")
            if not cluster.shell.leading:
                return
            problems = verify(decided, board)
            refuse_offences(decided, problems)
        except (PolicyFailed, BadInput) as error:
            board.changed = True
            self._failed(str(error))
            return
        news = board.changed  # accepting a decision says that all is seen; this came meanwhile
        self.failures = 0
        self._metrics.decided(mode, self.last_wall_s, decided.cpu_s)
        interval = cluster.settings.round.interval_s
        self.slow = (
            f"a round took {self.last_wall_s:.1f} s, longer than the interval of {interval:g} s"
            if self.last_wall_s > interval
            else ""
        )
        self._policy_wake_at = boottime() + max(decided.wake_at - cluster.now, 0.1)
        if mode == "fill" and decided.changes_nothing:
            kept = board.policy_state, board.round_number
            board.accept(decided)  # reasons and places; its state counts only when it is stored
            board.policy_state, board.round_number = kept
            board.changed = news
            return
        plan = carry_out(decided, board, problems)
        board.changed = board.changed or news
        await self._commit(mode, decided, plan)

    async def _commit(self, mode: Mode, decided: Decided, plan: Plan) -> None:
        cluster, at = self._cluster, wall()
        jobs = cluster.shell.reserved.jobs.values()
        pending = sum(row.status is JobStatus.PENDING for row in jobs)
        row = RoundDone(
            number=decided.number,
            at=at,
            mode=mode,
            policy=decided.policy,
            wall_s=self.last_wall_s,
            cpu_s=decided.cpu_s,
            pending=pending,
            running=len(jobs) - pending,
            starts=len(plan.starts),
            stops=len(plan.stops),
        )
        now = boottime()
        actor = f"policy {decided.policy}"
        ends = [
            leader.CancelAsked(now, -1, JobId(job), why)
            for some, why in (
                (decided.refused, "Admission: the policy refuses it for good"),
                (decided.completed, "the policy's target is reached"),
            )
            for job in some
        ]
        rows: list[object] = [row, PolicyState(state=decided.state), *_events(plan, actor, at)]
        wishes = (*plan.events(now, _run_id), *ends)
        log.info(
            "event=round number=%s mode=%s policy=%s starts=%s stops=%s suspends=%s wall_s=%.4f",
            decided.number, mode, decided.policy, len(plan.starts), len(plan.stops),
            len(plan.suspends), self.last_wall_s,
        )  # fmt: skip
        await cluster.shell.ask(
            lambda token: leader.Together(
                now, (*wishes, leader.AttachAsked(now, tuple(rows), token))
            )
        )

    async def _start_due(self) -> None:
        """Claims whose GPUs have become free."""
        board = self._cluster.board
        if not board.claims:
            return
        plan = due(board)
        if plan.is_empty:
            return
        now = boottime()
        rows = tuple(_events(plan, f"policy {board.settings.policy}", wall()))
        await self._cluster.shell.ask(
            lambda token: leader.Together(
                now, (*plan.events(now, _run_id), leader.AttachAsked(now, rows, token))
            )
        )

    def _failed(self, why: str) -> None:
        self.failures += 1
        self.total_failures += 1
        self.last_failure = why
        self._metrics.policy_failed()
        self._pause_until = boottime() + min(0.5 * 2.0**self.failures, LONGEST_PAUSE_S)
        log.error("event=policy-failed in-a-row=%s why=%r", self.failures, why)

    # -- limits, deadlines, silence, drains --------------------------------------------------------

    def _look(self) -> None:
        cluster = self._cluster
        cluster.observe_silence()
        evict(cluster)
        wishes = [*self._broken(), *self._too_late(), *self._over_limit()]
        if wishes:
            cluster.shell.step(leader.Together(boottime(), tuple(wishes)))

    def _broken(self) -> list[Wish]:
        """Pending jobs whose dependencies can never hold."""
        found: list[Wish] = []
        for job, why in self._cluster.board.never_satisfied(self._cluster.now):
            row = self._cluster.shell.reserved.jobs.get(job)
            if row is not None and row.status is JobStatus.PENDING:
                found += self._cancel(job, "DependencyNeverSatisfied", why)
        return found

    def _too_late(self) -> list[Wish]:
        """Jobs whose deadline has passed; those that run are asked to leave."""
        found: list[Wish] = []
        shell, now = self._cluster.shell, wall()
        for row in shell.reserved.jobs.values():
            if row.status.is_terminal or row.reason == "Deadline":
                continue
            deadline = shell.table.field(row, "deadline_at")
            if deadline is None or now <= deadline:
                continue
            run = shell.reserved.live_run(row.job)
            if run is None or run.stop is not StopReason.CANCEL:
                found += self._cancel(row.job, "Deadline", "its deadline has passed")
        return found

    def _cancel(self, job: JobId, why: str, text: str) -> list[Wish]:
        now = boottime()
        note = Event(at=wall(), kind="cancel", actor="daemon", job=job, text=text)
        return [leader.AttachAsked(now, (note,)), leader.CancelAsked(now, -1, job, why)]

    def _over_limit(self) -> list[Wish]:
        """Runs that are still there long after their limit."""
        found: list[Wish] = []
        shell, now = self._cluster.shell, boottime()
        for ids in shell.reserved.held_by.values():
            for run_id in ids:
                run = shell.reserved.runs[run_id]
                if run.stop is not None or not run.released:
                    continue
                row = shell.reserved.jobs[run.key.job]
                facts = shell.table.of(row.job)
                limit = row.terms.limits.time_s
                if limit is not None and facts.run_now(now) > limit + LATE_S:
                    stop = leader.StopAsked(now, row.job, StopReason.TIME_LIMIT)
                    if stop not in found:
                        found.append(stop)
        return found


def _run_id() -> RunId:
    return RunId(secrets.token_hex(8))


def _events(plan: Plan, actor: str, at: float) -> list[Any]:
    """A line in each job's story."""
    lines: list[Any] = []
    for job, shares in plan.starts:
        where = ", ".join(f"{len(share.gpus)} GPUs of {share.node}" for share in shares)
        lines.append(Event(at=at, kind="start", actor=actor, job=job, text=where))
    for job, reason in plan.stops:
        lines.append(Event(at=at, kind="stop", actor=actor, job=job, text=reason.value))
    lines += [Event(at=at, kind="suspend", actor=actor, job=job) for job in plan.suspends]
    lines += [Event(at=at, kind="resume", actor=actor, job=job) for job in plan.resumes]
    return lines
