"""The round loop: when a round is due, which process decides it, and what is done with it.

A full round comes by the timer. A fill comes as soon as something has changed, after a short pause
in which more may change. One round runs at a time, and its transaction is durable before the next
begins: a slow database makes rounds slower. When a policy fails, the present plan stays.
"""

from __future__ import annotations

import asyncio
import logging

from dlsched.core.context import Mode
from dlsched.core.errors import BadInput, DlschedError, PolicyFailed, plural
from dlsched.daemon.cluster import Cluster
from dlsched.daemon.enforcing.enforcement import enforce
from dlsched.daemon.enforcing.host_shares import given_limits
from dlsched.daemon.enforcing.lowered_limits import lowered_limits
from dlsched.daemon.leader_driver import LedgerFollower, new_run_id
from dlsched.daemon.live.host_only import place_host_only
from dlsched.daemon.metrics.metrics import Metrics
from dlsched.daemon.round.decided import Decided
from dlsched.daemon.round.parts import RoundSettings
from dlsched.daemon.round.plan import Plan, carry_out, due, refuse_offences, verify
from dlsched.daemon.round.snapshot_builder import copy_present, take_snapshot
from dlsched.daemon.round.worker import PolicyWorker
from dlsched.daemon.training.watch import TrainingWatch
from dlsched.daemon.writer import TermBegun
from dlsched.db.records import Event, PolicyState, RoundDone
from dlsched.protocol import leader
from dlsched.protocol.ledger import Changes, JobStatus
from dlsched.protocol.messages import JobId, StopReason
from dlsched.system.clock import boottime, wall
from dlsched.system.fault_points import fault_point

log = logging.getLogger("dlsched.daemon.rounds")
LOOK_S = 1.0  # between two checks of limits, deadlines and silent nodes
RECOVERING_S = 0.2  # between two looks whether all nodes have synced in a new term
LONGEST_PAUSE_S = 60.0


