"""The invariant checker: what must be true after every step of the simulated world.

It sees the truth: the database, every node's disk and every process. It knows nothing of what the
parties believe, so it cannot share their mistakes.

* P1 an answered job exists with the same content, and no id is given twice
* P2 at most one run of a job is alive; a run that its fence has frozen is not
* P3 a recorded exit is never lost, never replaced, and a terminal job stays terminal
* P4 a GPU belongs to one run, in the database and on the node; a suspended run that has let its
  GPUs go has none
* P5 nothing ends or freezes a job but its own end, a committed request, a limit or its fence
* P6 every pending job has a reason
* gangs: nothing executes before RELEASE is committed and every member has reserved
* terms: a node's (epoch, revision) and incarnation only grow on its disk
"""

from __future__ import annotations

from typing import Protocol

from dlsched.core.errors import InvariantBroken
from dlsched.protocol.agent import AgentRecord
from dlsched.protocol.ledger import JobStatus, Ledger, Request
from dlsched.protocol.messages import (
    ExitReason,
    ExitRecord,
    Fence,
    JobId,
    NodeName,
    RunId,
    StopReason,
)
from dlsched.protocol.simulation.database import Database
from dlsched.protocol.simulation.processes import Process


class Truth(Protocol):
    """What the checker sees of a world."""

    seed: int
    database: Database
    processes: list[Process]
    ever_reserved: dict[NodeName, set[RunId]]

    def story(self, *subjects: object) -> str:
        """The last lines about some jobs and nodes."""
        ...


