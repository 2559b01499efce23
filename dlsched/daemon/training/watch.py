"""What the leader does about trainings each second: store, find hangs, explain ends, halve sweeps.

A training hangs when it has made steps and then makes none for many times its usual step time.
Counted is the time for which it is seen to execute: no suspension, also while one of its nodes is
still restoring it, no stop, no save or evaluation that the job has announced, and no time in which
a node of it is late or frozen for want of a lease.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Coroutine

import grpc

from dlsched.core.errors import DlschedError
from dlsched.daemon.cluster import Cluster
from dlsched.daemon.reported.curves import Hang, JobCurves
from dlsched.daemon.reported.failures import Failure
from dlsched.daemon.training.causes import FailedRun
from dlsched.daemon.training.gpu_work import GpuWatch
from dlsched.daemon.training.sweeps import judge_sweeps, read_rungs
from dlsched.db.records import Event
from dlsched.protocol import leader
from dlsched.protocol.ledger import Cause, Run, judge
from dlsched.protocol.messages import JobId, LaunchMode, NodeName, Phase, StopReason
from dlsched.rpc.call_failures import ChannelClosed, answer
from dlsched.rpc.conversion import to_wire
from dlsched.rpc.v1 import node_pb2
from dlsched.system.clock import boottime, wall

log = logging.getLogger("dlsched.daemon")
LONGEST_LOOK_S = 10.0  # of a pause between two looks, so much counts
STACKS_SIGNAL = 44  # as dlsched.job.messages has it
CALL_S = 5.0
STACKS_S = 8.0  # at most, from asking for stacks to what is done about a hang
SETTLES_S = 1.0  # after the end of a run, in which the last reports of its ranks come
LEAST_REPORTS = 3  # of steps, before a run can hang
AT_ONCE = 8  # calls to agents


class TrainingWatch:
    """Watches the trainings of one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._calls: set[asyncio.Task[None]] = set()
        self._reading: set[JobId] = set()  # arrays of sweeps
        self._gpus = GpuWatch(cluster)
        self._looked_at = boottime()

    def look(self) -> None:
        """Look at all trainings once."""
        self._store()
        now = boottime()
        passed_s = min(now - self._looked_at, LONGEST_LOOK_S)
        self.find_hangs(passed_s)
        self._gpus.look(passed_s)
        self._looked_at = now
        self._explain_failures()
        self._halve_sweeps()

    async def stop(self) -> None:
        """End the calls that are under way."""
        for task in list(self._calls):
            task.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)

    def _store(self) -> None:
        """Store the curves that are due, and the last step of runs that are over."""
        driver, curves = self._cluster.driver, self._cluster.curves
        ledger = driver.committed
        over = frozenset(job for job in curves.jobs if ledger.live_run(job) is None)
        rows: list[object] = list(curves.due(boottime(), wall(), over))
        for job in over:
            progress = curves.jobs[job].last_progress()
            if progress is not None:
                rows.append(progress)
            if job not in ledger.jobs and not driver.store_down:
                del curves.jobs[job]
        if rows:
            driver.note(*rows)

    def _halve_sweeps(self) -> None:
        """Stop what successive halving gives up, and read what has not been read of sweeps."""
        judge_sweeps(self._cluster)
        for array in self._cluster.rungs.unread.keys() - self._reading:
            self._reading.add(array)
            self._start(self._read_rungs(array))

    async def _read_rungs(self, array: JobId) -> None:
        try:
            await read_rungs(self._cluster, array)
        finally:
            self._reading.discard(array)

    # -- hangs -------------------------------------------------------------------------------------

    def find_hangs(self, passed_s: float) -> None:
        """Look for trainings that hang, `passed_s` seconds after the last time."""
        cluster, now = self._cluster, boottime()
        last_syncs = cluster.driver.state.last_syncs.values()
        paused = {
            held.key.run_id
            for last in last_syncs
            for held in last.held
            if held.phase is not Phase.RUNNING
        }
        for job, mine in cluster.curves.jobs.items():
            run = cluster.driver.committed.live_run(job)
            if run is None or run.stop is not None or run.suspended or mine.doing:
                continue
            if mine.run != run.key.run_id or run.key.run_id in paused:
                continue
            if any(cluster.is_late(name, now) for name in run.members):
                continue
            mine.idle_s += passed_s
            if mine.steps_seen < LEAST_REPORTS:
                continue
            if mine.hang is None:
                self._judge(job, run, mine)
            elif mine.hang.act_at is not None and (
                now >= mine.hang.act_at or self._has_all_stacks(job, run, mine.hang)
            ):
                mine.hang.act_at = None
                self._act(job, run, mine)

    def _has_all_stacks(self, job: JobId, run: Run, hang: Hang) -> bool:
        """Whether the stacks of all ranks have come, where it is known how many there are."""
        is_ranked = self._cluster.driver.committed.jobs[job].request.mode is LaunchMode.GPU
        gpus = sum(len(member.gpus) for member in run.members.values())
        return is_ranked and len(hang.stacks) >= gpus

    def _field(self, job: JobId, name: str) -> str | float | None:
        driver = self._cluster.driver
        found: str | float | None = driver.table.field(driver.committed.jobs[job], name)
        return found

    def _action(self, job: JobId) -> str:
        return str(self._field(job, "on_hang") or self._cluster.settings.hang.action)

    def _judge(self, job: JobId, run: Run, mine: JobCurves) -> None:
        """Note a hang, tell the owner, and ask for the stacks of all ranks."""
        cluster, now, waited = self._cluster, boottime(), mine.idle_s
        action, site = self._action(job), cluster.settings.hang
        factor = float(self._field(job, "hang_factor") or site.factor)
        if action == "off" or waited <= max(factor * mine.usual_step_s, site.least_s):
            return
        mine.hang = Hang(act_at=None if action == "tell" else now + STACKS_S)
        text = (
            f"no step for {waited:.0f} s after step {mine.step}; "
            f"a step usually takes {mine.usual_step_s:.3g} s"
        )
        note = Event(
            at=wall(), kind="hang", actor="daemon", job=job, run_id=run.key.run_id, text=text
        )
        cluster.driver.note(note)
        if action == "fail":
            node = next(iter(run.members))
            cluster.failures.add(
                run.key.run_id, Failure(rank=None, node=node, error=f"hangs: {text}", at=0.0)
            )
        self._signal(run, STACKS_SIGNAL)

    def _act(self, job: JobId, run: Run, mine: JobCurves) -> None:
        """Do what the job or the site wants; a job that hangs at the same step again fails."""
        again = mine.hung_at == mine.step
        mine.hung_at = mine.step
        if self._action(job) == "requeue" and not again:
            now = boottime()
            why = "it hangs"
            note = Event(at=wall(), kind="requeue", actor="daemon", job=job, text=why)
            stop = leader.StopAsked(now, job, StopReason.REQUEUE)
            together = leader.Together(now, (leader.AttachAsked(now, (note,)), stop))
            self._cluster.driver.step(together)
        else:
            self._signal(run, signal.SIGKILL)

    def _signal(self, run: Run, number: int) -> None:
        for name in run.members:
            message = node_pb2.SignalRequest(key=to_wire(run.key), number=number)
            self._start(self._send(name, message))

    async def _send(self, node: NodeName, message: node_pb2.SignalRequest) -> None:
        stub = self._cluster.agents.stub(node)
        if stub is not None:
            await answer(stub.SendSignal(message, timeout=CALL_S))

    def _start(self, call: Coroutine[None, None, None]) -> None:
        async def guarded() -> None:
            try:
                await call
            except (grpc.aio.AioRpcError, ChannelClosed, DlschedError) as error:
                log.warning("event=agent-not-reached why=%r", str(error))

        task = asyncio.get_running_loop().create_task(guarded())
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)

    # -- failures ----------------------------------------------------------------------------------

    def _explain_failures(self) -> None:
        """Note the cause of each failed run in an event, soon after its end."""
        cluster, now = self._cluster, boottime()
        failures, ledger = cluster.failures, cluster.driver.committed
        for run_id in list(failures.of):
            run = ledger.runs.get(run_id)
            if run is None or len(self._calls) >= AT_ONCE:
                if run is None:
                    failures.forget(run_id)
                continue
            if not run.is_over:
                continue
            if now - failures.over_since.setdefault(run_id, now) < SETTLES_S:
                continue
            told = failures.of[run_id]
            failures.forget(run_id)
            job = ledger.jobs.get(run.key.job)
            if job is not None and judge(run, job)[0] is Cause.FAILED:
                self._start(self._explain(FailedRun(cluster, job, run, told)))

    async def _explain(self, failed: FailedRun) -> None:
        self._cluster.driver.note(await failed.explain())