class Rounds(LedgerFollower):
    """Decides rounds while this process leads.

    Attributes:
        failures: rounds in a row that failed.
        total_failures: since this process began.
        last_failure: why, in one line.
        last_wall_s: how long the last decision took.
        slow: a line that says that rounds are slow; empty when they are not.
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
        self._watch = TrainingWatch(cluster)
        self.failures = 0
        self.total_failures = 0
        self.last_failure = ""
        self.last_wall_s = 0.0
        self.slow = ""
        cluster.driver.follow(self)

    def start(self) -> None:
        """Start the loop."""
        self._task = asyncio.create_task(self._loop(), name="rounds")

    async def stop(self) -> None:
        """Stop the loop; a round that is being decided is lost as a whole."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._watch.stop()
        await self._worker.close()

    # -- what wakes the loop -----------------------------------------------------------------------

    def term_began(self, term: TermBegun) -> None:
        """Wake the loop: this process leads now."""
        self._wake.set()

    def reserved(self, changes: Changes) -> None:
        """Wake the loop when a job could start."""
        if self._cluster.live.changed:
            self._wake.set()

    def placement_refused(self, job: JobId, why: str) -> None:
        """Let a job pause that the leader refused to place."""
        self._cluster.live.decline(job, why, self._cluster.now)

    def wake(self) -> None:
        """Wake the loop: something has changed that is not in the ledger."""
        self._wake.set()

    def policy_switched(self) -> None:
        """Have the new policy decide at once, without the failures of the one before."""
        self.failures, self.last_failure = 0, ""
        self._pause_until = self._full_at = 0.0
        self._wake.set()

    def configured(self) -> None:
        """Take over times from the new configuration."""
        self._worker.time_limit_s = self._cluster.settings.round.time_limit_s
        self._full_at = min(self._full_at, boottime() + self._cluster.settings.round.interval_s)
        self._wake.set()

    async def validate(self, settings: RoundSettings) -> None:
        """Try in the worker whether parts could decide.

        Raises:
            BadInput: one line that says why not.
        """
        snapshot = copy_present(self._cluster.round_state, self._cluster.now)
        try:
            await self._worker.try_policy(settings, snapshot)
        except PolicyFailed as error:
            raise BadInput(str(error)) from None

    async def look_at_stored(self) -> None:
        """Leave stored options out that the policy no longer has; an older release had them.

        Raises:
            PolicyFailed: a part took too long or its process died.
        """
        state = self._cluster.round_state
        if not state.as_stored:
            return
        settings = state.settings
        found = await self._worker.options_left_out(settings)
        if self._cluster.round_state is not state or not state.as_stored:
            return  # another term has begun, or another policy was set
        if found:
            log.warning("event=options-left-out policy=%s options=%r", settings.policy, found)
        state.leave_out(found)

    # -- the loop ----------------------------------------------------------------------------------

    async def _loop(self) -> None:
        while True:
            try:
                await self._turn()
            except DlschedError as error:
                log.error("event=round-lost why=%r", str(error))
                await asyncio.sleep(0.1)
            except Exception:
                log.exception("event=round-defect")
                self._failed("a defect of the daemon; see its log")
                await asyncio.sleep(1.0)

    @property
    def next_at(self) -> float:
        """When the loop wakes by itself, in seconds since the boot."""
        round_at = max(min(self._full_at, self._wake_at), self._pause_until)
        return min(self._look_at, round_at)

    async def _turn(self) -> None:
        cluster, now = self._cluster, boottime()
        pause = max(self._pause_until - now, 0.0)
        try:
            async with asyncio.timeout(max(self.next_at - now, 0.001)):
                await self._wake.wait()
                await asyncio.sleep(max(cluster.settings.round.fill_after_s, min(pause, LOOK_S)))
        except TimeoutError:
            pass
        self._wake.clear()
        driver, now = cluster.driver, boottime()
        if not driver.leading or driver.store_down:
            self._look_at = self._full_at = self._wake_at = now + LOOK_S
            return
        if now >= self._look_at:
            self._look_at = now + LOOK_S
            await enforce(cluster)
            if not cluster.driver.leading or cluster.driver.store_down:  # not any more
                return
            self._watch.look()
        if now >= self._pause_until:
            try:
                await self.look_at_stored()
            except PolicyFailed as error:
                self._failed(str(error))
                return
        if leader.recovering(driver.state, now):
            self._look_at = now + RECOVERING_S
            self._full_at = max(self._full_at, self._look_at)
            self._wake_at = max(self._wake_at, self._look_at)
            return
        place_host_only(cluster.live, cluster.now)
        await self._start_due()
        if now < self._pause_until:
            return
        full = now >= self._full_at
        if full:
            self._full_at = now + cluster.settings.round.interval_s
        if not any(not row.status.is_terminal for row in driver.reserved.jobs.values()):
            cluster.live.changed = False
            self._wake_at = float("inf")
            return
        if full or cluster.live.changed or now >= self._wake_at:
            await self._round("full" if full else "fill")
        # what has become due while a round was decided was not in its snapshot
        again = boottime() + cluster.live.eligibility.next_moment(self._seen_until) - cluster.now
        self._wake_at = min(self._policy_wake_at, again)
        if cluster.live.changed:
            self._wake.set()

    async def _round(self, mode: Mode) -> None:
        cluster, began = self._cluster, boottime()
        state = cluster.round_state
        live = state.live
        self._seen_until = cluster.now
        self._policy_wake_at = float("inf")
        live.changed = False  # from here on: what this snapshot does not have
        snapshot = take_snapshot(state, mode, self._seen_until)
        fault_point("before-round-decided")
        try:
            decided = await self._worker.decide(snapshot)
            self.last_wall_s = boottime() - began
            fault_point("after-round-decided")
            if not cluster.driver.leading or cluster.round_state is not state:
                return  # another term has begun
            problems = verify(decided, live)
            refuse_offences(decided, problems)
        except (PolicyFailed, BadInput) as error:
            live.changed = True
            self._failed(str(error))
            return
        news = live.changed  # what came since the snapshot; accepting the decision clears it
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
            state.note_order(decided)  # a policy's state counts only when it is stored
            live.changed = news
            return
        plan = carry_out(decided, state, problems)
        live.changed = live.changed or news
        await self._commit(mode, decided, plan)

    async def _commit(self, mode: Mode, decided: Decided, plan: Plan) -> None:
        cluster, at = self._cluster, wall()
        jobs = cluster.driver.reserved.jobs.values()
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
            starts=len(plan.starts) + len(plan.beside),
            stops=len(plan.stops),
        )
        now = boottime()
        actor = f"policy {decided.policy}"
        whys = {job: why.partition(": ")[2] for job, why in decided.reason_texts().items()}
        live_run = cluster.driver.reserved.live_run
        reached = {
            JobId(job): _said("TargetReached", whys.get(job))
            for job in decided.completed
            if (run := live_run(JobId(job))) is not None and run.stop is None
        }
        for_good = "Admission: the policy refuses it for good"
        ending: list[leader.CancelAsked | leader.StopAsked] = [
            *(
                leader.CancelAsked(now, -1, JobId(job), _said(for_good, whys.get(job)))
                for job in decided.refused
            ),
            *(
                leader.StopAsked(now, job, StopReason.TARGET, why=why)
                for job, why in reached.items()
            ),
        ]
        starting = [job for job, _ in plan.starts]
        lowered = [*lowered_limits(cluster.driver, decided.limits, starting, actor, now, at)]
        on_one = {job: max(len(each.gpus) for each in shares) for job, shares in plan.starts}
        changed = {asked.job: asked.terms for asked, _ in lowered}
        given = [
            *given_limits(
                cluster.driver, cluster.live, decided.host_shares, on_one, changed, (actor, at)
            )
        ]
        changed |= {job: terms for job, terms, _ in given}
        rows: list[object] = [
            *(row, PolicyState(state=decided.state), *_events(plan, actor, at)),
            *(each for _, changes in lowered for each in changes),
            *(event for *_, event in given),
            *(
                Event(at=at, kind="stop", actor=actor, job=job, text=why)
                for job, why in reached.items()
            ),
        ]
        new_terms = (leader.TermsAsked(now, job, terms) for job, terms in changed.items())
        asked = (*new_terms, *plan.events(now, new_run_id), *ending)
        log.info(
            "event=round number=%s mode=%s policy=%s starts=%s stops=%s suspends=%s wall_s=%.4f",
            decided.number, mode, decided.policy, len(plan.starts), len(plan.stops),
            len(plan.suspends), self.last_wall_s,
        )  # fmt: skip
        await cluster.driver.ask(
            lambda token: leader.Together(
                now, (*asked, leader.AttachAsked(now, tuple(rows), token))
            )
        )

    async def _start_due(self) -> None:
        """Start the jobs of claims whose GPUs have become free."""
        live = self._cluster.live
        if not live.claims:
            return
        plan = due(live)
        if plan.is_empty:
            return
        now = boottime()
        rows = tuple(_events(plan, f"policy {self._cluster.round_state.settings.policy}", wall()))
        await self._cluster.driver.ask(
            lambda token: leader.Together(
                now, (*plan.events(now, new_run_id), leader.AttachAsked(now, rows, token))
            )
        )

    @property
    def trouble(self) -> str:
        """Why the policy places nothing now; empty: its last round was fine."""
        if not self.failures:
            return ""
        return f"{plural(self.failures, 'round')} failed in a row: {self.last_failure}"

    def _failed(self, why: str) -> None:
        self.failures += 1
        self.total_failures += 1
        self.last_failure = why
        self._metrics.policy_failed()
        self._pause_until = boottime() + min(0.5 * 2.0**self.failures, LONGEST_PAUSE_S)
        log.error("event=policy-failed in-a-row=%s why=%r", self.failures, why)


def _said(reason: str, detail: str | None) -> str:
    """A reason, with its detail where there is one."""
    return f"{reason}: {detail}" if detail else reason


def _events(plan: Plan, actor: str, at: float) -> list[Event]:
    """The events of a plan, one for each job."""
    lines: list[Event] = []
    for kind, runs in (("start", plan.starts), ("get-ready", plan.beside)):
        for job, shares in runs:
            where = ", ".join(
                f"{plural(len(share.gpus), 'GPU')} of {share.node}" if share.gpus else share.node
                for share in shares
            )
            lines.append(Event(at=at, kind=kind, actor=actor, job=job, text=where))
    for job, reason in plan.stops:
        lines.append(Event(at=at, kind="stop", actor=actor, job=job, text=reason.value))
    lines += [Event(at=at, kind="suspend", actor=actor, job=job) for job in plan.suspends]
    lines += [Event(at=at, kind="resume", actor=actor, job=job) for job in plan.resumes]
    return lines