class Checker:
    """Watches one world; raises with the story of what it names."""

    def __init__(self, world: Truth) -> None:
        self.world = world
        self.answered: dict[JobId, tuple[Request, int]] = {}
        self.recorded: dict[tuple[NodeName, RunId], ExitRecord] = {}
        self.ever_stopped: set[RunId] = set()
        self.ever_suspended: set[RunId] = set()
        self.ever_released: set[RunId] = set()
        self.ever_executed: set[RunId] = set()
        self.lied: set[NodeName] = set()  # confirmed down by an operator who was wrong
        self.forgiven: set[JobId] = set()  # jobs whose newest run a restore has forgotten
        self.before = Ledger()
        self.checks = 0

    def fail(self, promise: str, text: str, *subjects: object) -> None:
        """Raise with the story of the named jobs, runs and nodes."""
        raise InvariantBroken(
            f"{promise}: {text}\nseed {self.world.seed}\n{self.world.story(*subjects)}"
        )

    # -- the database ----------------------------------------------------------------------------

    def database_changed(self) -> None:
        """After each commit and each restore."""
        self.checks += 1
        ledger = self.world.database.ledger
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
        self._success_counts(ledger)
        self._compare(ledger)
        self.before = ledger

    def _success_counts(self, ledger: Ledger) -> None:
        """A run that succeeded everywhere ends its job, unless a later one was released."""
        newest: dict[JobId, int] = {}
        for run in ledger.runs.values():
            if run.released:
                newest[run.key.job] = max(newest.get(run.key.job, 0), run.key.run)
        for run in ledger.runs.values():
            if newest.get(run.key.job, 0) > run.key.run:
                continue
            exits = [member.exit for member in run.members.values()]
            won = all(e is not None and (e.reason, e.code) == (ExitReason.EXITED, 0) for e in exits)
            if won and not ledger.jobs[run.key.job].status.is_terminal:
                self.fail("P3", f"run {run.key} succeeded and its job goes on", run.key.job)

    def _runs(self, ledger: Ledger) -> dict[JobId, RunId]:
        """Runs and GPUs in the database; the live run of each job."""
        live: dict[JobId, RunId] = {}
        used: dict[tuple[NodeName, str], float] = {}
        for run in ledger.runs.values():
            run_id = run.key.run_id
            if run.released:
                self.ever_released.add(run_id)
            if run.suspended:
                self.ever_suspended.add(run_id)
            if run.stop is not None or any(m.is_over for m in run.members.values()):
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

    def _compare(self, ledger: Ledger) -> None:
        """What may not change from one commit to the next."""
        for job, old in self.before.jobs.items():
            new = ledger.jobs[job]
            if old.status.is_terminal and new.status is not old.status:
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
        """A restore: earlier commits may be gone; what was answered since is forgiven."""
        ledger = self.world.database.ledger
        self.forgiven |= {
            run.key.job for run_id, run in self.before.runs.items() if run_id not in ledger.runs
        }
        self.before = ledger
        self.database_changed()

    def answered_job(self, job: JobId, request: Request) -> None:
        """A client was told that its job is accepted."""
        old = self.answered.get(job)
        if old is not None and old[0] != request:
            self.fail("P1", f"job id {job} was given twice", job)
        self.answered[job] = (request, self.world.database.restored)
        self.database_changed()

    # -- nodes -----------------------------------------------------------------------------------

    def agent_record_changed(self, node: NodeName, old: AgentRecord, new: AgentRecord) -> None:
        """The agent's own file was replaced."""
        if new.term < old.term or new.incarnation < old.incarnation:
            self.fail("terms", f"{node} went from {old} back to {new}", node)

    def exit_recorded(self, node: NodeName, record: ExitRecord) -> None:
        """An exit record became durable on a node."""
        old = self.recorded.get((node, record.key.run_id))
        if old is not None and old != record:
            self.fail("P3", f"{node} replaced the exit of run {record.key}", record.key.job)
        self.recorded[node, record.key.run_id] = record

    def record_dropped(self, node: NodeName, run_id: RunId) -> None:
        """A run's files were deleted: the database must have the end."""
        ledger = self.world.database.ledger
        record = self.recorded.get((node, run_id))
        if record is None or self.world.database.restored:
            return
        run = ledger.runs.get(run_id)
        known = run.members[node].exit if run is not None and node in run.members else None
        if known != record and ledger.history.get((node, run_id)) != record:
            self.fail("P3", f"{node} forgot the exit of run {record.key}", record.key.job, node)

    # -- processes -------------------------------------------------------------------------------

    def executed(self, process: Process) -> None:
        """A run's processes were started on a node."""
        run_id, node = process.desired.key.run_id, process.node
        if run_id in self.ever_executed and process.again:
            self.fail("P3", f"run {process.desired.key} executed twice on {node}", node)
        self.ever_executed.add(run_id)
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
        alive: dict[JobId, RunId] = {}
        there: set[tuple[NodeName, RunId]] = set()
        used: dict[tuple[NodeName, str], float] = {}
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
            if process.frozen_by_fence:
                continue
            other = alive.setdefault(key.job, key.run_id)
            if other != key.run_id and key.job not in self.forgiven:
                self.fail("P2", f"job {key.job} is alive twice", key.job)

    def interfered(self, process: Process, why: StopReason | None, *, fenced: bool) -> None:
        """A keeper signalled or froze its job: somebody must have been entitled to that."""
        run_id, key = process.desired.key.run_id, process.desired.key
        if fenced and process.desired.fence is Fence.LEASE:
            return
        if why is StopReason.TIME_LIMIT or run_id in self.ever_stopped:
            return
        if why is None and run_id in self.ever_suspended:
            return
        self.fail("P5", f"run {key} was disturbed on {process.node} ({why})", key.job, process.node)

    # -- the end -----------------------------------------------------------------------------------

    def settled(self) -> None:
        """After the faults are over and the world has had time: everything has come to its end."""
        ledger = self.world.database.ledger
        for job in ledger.jobs.values():
            excused = job.job in self.forgiven or self._waits_for_orphan(ledger, job.job)
            if not job.status.is_terminal and not excused:
                self.fail("liveness", f"job {job.job} is still {job.status.value}", job.job)
            self._end_is_true(ledger, job.job)
        for process in self.world.processes:
            run = ledger.runs.get(process.desired.key.run_id)
            if run is not None and run.is_over:
                self.fail("P2", f"run {run.key} is over and alive", run.key.job, process.node)

    def _waits_for_orphan(self, ledger: Ledger, job: JobId) -> bool:
        """Whether GPUs that a job could do with are held by a run that a restore has forgotten."""
        run = ledger.live_run(job)
        return bool(ledger.orphans) and (run is None or run.is_away)

    def _end_is_true(self, ledger: Ledger, job: JobId) -> None:
        """A run that succeeded everywhere, and after which none was executed, decides."""
        runs = sorted((r for r in ledger.runs.values() if r.key.job == job), key=lambda r: r.key)
        ran = [run for run in runs if run.key.run_id in self.ever_executed]
        if not ran or self.world.database.restored:
            return
        last = ran[-1]
        exits = [self.recorded.get((node, last.key.run_id)) for node in last.members]
        won = all(e is not None and e.reason is ExitReason.EXITED and e.code == 0 for e in exits)
        status = ledger.jobs[job].status
        if won and status not in (JobStatus.COMPLETED, JobStatus.CANCELLED):
            self.fail("P3", f"job {job} succeeded and is {status.value}", job)


def _adds(
    used: dict[tuple[NodeName, str], float], gpu: tuple[NodeName, str], share: float | None
) -> bool:
    """Count what somebody needs of a GPU; whether there was that much left of it."""
    used[gpu] = used.get(gpu, 0.0) + (1.0 if share is None else share)
    return used[gpu] <= 1.0 + 1e-6
