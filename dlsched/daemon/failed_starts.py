"""Starts that have failed: whether a node or a job is at fault, and what follows for each.

A start that fails on a node keeps its job away from that node. Several different jobs whose starts
fail on one node drain the node; a keeper that a node loses counts in the same way, but its job may
start there again. A prolog may fail for the job's sake: one that fails for the same
job on a second node holds the job, and no longer counts against these nodes. It may fail for the
user's sake as well: while the prologs of one user's jobs fail on a second node, or have already
drained one without those of others, they count against no node.

A daemon that begins to lead reads the failures of the last hour from the database, with what was
done about them then.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from dlsched.core.errors import plural
from dlsched.daemon.leader_driver import LeaderDriver
from dlsched.daemon.live.live_state import LiveState
from dlsched.daemon.settings import FaultsSection
from dlsched.db.reading.outcomes import StoredFailedStarts
from dlsched.db.records import Drained, Event, HoldChanged, JobSpec
from dlsched.protocol.messages import ExitReason, ExitRecord, JobId, NodeName, StartFault
from dlsched.system.clock import wall

log = logging.getLogger("dlsched.daemon")
BY_CHECK = "failed starts"  # drains a node, which takes runs again once its check has passed
BY_OPERATOR = "failed starts again"  # likewise, but an operator has to resume it
BY_PROLOG = "failed prologs"  # likewise, unless it turns out that a job or a user is at fault
HELD_FOR = "launch"  # holds a job whose prolog fails wherever it is
PROLOGS_OF_A_JOB = 3  # failures on a single node that hold it, where there is no second one
REMEMBERED = 10_000  # failures
PROLOG_FAILED, CHECK_PASSED = "its prolog has failed", "its check has passed"  # texts of events
AGAIN_S = 3600.0  # a node that is drained once more within this waits for an operator


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A start of a job that has failed on a node.

    Attributes:
        at: seconds of the policy's clock.
        node: where.
        job: of the run.
        counts_as: which failures are of the same job: the elements of an array have one prolog.
        user: of the job.
        why: in the node's words.
        in_prolog: whether the job may be at fault.
        of_node: whether it counts against the node.
        keeper_lost: the run had started, and the node lost its keeper.
    """

    at: float
    node: NodeName
    job: JobId
    counts_as: JobId
    user: str
    why: str
    in_prolog: bool
    of_node: bool
    keeper_lost: bool


