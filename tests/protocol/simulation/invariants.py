"""The invariant checker: what must be true after every step of the simulated world.

It sees the true state: the database, every node's disk and every process. It does not see what the
parties believe, so it cannot repeat their mistakes.

* P1 an answered job exists with the same content, and no id is given twice
* P2 at most one run of a job is alive; a run that its fence has frozen is not, nor one that was
  killed without effect on a node that was given up, when no leader could know of that
* P3 a recorded exit is never lost, never replaced, and a terminal job stays terminal until its user
  wants it to start again; a training that ended by itself completes its job, and one that was
  stopped never does
* P4 a GPU belongs to one run, in the database and on the node; a suspended run that has let its
  GPUs go has none
* P5 nothing ends or freezes a job but its own end, a committed request, a limit or its fence; a
  job that ended because it had to give way has not failed
* P6 every pending job has a reason
* in place: only a run that failed of itself is repeated on its GPUs, on the very same ones; and no
  job fails more often than it has retries
* hooks: on a node with hooks nothing executes before the run's prolog has ended well, no prolog
  runs after that, no epilog beside the run, and no end is reported before the epilog has ended
* gangs: nothing executes before RELEASE is committed and every member has reserved
* terms: a node's (epoch, revision) and incarnation only grow on its disk
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Protocol

from dlsched.core.errors import InvariantBroken
from dlsched.protocol import messages as m
from dlsched.protocol.agent import AgentRecord, RunRecord
from dlsched.protocol.ledger import (
    FENCED,
    JobStatus,
    Ledger,
    MemberOver,
    Request,
    Restart,
    Run,
    Write,
)
from tests.protocol.simulation.truth import Database, Process

# written by an agent whose keeper has not seen how its processes have ended
_UNSEEN = (m.ExitReason.KEEPER_LOST, m.ExitReason.NODE_LOST)


class Truth(Protocol):
    """The true state of a world, as the checker sees it."""

    seed: int
    database: Database
    processes: list[Process]
    ever_reserved: dict[m.NodeName, set[m.RunId]]

    def daemons_that_know(self, node: m.NodeName, run_id: m.RunId) -> set[str]:
        """The present daemon processes that a node has told of a run."""
        ...

    def daemons(self) -> set[str]:
        """The present daemon processes."""
        ...

    def story(self, *subjects: object) -> str:
        """The last log lines about some jobs and nodes."""
        ...


class Checker:
    """Checks one world; raises with the log of the jobs and nodes that it names."""

    def __init__(self, world: Truth) -> None:
        self.world = world
        self.answered: dict[m.JobId, tuple[Request, int]] = {}
        self.recorded: dict[tuple[m.NodeName, m.RunId], m.ExitRecord] = {}
        # with their disk, each time that it was replaced
        self.lost_ends: dict[tuple[m.NodeName, m.RunId], list[m.ExitRecord]] = {}
        # with the daemons that knew of the run when the last trace of it on its node was gone
        self.without_trace: dict[tuple[m.NodeName, m.RunId], set[str]] = {}
        self.ever_stopped: set[m.RunId] = set()
        self.ever_suspended: set[m.RunId] = set()
        self.ever_released: set[m.RunId] = set()
        self.ever_executed: set[m.RunId] = set()
        self.ends: dict[tuple[m.NodeName, m.RunId], str] = {}  # "finished", or "stopped" early
        self.lied: set[m.NodeName] = set()  # confirmed down by mistake
        self.forgiven: set[m.JobId] = set()  # jobs with a newest run that a restore has lost
        self.asked_again: Counter[m.JobId] = Counter()  # requests that reached a daemon
        self.began_again: dict[m.JobId, int] = {}  # its last run before it was queued again
        self.repeated = 0  # runs in place
        self.prologs: dict[m.NodeName, set[m.RunId]] = {}  # that ended well, of nodes with hooks
        self.epilogs: set[tuple[m.NodeName, m.RunId]] = set()  # that have ended
        self.before = Ledger()
        self.checks = 0

    def fail(self, promise: str, text: str, *subjects: object) -> None:
        """Raise with the log of the named jobs, runs and nodes."""
        raise InvariantBroken(
            f"{promise}: {text}\nseed {self.world.seed}\n{self.world.story(*subjects)}"
        )

    # -- the database ----------------------------------------------------------------------------

    def database_changed(self, writes: Iterable[Write] = ()) -> None:
        """After each commit, with its changes, and after each restore."""
        self.checks += 1
        ledger = self.world.database.ledger
        back = set()
        for write in writes:
            if isinstance(write, Restart):
                back.add(write.job)
                self._began_again(ledger, write.job)
            elif isinstance(write, MemberOver) and write.again in ledger.runs:
                self._in_place(ledger, write)
        for job, (request, restored) in self.answered.items():
            if restored != self.world.database.restored:
                continue
            found = ledger.jobs.get(job)
            if found is None or found.request != request:
                self.fail("P1", f"job {job} was answered and is not there", job)
        live = self._runs(ledger)
        for row in ledger.jobs.values():
            if row.status is JobStatus.PENDING and not row.reason:
                self.fail("P6", f"job {row.job} is pending without a reason", row.job)
            if row.status.is_terminal and row.job in live:
                run = ledger.runs[live[row.job]]
                if run.stop is None:
                    self.fail("P3", f"job {row.job} is over and has a run", row.job)
            if row.failures > row.terms.retries:
                self.fail("in place", f"job {row.job} has failed {row.failures} times", row.job)
        self._success_counts(ledger)
        self._compare(ledger, back)
        self.before = ledger

    def requeue_asked(self, job: m.JobId) -> None:
        """A daemon was asked to queue a job again."""
        self.asked_again[job] += 1

    def _began_again(self, ledger: Ledger, job: m.JobId) -> None:
        if not self.asked_again[job]:
            self.fail("P3", f"job {job} began again, and its user has not asked for it", job)
        self.asked_again[job] -= 1
        old = self.before.jobs.get(job)
        self.began_again[job] = 0 if old is None else old.runs

    def _in_place(self, ledger: Ledger, write: MemberOver) -> None:
        """Check a run that is said to repeat another one on its GPUs."""
        assert write.again is not None
        new, old = ledger.runs[write.again], ledger.runs[write.run_id]
        job = ledger.jobs[old.key.job]
        self.repeated += 1
        if (new.key.job, new.key.run) != (old.key.job, old.key.run + 1):
            self.fail("in place", f"run {new.key} follows {old.key}", job.job)
        if new.shares != old.shares:
            self.fail("in place", f"run {new.key} has other GPUs than {old.key}", job.job)
        if old.stop not in (None, m.StopReason.PEER):
            self.fail("in place", f"run {old.key} was to leave its GPUs", job.job)

    def _success_counts(self, ledger: Ledger) -> None:
        """A run that succeeded on every node ends its job, unless a later run was released."""
        newest: dict[m.JobId, int] = {}
        for run in ledger.runs.values():
            if run.released:
                newest[run.key.job] = max(newest.get(run.key.job, 0), run.key.run)
        for run in ledger.runs.values():
            if max(newest.get(run.key.job, 0), self._past(run.key.job) + 1) > run.key.run:
                continue
            known = all(member.exit is not None for member in run.members.values())
            if (
                known
                and self._ended(ledger, run, "finished")
                and not ledger.jobs[run.key.job].status.is_terminal
            ):
                self.fail("P3", f"run {run.key} succeeded and its job goes on", run.key.job)

    def _runs(self, ledger: Ledger) -> dict[m.JobId, m.RunId]:
        """Check runs and GPUs of the database; returns the live run of each job."""
        live: dict[m.JobId, m.RunId] = {}
        used: dict[tuple[m.NodeName, str], float] = {}
        for run in ledger.runs.values():
            run_id = run.key.run_id
            if run.released:
                self.ever_released.add(run_id)
            if run.suspended:
                self.ever_suspended.add(run_id)
            if run.stop is not None or any(each.is_over for each in run.members.values()):
                self.ever_stopped.add(run_id)
            if run.is_over:
                continue
            if run.key.job in live:
                self.fail("P2", f"job {run.key.job} has two runs in the database", run.key.job)
            live[run.key.job] = run_id
            share = ledger.jobs[run.key.job].request.gpu_share
            for member in run.members.values():
                for gpu in () if member.is_over or run.is_away else member.gpus:
                    if not _adds(used, (member.node, gpu), share):
                        self.fail("P4", f"{gpu} of {member.node} is given twice", member.node)
        return live

    def _past(self, job: m.JobId) -> int:
        """The last run of a job before it was queued again after its end; 0: it was not."""
        return self.began_again.get(job, 0)

    def _compare(self, ledger: Ledger, back: set[m.JobId]) -> None:
        """Check what must not change from one commit to the next; `back` began again."""
        for job, old in self.before.jobs.items():
            new = ledger.jobs[job]
            if old.status.is_terminal and new.status is not old.status and job not in back:
                self.fail("P3", f"job {job} was {old.status.value} and came back", job)
        for run_id, run in self.before.runs.items():
            for node, member in run.members.items():
                now = ledger.runs[run_id].members[node]
                if member.exit is not None and now.exit != member.exit:
                    self.fail("P3", f"the exit of run {run.key} was replaced", run.key.job)
        for name, node_row in self.before.nodes.items():
            if ledger.nodes[name].revision < node_row.revision:
                self.fail("terms", f"revision of {name} fell", name)

    def restored(self) -> None:
        """After a restore: commits since the backup may be lost."""
        ledger = self.world.database.ledger
        self.forgiven |= {
            run.key.job for run_id, run in self.before.runs.items() if run_id not in ledger.runs
        }
        self.before = ledger
        self.database_changed()

    def answered_job(self, job: m.JobId, request: Request) -> None:
        """A client was told that its job is accepted."""
        old = self.answered.get(job)
        if old is not None and old[0] != request:
            self.fail("P1", f"job id {job} was given twice", job)
        self.answered[job] = (request, self.world.database.restored)
        self.database_changed()

    # -- nodes -----------------------------------------------------------------------------------

    def agent_record_changed(self, node: m.NodeName, old: AgentRecord, new: AgentRecord) -> None:
        """The agent's own file was replaced."""
        if new.term < old.term or new.incarnation < old.incarnation:
            self.fail("terms", f"{node} went from {old} back to {new}", node)

    def exit_recorded(self, node: m.NodeName, record: m.ExitRecord) -> None:
        """An exit record became durable on a node."""
        old = self.recorded.get((node, record.key.run_id))
        if old is not None and old != record:
            self.fail("P3", f"{node} replaced the exit of run {record.key}", record.key.job)
        self.recorded[node, record.key.run_id] = record

    def records_lost(self, node: m.NodeName, left: Mapping[m.RunId, RunRecord]) -> None:
        """A node's disk was replaced by an empty or an older one: other ends may follow."""
        for place, record in list(self.recorded.items()):
            found = left.get(place[1])
            if place[0] == node and (found is None or found.exit != record):
                self.lost_ends.setdefault(place, []).append(self.recorded.pop(place))

    def left_without_trace(self, node: m.NodeName, run_id: m.RunId) -> None:
        """A keeper has died whose run's file had vanished."""
        self.without_trace[node, run_id] = self.world.daemons_that_know(node, run_id)

    def _forgotten(self, node: m.NodeName, run_id: m.RunId) -> bool:
        """Whether nothing is left that could know that a run, which is over, has been there."""
        knew = self.without_trace.get((node, run_id))
        return knew is not None and not knew & self.world.daemons()

    def record_dropped(self, node: m.NodeName, run_id: m.RunId) -> None:
        """A run's files were deleted: the database must have the end."""
        ledger = self.world.database.ledger
        record = self.recorded.get((node, run_id))
        if record is None or self.world.database.restored:
            return
        run = ledger.runs.get(run_id)
        known = run.members[node].exit if run is not None and node in run.members else None
        if known is not None and known in self.lost_ends.get((node, run_id), ()):
            return
        if known != record and ledger.history.get((node, run_id)) != record:
            self.fail("P3", f"{node} forgot the exit of run {record.key}", record.key.job, node)

    # -- the site's hooks ------------------------------------------------------------------------

    def hook_began(self, node: m.NodeName, desired: m.DesiredRun, name: str) -> None:
        """A hook was started for a run."""
        done, run_id = self.prologs.setdefault(node, set()), desired.key.run_id
        if name == "prolog" and run_id in done:
            self.fail("hooks", f"the prolog of {desired.key} began twice", desired.key.job, node)
        for process in self.world.processes:
            if (process.node, process.desired.key.run_id) == (node, run_id):
                self.fail("hooks", f"{name} beside run {desired.key}", desired.key.job, node)

    def prolog_ended(self, node: m.NodeName, run_id: m.RunId) -> None:
        """A prolog has ended well."""
        self.prologs.setdefault(node, set()).add(run_id)

    def epilog_ended(self, node: m.NodeName, record: m.ExitRecord | None) -> None:
        """It is durable that an epilog has ended; the run's record may say how it failed."""
        if record is not None:
            self.epilogs.add((node, record.key.run_id))
            self.recorded[node, record.key.run_id] = record

    def ends_reported(self, node: m.NodeName, ends: Iterable[m.ExitRecord]) -> None:
        """A node with hooks tells the leader of ended runs."""
        for record in ends:
            run_id = record.key.run_id
            reserved = run_id in self.world.ever_reserved.get(node, set())
            if reserved and (node, run_id) not in self.epilogs:
                self.fail("hooks", f"run {record.key} is over before its epilog", node)

    # -- processes -------------------------------------------------------------------------------

    def executed(self, process: Process) -> None:
        """A run's processes were started on a node."""
        run_id, node = process.desired.key.run_id, process.node
        if run_id in self.ever_executed and process.again and not self._forgotten(node, run_id):
            self.fail("P3", f"run {process.desired.key} executed twice on {node}", node)
        self.ever_executed.add(run_id)
        if node in self.prologs and run_id not in self.prologs[node]:
            self.fail("hooks", f"run {process.desired.key} executed without its prolog", node)
        if run_id not in self.ever_released:
            self.fail(
                "gangs", f"run {process.desired.key} was not released", process.desired.key.job
            )
        for share in process.desired.layout:
            if run_id not in self.world.ever_reserved.get(share.node, set()):
                self.fail(
                    "gangs",
                    f"run {process.desired.key} executed before {share.node} had prepared",
                    process.desired.key.job,
                )
        self.processes_changed()

    def processes_changed(self) -> None:
        """After each start, end, freeze and thaw."""
        self.checks += 1
        alive: dict[m.JobId, m.RunId] = {}
        there: set[tuple[m.NodeName, m.RunId]] = set()
        used: dict[tuple[m.NodeName, str], float] = {}
        for process in self.world.processes:
            key = process.desired.key
            if process.node in self.lied:
                continue
            if not process.let_go and (process.node, key.run_id) not in there:
                there.add((process.node, key.run_id))
                for gpu in process.desired.gpus:
                    if not _adds(used, (process.node, gpu), process.desired.gpu_share):
                        what = f"{gpu} of {process.node} has two runs"
                        self.fail("P4", what, process.node, key.job)
            if process.frozen_by_fence or self._ends_unheard(process):
                continue
            other = alive.setdefault(key.job, key.run_id)
            if other != key.run_id and key.job not in self.forgiven:
                self.fail("P2", f"job {key.job} is alive twice", key.job)

    def _ends_unheard(self, process: Process) -> bool:
        """Whether a process was killed on a node that was given up, and no leader could know that.

        It executes nothing of its program any more, as one that its fence has frozen.
        """
        run = self.world.database.ledger.runs.get(process.desired.key.run_id)
        member = None if run is None else run.members.get(process.node)
        given_up = member is not None and member.presumed.startswith(FENCED)
        return process.killed and process.unasked and given_up

    def ended(self, process: Process, *, succeeded: bool) -> None:
        """A process has ended by itself, or because it was asked to."""
        place = process.node, process.desired.key.run_id
        if process.stopping:
            self.ends[place] = "stopped"
        elif succeeded and process.counting_from is not None and process.term_at is None:
            self.ends[place] = "finished"

    def _ended(self, ledger: Ledger, run: Run, how: str) -> bool:
        """Whether all processes with a script have ended in some way, as is recorded."""
        alone = ledger.jobs[run.key.job].request.mode is m.LaunchMode.BATCH
        places = [(node, run.key.run_id) for node in list(run.members)[: 1 if alone else None]]
        records = [self.recorded.get(place) for place in places]
        if any(each is None or each.reason in _UNSEEN for each in records):
            return False
        return all(self.ends.get(place) == how for place in places)

    def interfered(self, process: Process, why: m.StopReason | None, *, fenced: bool) -> None:
        """A keeper signalled or froze its job: there must be a reason that permits it."""
        run_id, key = process.desired.key.run_id, process.desired.key
        if fenced and process.desired.fence is m.Fence.LEASE:
            return
        if why is m.StopReason.TIME_LIMIT or run_id in self.ever_stopped:
            return
        if why is None and run_id in self.ever_suspended:
            return
        self.fail("P5", f"run {key} was disturbed on {process.node} ({why})", key.job, process.node)

    # -- the end -----------------------------------------------------------------------------------

    def settled(self) -> None:
        """Check, some time after the last fault, that every job has ended correctly."""
        ledger = self.world.database.ledger
        for job in ledger.jobs.values():
            excused = job.job in self.forgiven or self._waits_for_orphan(ledger, job.job)
            if not job.status.is_terminal and not excused:
                self.fail("liveness", f"job {job.job} is still {job.status.value}", job.job)
            self._end_is_true(ledger, job.job)
        for process in self.world.processes:
            run = ledger.runs.get(process.desired.key.run_id)
            if run is not None and run.is_over and not run.members[process.node].is_stuck:
                self.fail("P2", f"run {run.key} is over and alive", run.key.job, process.node)

    def _waits_for_orphan(self, ledger: Ledger, job: m.JobId) -> bool:
        """Whether a job may be waiting for GPUs that an orphan holds."""
        run = ledger.live_run(job)
        return bool(ledger.orphans) and (run is None or run.is_away)

    def _end_is_true(self, ledger: Ledger, job: m.JobId) -> None:
        """The last executed run decides its job's end if it succeeded on every node."""
        runs = sorted((r for r in ledger.runs.values() if r.key.job == job), key=lambda r: r.key)
        ran = [run for run in runs if run.key.run_id in self.ever_executed]
        if not ran or self.world.database.restored or ran[-1].key.run <= self._past(job):
            return
        last, status = ran[-1], ledger.jobs[job].status
        known = all((node, last.key.run_id) in self.recorded for node in last.members)
        won = known and self._ended(ledger, last, "finished")
        # a job that has ended without the record of a node that was given up stays as it is
        given_up = any(member.presumed for member in last.members.values())
        if won and not given_up and status not in (JobStatus.COMPLETED, JobStatus.CANCELLED):
            self.fail("P3", f"job {job} succeeded and is {status.value}", job)
        stopped = self._ended(ledger, last, "stopped")
        if stopped and status is JobStatus.COMPLETED:
            self.fail("P3", f"job {job} was stopped early and is {status.value}", job)
        if stopped and status is JobStatus.FAILED and last.stop is m.StopReason.PREEMPT:
            self.fail("P5", f"job {job} gave way and is {status.value}", job)


def _adds(
    used: dict[tuple[m.NodeName, str], float], gpu: tuple[m.NodeName, str], share: float | None
) -> bool:
    """Add a run's share of a GPU; whether the shares still fit."""
    used[gpu] = used.get(gpu, 0.0) + (1.0 if share is None else share)
    return used[gpu] <= 1.0 + 1e-6
