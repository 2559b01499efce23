"""A policy in the shadow: it decides on the live state now and then, and nothing follows from it.

It runs in a process of its own with a low priority, within a time limit, and for at most its share
of one processor's time. Invariant: neither the live state nor a round knows of it; its failures are
its own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from dlsched.core.cluster.occupancy import Placement
from dlsched.core.errors import BadInput, PolicyFailed
from dlsched.daemon.cluster import Cluster
from dlsched.daemon.leader_driver import LedgerFollower
from dlsched.daemon.round.configured import shadow_settings
from dlsched.daemon.round.decided import Decided
from dlsched.daemon.round.forecasts.alternatives import Alternative, Outcome, Question
from dlsched.daemon.round.parts import RoundSettings
from dlsched.daemon.round.snapshot_builder import copy_present
from dlsched.daemon.round.worker import PolicyWorker
from dlsched.daemon.settings import Settings
from dlsched.daemon.writer import TermBegun
from dlsched.system.clock import boottime, wall

log = logging.getLogger("dlsched.daemon.shadow")
NICE = 15  # rounds, predictions and users' questions come first
LONGEST_PAUSE_S = 3600.0  # after failures
FORGETS_AFTER = 3  # failures in a row, after which it begins without its state
FILE = "file"  # which set the policy


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """What the policy in the shadow would do with a job, and the present one has not done."""

    job: int
    would: str  # start, suspend, move, end, refuse
    placement: Placement | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Look:
    """What one look at the live state came to.

    Attributes:
        at: seconds since the epoch.
        present: the policy that decided then.
        differences: by job.
        under_present, under_shadow: what becomes of all jobs.
    """

    at: float
    present: str
    differences: Sequence[Difference]
    under_present: Outcome
    under_shadow: Outcome


@dataclass(slots=True, kw_only=True)
class Record:
    """What has come of a policy since it was set.

    Attributes:
        set_by: "file", or an operator.
        since: seconds since the epoch.
        looks: how many were fine.
        differing: how many of these had a difference.
        failures: how many looks failed.
        in_a_row: failures since the last look that was fine.
        failure: why the last look failed; empty: it did not.
        cost_s: of the last look.
        last: the last look that was fine.
    """

    set_by: str
    since: float = field(default_factory=wall)
    looks: int = 0
    differing: int = 0
    failures: int = 0
    in_a_row: int = 0
    failure: str = ""
    cost_s: float = 0.0
    last: Look | None = None


class Shadow(LedgerFollower):
    """Lets a policy decide without acting.

    Attributes:
        settings: how it decides; None: there is none.
        record: what has come of it.
    """

    def __init__(self, cluster: Cluster, worker: PolicyWorker | None = None) -> None:
        self._cluster = cluster
        self._worker = worker or PolicyWorker(nice=NICE)
        self._state = b""
        self._set = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.settings = shadow_settings(cluster.settings, cluster.round_state.settings)
        self.record = Record(set_by=FILE)
        cluster.driver.follow(self)

    def start(self) -> None:
        """Start to look now and then."""
        self._task = asyncio.create_task(self._now_and_then(), name="shadow")

    async def stop(self) -> None:
        """Stop, with the process."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._worker.close()

    def term_began(self, term: TermBegun) -> None:
        """Forget what another term's rounds came to."""
        self._state, self.record.last = b"", None

    # -- which policy ------------------------------------------------------------------------------

    async def choose(self, settings: RoundSettings | None, actor: str) -> None:
        """Have another policy decide in the shadow; None: none.

        Raises:
            BadInput: it cannot decide for the present jobs; then the one before stays.
        """
        if settings is not None:
            snapshot = copy_present(self._cluster.round_state, self._cluster.now)
            trial = PolicyWorker(nice=NICE, time_limit_s=self._cluster.settings.shadow.within_s)
            try:
                await trial.try_policy(settings, snapshot)
            except PolicyFailed as error:
                raise BadInput(str(error)) from None
            finally:
                await trial.close()
        self._begin(settings, actor)

    def configured(self, before: Settings) -> None:
        """Take over another configuration; what an operator has set stays if the file's stays."""
        after = self._cluster.settings
        if after.shadow != before.shadow:
            self._begin(shadow_settings(after, self._cluster.round_state.settings), FILE)

    def _begin(self, settings: RoundSettings | None, actor: str) -> None:
        self.settings, self._state = settings, b""
        self.record = Record(set_by=actor)
        self._set.set()

    @property
    def pause_s(self) -> float:
        """Seconds between two looks: never more often than its share of a processor allows."""
        chosen, record = self._cluster.settings.shadow, self.record
        pause = max(chosen.every_s, record.cost_s / chosen.share)
        return min(pause * 2.0**record.in_a_row, max(pause, LONGEST_PAUSE_S))

    # -- looking -----------------------------------------------------------------------------------

    async def _now_and_then(self) -> None:
        while True:
            driver = self._cluster.driver
            if self.settings is not None and driver.leading and not driver.store_down:
                await self.look()
            try:
                async with asyncio.timeout(self.pause_s):
                    await self._set.wait()
            except TimeoutError:
                pass
            self._set.clear()

    async def look(self) -> None:
        """Let it decide once, and compare; a failure is counted."""
        settings, record, began = self.settings, self.record, boottime()
        live = self._cluster.live
        if settings is None or not live.jobs.count or not len(live.nodes):
            return  # there is nothing to decide
        try:
            found = await self._compared(settings)
        except (PolicyFailed, BadInput, OSError, TimeoutError) as error:
            record.failure = str(error) or type(error).__name__
            record.failures += 1
            record.in_a_row += 1
            if record.in_a_row >= FORGETS_AFTER:
                self._state = b""
            log.warning("event=shadow-failed policy=%s why=%r", settings.policy, record.failure)
        else:
            record.looks += 1
            record.differing += bool(found.differences)
            record.failure, record.in_a_row, record.last = "", 0, found
        finally:
            record.cost_s = boottime() - began

    async def _compared(self, settings: RoundSettings) -> Look:
        cluster, at = self._cluster, wall()
        within_s = self._worker.time_limit_s = cluster.settings.shadow.within_s
        snapshot = copy_present(cluster.round_state, cluster.now)
        decided = await self._worker.decide(replace(snapshot, settings=settings, state=self._state))
        question = Question(
            snapshot=snapshot,
            alternatives=(Alternative(), Alternative(settings=settings)),
            lists_jobs=True,
        )
        present, shadow = await self._worker.suppose(question, limit_s=within_s)
        if self.settings is settings:  # else another one was set meanwhile
            self._state = decided.state
        return Look(
            at=at,
            present=snapshot.settings.policy,
            differences=_differences(decided),
            under_present=present,
            under_shadow=shadow,
        )


def _differences(decided: Decided) -> list[Difference]:
    """What a decision would change, by job."""
    found = [
        Difference(
            job=job,
            would="move" if job in decided.suspended else "start",
            placement=placement,
        )
        for job, placement in decided.launched.items()
    ]
    found += [
        Difference(job=job, would="suspend")
        for job in decided.suspended
        if job not in decided.launched
    ]
    found += [Difference(job=job, would="end") for job in decided.completed]
    found += [Difference(job=job, would="refuse") for job in decided.refused]
    return sorted(found, key=lambda each: each.job)