class FailedStarts:
    """The failed starts of the last minutes."""

    def __init__(
        self,
        driver: LeaderDriver,
        settings: Callable[[], FaultsSection],
        live: Callable[[], LiveState],
        drained: Callable[[], Mapping[NodeName, Drained]],
    ) -> None:
        """Know of none.

        Args:
            driver: of the leader.
            settings: the section that is in force now.
            live: the live state of this term.
            drained: the nodes that are drained now.
        """
        self._driver, self._settings, self._live = driver, settings, live
        self._drained = drained
        self._failures: list[Failure] = []
        self._returned: dict[NodeName, float] = {}  # when its check has passed, by the policy clock
        self._blamed: dict[NodeName, float] = {}  # when it was drained for prologs, likewise

    # -- failures ----------------------------------------------------------------------------------

    def note(self, record: ExitRecord, now: float) -> None:
        """Take the end of a run for its node's sake, or of one that could not start for the job's.

        The node has lost the run's keeper, or the run could not start there.
        """
        self._forget_before(now)
        failure = self._add(record, now)
        self._keep_away(failure.job)
        if failure.in_prolog and self._holds(failure.job, now):
            return
        if failure.in_prolog and self._is_of_user(failure):
            self._give_back(now, "the prologs of one user's jobs fail on several nodes")
        self._judge_node(failure.node, now)

    def _add(self, record: ExitRecord, at: float) -> Failure:
        job = record.key.job
        in_prolog = record.hook.startswith("prolog")
        spec = self._live().requests.specs.get(job)
        failure = Failure(
            at=at,
            node=record.node,
            job=job,
            counts_as=_array_of(job, spec) if in_prolog else job,
            user=spec.user if spec is not None else "",
            why=record.hook or record.detail or record.reason.value,
            in_prolog=in_prolog,
            of_node=record.start_fault is not StartFault.JOB_HERE,
            keeper_lost=record.reason is ExitReason.KEEPER_LOST,
        )
        self._failures.append(failure)
        return failure

    def _forget_before(self, now: float) -> None:
        since = now - self._settings().failed_starts_s
        self._keep([each for each in self._failures if each.at >= since])

    def _keep(self, kept: list[Failure]) -> None:
        """Forget the other failures: their jobs may go to these nodes again."""
        before = {(each.job, each.node) for each in self._failures}
        self._failures = kept[-REMEMBERED:]
        left = {(each.job, each.node) for each in self._failures}
        for job in {job for job, _ in before - left}:
            self._keep_away(job)

    def term_began(self, stored: StoredFailedStarts, now: float) -> None:
        """Know what the leader before knew, and keep jobs away from where they have failed."""
        self._failures = []
        self._returned.clear()
        self._blamed.clear()
        offset = now - wall()
        told: list[tuple[float, ExitRecord | Event]] = [
            *stored.ends,
            *((event.at, event) for event in stored.events),
        ]
        for at, each in sorted(told, key=lambda one: one[0]):
            if isinstance(each, ExitRecord):
                self._add(each, min(at + offset, now))
            else:
                self._follow(each, min(at + offset, now))
        self._forget_before(now)
        for job in {each.job for each in self._failures}:
            self._keep_away(job)

    def _follow(self, event: Event, at: float) -> None:
        """Remember what an earlier leader did about the failures until then."""
        if event.kind == "hold" and event.job is not None and event.text.startswith(PROLOG_FAILED):
            mine = [x.counts_as for x in self._failures if x.job == event.job and x.in_prolog]
            self._failures = [
                x for x in self._failures if not (x.in_prolog and x.counts_as in mine)
            ]
        elif event.kind == "drain" and event.actor.startswith(BY_PROLOG) and event.node:
            self._blamed[event.node] = at
        elif event.kind == "resume" and event.node is not None:
            if event.text == CHECK_PASSED:
                self._returned[event.node] = at
            if event.text == CHECK_PASSED or event.actor != BY_CHECK:  # an operator
                self._failures = [x for x in self._failures if x.node != event.node]

    def tick(self, now: float) -> None:
        """Let go of what is too old."""
        if self._failures and self._failures[0].at < now - self._settings().failed_starts_s:
            self._forget_before(now)

    def _keep_away(self, job: JobId) -> None:
        failed = (x.node for x in self._failures if x.job == job and not x.keeper_lost)
        self._live().avoid(job, frozenset(failed))

    # -- a job's fault -----------------------------------------------------------------------------

    def _holds(self, job: JobId, now: float) -> bool:
        """Hold a job whose prolog has failed on several nodes; whether it is held."""
        mine = [each for each in self._failures if each.job == job and each.in_prolog]
        nodes = list(dict.fromkeys(each.node for each in mine))
        if len(nodes) < 2 and len(mine) < PROLOGS_OF_A_JOB:
            return False
        where = (
            f"on {' and '.join(nodes)}" if len(nodes) > 1 else f"{len(mine)} times on {nodes[0]}"
        )
        text = f"{PROLOG_FAILED} {where}, the last time: {mine[-1].why}"
        log.warning("event=held job=%s why=%r", job, text)
        same = mine[-1].counts_as
        self._keep([x for x in self._failures if not (x.in_prolog and x.counts_as == same)])
        self._driver.note(
            HoldChanged(job=job, held=HELD_FOR, actor="daemon"),
            Event(at=wall(), kind="hold", actor="daemon", job=job, text=text),
        )
        self._give_back(now, f"the prolog fails for job {job}, not for the node")
        return True

    def _give_back(self, now: float, text: str) -> None:
        """Let nodes take runs again that were drained for prologs which count no more."""
        since = now - self._settings().failed_starts_s
        for node, blamed in self._blamed.items():
            row = self._drained().get(node)
            if row is None or not row.actor.startswith(BY_PROLOG) or blamed < since:
                continue
            if not self._is_over_limit(node):
                self._resume(node, text)

    def _is_of_user(self, failure: Failure) -> bool:
        """Whether prologs of its job's user fail elsewhere, too, so that none tells of a node."""
        user, node = failure.user, failure.node
        return any(
            x.in_prolog and x.user == user and x.node != node for x in self._failures
        ) or any(
            row.actor == _by_prologs_of(user) and drained != node
            for drained, row in self._drained().items()
        )

    # -- a node's fault ----------------------------------------------------------------------------

    def _jobs_failed_on(self, node: NodeName) -> dict[JobId, Failure]:
        return {
            x.counts_as: x
            for x in self._failures
            if x.node == node and x.of_node and not (x.in_prolog and self._is_of_user(x))
        }

    def _is_over_limit(self, node: NodeName) -> bool:
        most = self._settings().failed_starts
        return most > 0 and len(self._jobs_failed_on(node)) >= most

    def _judge_node(self, node: NodeName, now: float) -> None:
        if not self._is_over_limit(node) or node in self._drained():
            return
        failed = list(self._jobs_failed_on(node).values())
        again = now - self._returned.get(node, -AGAIN_S) < AGAIN_S
        by_check = not again and not any(each.in_prolog for each in failed)
        last = next(each for each in reversed(self._failures) if each in failed)
        span = f"{self._settings().failed_starts_s / 60:g} min"
        jobs = plural(len(failed), "job")
        did = f"the starts of {jobs} failed here"
        if any(each.keeper_lost for each in failed):
            did = f"{jobs} could not start or lost their keepers here"
        text = f"{did} within {span}, the last: {last.why}"
        text += f" (job {last.job})"
        if again:
            text += "; its check had passed"
        actor = BY_CHECK if by_check else BY_OPERATOR if again else BY_PROLOG
        if all(each.in_prolog and each.user == last.user for each in failed):
            actor = _by_prologs_of(last.user)
        if actor.startswith(BY_PROLOG):
            self._blamed[node] = now
        log.warning("event=drained node=%s why=%r", node, text)
        self._set_drained(node, True, text, actor)

    def _resume(self, node: NodeName, text: str) -> None:
        log.info("event=resumed node=%s why=%r", node, text)
        self._set_drained(node, False, text, BY_CHECK)

    def _set_drained(self, node: NodeName, drained: bool, text: str, actor: str) -> None:
        row = Drained(node=node, drained=drained, reason=text, actor=actor, at=wall())
        kind = "drain" if drained else "resume"
        note = Event(at=wall(), kind=kind, actor=actor, node=node, text=text)
        self._driver.note(row, note)

    def forget(self, node: NodeName) -> None:
        """Count nothing of a node whose check has passed, or that an operator has resumed."""
        self._keep([each for each in self._failures if each.node != node])

    # -- the check of a node -----------------------------------------------------------------------

    def awaits_check(self, node: NodeName) -> bool:
        """Whether a node is to check whether it can start jobs."""
        row = self._drained().get(node)
        return row is not None and row.actor == BY_CHECK

    def checked(self, node: NodeName, failed: str, now: float) -> None:
        """Take the result of a node's check, which is empty when it passed."""
        if self.awaits_check(node) and not failed:
            self._returned[node] = now
            self.forget(node)
            self._resume(node, CHECK_PASSED)


def _by_prologs_of(user: str) -> str:
    """What drains a node for the prologs of one user's jobs alone."""
    return f"{BY_PROLOG} of {user}"


def _array_of(job: JobId, spec: JobSpec | None) -> JobId:
    return job if spec is None or spec.array is None else JobId(job - spec.index)
