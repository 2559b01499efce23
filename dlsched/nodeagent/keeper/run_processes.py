"""The processes of one run on one node: how a keeper starts, signals and kills them, and their end.

These are the processes of the job, ranks of `dlsched run`, the writer of shared output, and a child
that suspends the job.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Collection
from functools import partial
from typing import TYPE_CHECKING, Any

from dlsched.job import messages as words
from dlsched.nodeagent.host import processes
from dlsched.nodeagent.host.containment import Containment, containment_of
from dlsched.nodeagent.host.used import Used
from dlsched.nodeagent.keeper.children import Children
from dlsched.nodeagent.keeper.hook_process import HookProcess
from dlsched.nodeagent.keeper.stacks import Stacks
from dlsched.nodeagent.keeper.suspension import Suspension
from dlsched.nodeagent.ranks import child_process
from dlsched.nodeagent.ranks.job_environment import build_environment, ranks_on_node
from dlsched.nodeagent.ranks.job_signals import JobSignals
from dlsched.nodeagent.ranks.leaving import Leaving
from dlsched.nodeagent.ranks.master_port import HeldPort, port_of
from dlsched.nodeagent.ranks.rank_calls import RankCalls
from dlsched.nodeagent.ranks.run_turns import RunTurns
from dlsched.nodeagent.ranks.shared_output import SharedOutput
from dlsched.nodeagent.shells.shells import Shells
from dlsched.protocol import keeper as protocol
from dlsched.protocol import messages as m
from dlsched.system import clock
from dlsched.system.fault_points import fault_point

if TYPE_CHECKING:
    from dlsched.nodeagent.host.event_loop import EventLoop
    from dlsched.nodeagent.keeper.run_files import RunFolder
    from dlsched.nodeagent.ranks.job_socket import JobSocket
    from dlsched.nodeagent.ranks.keeper_interface import KeeperInterface
    from dlsched.nodeagent.ranks.training_messages import TrainingMessages

_KILL_AGAIN_S = 0.2
_LAST_MESSAGES = 1000  # rounds of reading what ended processes have sent
_PREEMPTIONS = (m.StopReason.PREEMPT, m.StopReason.MIGRATE, m.StopReason.RESIZE)
_ALIVE = (protocol.Stage.RUNNING, protocol.Stage.STOPPING, protocol.Stage.KILLING)


class RunProcesses:
    """The processes of one run on one node; their ends become events of the run.

    Attributes:
        containment: holds all processes of the job.
        signals: to these.
        calls: of `dlsched run`.
        turns: of the ranks, on GPUs that the run shares.
        shells: what clients are attached to.
        suspension: of the job.
        hook: of the site.
        leaving: what the processes have said about their end.
    """

    def __init__(
        self,
        keeper: KeeperInterface,
        loop: EventLoop,
        folder: RunFolder,
        job: JobSocket,
        training: TrainingMessages,
    ) -> None:
        """Have no process yet.

        Args:
            keeper: of the run.
            loop: of the keeper.
            folder: of the run's files.
            job: the socket to which the processes connect.
            training: what the ranks have said.
        """
        self._keeper, self._spec = keeper, keeper.spec
        self._loop, self._folder, self._job, self._training = loop, folder, job, training
        facts, namespace = keeper.spec.facts, keeper.spec.namespace
        self.containment: Containment = containment_of(facts.cgroup, namespace)
        self._children = Children(loop, self)
        self.calls = RankCalls(keeper)
        self.signals = JobSignals(self.containment.members, lambda: self.calls.callers)
        self._used_by_others = Used()  # processes that are no rank of a call
        self.turns = RunTurns(keeper)
        self.shells = Shells(keeper, loop)
        self.suspension = Suspension(keeper)
        self.hook = HookProcess(keeper)
        self.leaving = Leaving()
        self._stacks = Stacks(keeper)
        self._output = SharedOutput(self._spec, self)
        self._port: HeldPort | None = None
        self._running: dict[int, int] = {}  # rank, by pid, of the processes that make up the job
        self._ranks: set[int] = set()  # every process of them, those that have ended too
        self._code, self._signal, self._detail = 0, 0, ""
        self._start_fault: m.StartFault | None = None
        self._has_executed = False
        self._exit_reported = False
        self._failed = False
        self._has_killed = False
        self._kill_again_at: float | None = None
        self._give_up_at: float | None = None
        self._kill_others_at: float | None = None
        self._has_warned = False
        self._ended_at: float | None = None  # the last of the processes that make up the job
        self._ended_unasked = False  # they, or the first that failed, before a stop was asked

    def hold_port(self) -> None:
        """Keep the port of the run's first rank until the job executes.

        Raises:
            PortTaken: when another process has it.
        """
        desired = self._spec.desired
        self._port = HeldPort(desired.key.run_id, alone=len(desired.layout) <= 1)

    # -- time ----------------------------------------------------------------------------------

    def deadlines(self) -> list[float | None]:
        """Return when `wake` has something to do, in seconds since the boot; None: not at all."""
        return [
            self._kill_again_at,
            self._give_up_at,
            self._kill_others_at,
            self._children.start_limit_at,
            self._warn_at(),
            self.suspension.deadline,
            self.calls.deadline,
            self.turns.deadline,
            self._stacks.deadline,
            self._output.deadline,
            self.shells.deadline,
        ]

    def wake(self, now: float) -> None:
        """Do what is due at this time."""
        limit = self._children.start_limit_at
        if limit is not None and now >= limit:
            self._children.start_limit_at = None
            self.fail_job("cannot open output: it takes too long")
        if self._kill_others_at is not None and now >= self._kill_others_at:
            self._kill_others_at = None
            self._kill()
        if self._give_up_at is not None and now >= self._give_up_at:
            self._give_up_at = None
            self._report_exit(stuck=True)
        if self._kill_again_at is not None and now >= self._kill_again_at:
            self._kill()
        warn_at = self._warn_at()
        if warn_at is not None and now >= warn_at:
            self._warn()
        self.suspension.wake(now)
        self.calls.wake(now)
        self.turns.wake(now)
        self._stacks.wake(now)
        self._output.wake(now)
        self.shells.wake(now)

    def _warn_at(self) -> float | None:
        """When to send the signal that warns of the time limit; None when it is not to be sent."""
        limit, since = self._keeper.state.desired.limits.time_s, self._keeper.state.executed_at
        if limit is None or since is None or self._has_warned or not self._spec.launch.warn_signal:
            return None
        if self._keeper.state.stage is not protocol.Stage.RUNNING:
            return None
        return since + limit - self._keeper.state.ran_s - self._spec.launch.warn_before_s

    def _warn(self, not_to: Collection[int] = ()) -> bool:
        """Send the job's warning to the processes that handle it; return whether there was any."""
        self._has_warned = True
        launch = self._spec.launch
        if not launch.warn_script_only:
            return self.signals.send(launch.warn_signal, or_all=False, not_to=not_to)
        scripts = [each for each in self.containment.members() if each.pid in self._running]
        handling = [each for each in scripts if processes.catches(each.pid, launch.warn_signal)]
        processes.send(handling, launch.warn_signal)
        return bool(handling)

    # -- starts --------------------------------------------------------------------------------

    def execute(self) -> None:
        """Start the processes of the job on this node."""
        self._has_executed = True
        try:
            self._start_ranks()
        except OSError as error:  # no process, descriptor or space is left
            self._start_fault = m.StartFault.NODE
            self.fail_job(f"cannot start: {error.strerror}")
        self.shells.begun()

    def _start_ranks(self) -> None:
        port = self._port.port if self._port else port_of(self._spec.desired.key.run_id)
        if self._port is not None:
            self._port.hand_over()
        launch = self._spec.launch
        argv = launch.argv
        ranks = ranks_on_node(self._spec)
        if launch.script and ranks:
            child_process.write_script(self._spec, self._folder.script)
            argv = child_process.script_argv(launch.script, self._folder.script, launch.argv)
        if launch.takes_tasks:  # with this program's interpreter, whatever the job has loaded
            argv = (sys.executable, "-I", "-m", "dlsched.job.tasks")
        processes = {}
        for rank in ranks:
            path = partial(
                child_process.expand_pattern,
                node=self._spec.node,
                node_rank=self._spec.rank,
                rank=rank.rank,
            )
            processes[rank.rank] = child_process.ProcessSpec(
                argv=argv,
                environment=build_environment(self._spec, rank, self._keeper.job_socket_path, port),
                working_directory=launch.working_directory,
                output=path(launch.output),
                error=path(launch.error),
                truncate=not launch.append and rank.rank == 0,
            )
        for process in list(processes.values())[:1]:
            self.calls.script_environment = process.environment
        for number, process in self._output.connect(processes).items():
            start = self.shells.start_own if launch.terminal else self.start_child
            pid = start(process)
            self._running[pid] = number
            self._ranks.add(pid)
        self._output.close()
        fault_point("keeper-executed")
        if self._children.are_starting and not launch.terminal:  # that one waits for a client
            self._children.start_limit_at = clock.boottime() + self._spec.start_limit_s

    def start_child(self, process: child_process.ProcessSpec) -> int:
        """Start one process of the job; return its id."""
        entrance = self.containment.entrance()
        process = child_process.replace(
            process, cgroup_procs=entrance, tied_to_keeper=not self._spec.namespace
        )
        fault_point("keeper-forked")
        try:
            return self._children.start(self._spec, process)
        finally:
            if entrance is not None:
                os.close(entrance)

    def adopt_writer(self, forked: tuple[int, int]) -> int:
        """Take an output writer that was forked; return its id. No signal to the job reaches it."""
        pid = self._children.adopt(forked)
        self.containment.spared.add(pid)
        return pid

    # -- signals -------------------------------------------------------------------------------

    def send_signal(self, number: int, at: int | None, hand_over: str = "") -> None:
        """Send the job a signal; a SIGTERM that stops it is a message to ranks that can read one.

        Args:
            number: of the signal.
            at: the step after which all ranks stop; None: as soon as they agree.
            hand_over: where the ranks of the next run wait for the state.
        """
        if number == signal.SIGKILL:
            self._give_up_at = None
            self._kill()
            return
        if number == words.STACKS_SIGNAL:
            self._stacks.take(each for each in self._job.peers.values() if not each.is_foreign)
            return
        if number != signal.SIGTERM or self._keeper.state.stage is not protocol.Stage.STOPPING:
            self.signals.send(number)
            return
        self.calls.run_stops()
        self.shells.stops()
        self.turns.must_stop()
        if not self._running:
            if self._ended_at is None:
                self._code = self._code or (0 if self._exit_reported else 143)
            if not self.calls.have_ranks:  # no process here could exit by itself
                self._kill()
                return
        stoppable = [
            each for each in self._job.able_to("stop") if not self.leaving.has_finished(each.pid)
        ]
        warned = self._warns_of_preemption() and self._warn(not_to={e.pid for e in stoppable})
        if not stoppable:
            self._send_term(but_warned=warned)
            return
        reason = (self._keeper.state.stop or m.StopReason.PREEMPT).value
        grace_s = self._keeper.state.desired.grace_s
        message: words.Message = words.Stop(reason=reason, deadline_s=grace_s, hand_over=hand_over)
        if at is not None:
            message = words.StopAt(step=at)
        for peer in stoppable:
            peer.send_message(message)

    def signal_part(self, asked: dict[str, Any]) -> None:
        """Signal a part of the job, as Slurm does: the script alone, its tasks, or one step's."""
        if self._keeper.state.stage not in _ALIVE:
            return
        number = int(asked["number"])
        if "step" in asked:
            self.calls.signal(int(asked["step"]), number)
        elif asked["to"] == "script":
            found = (processes.stat(pid) for pid in self._running)
            processes.send([each for each in found if each is not None], number)
        else:
            self.calls.signal_all(number)
            if self._spec.desired.mode is not m.LaunchMode.BATCH:  # its processes are tasks
                self.signals.send(number, below=self._running)

    def _warns_of_preemption(self) -> bool:
        """Whether the job's signal is asked for at this stop, and has not been sent before."""
        preempted = self._keeper.state.stop in _PREEMPTIONS
        return preempted and self._spec.launch.warn_at_preemption and not self._has_warned

    def _send_term(self, *, but_warned: bool) -> None:
        """Send TERM; what follows a finished training gets it for a cancel only.

        A launcher between the keeper and the training would end the training at TERM.

        Args:
            but_warned: the job has got a signal in its place.
        """
        alive = {each.pid for each in self.containment.members()}
        finishing = any(map(self.leaving.has_finished, alive))
        if finishing and self._keeper.state.stop is not m.StopReason.CANCEL:
            return
        self.leaving.term_sent(clock.boottime(), alive)
        if not but_warned:
            self.signals.ask_to_end()

    def _kill(self) -> None:
        """Kill all processes, and again soon; `_give_up_at` bounds the tries."""
        self._has_killed = True
        self.containment.kill()
        self._kill_again_at = clock.boottime() + _KILL_AGAIN_S
        if not self._running and not self.containment.members():
            self._output.no_process_left()
        self._children.reap()

    def _read_last_messages(self) -> None:
        """Read what processes sent right before they ended, on new connections too."""
        for _ in range(_LAST_MESSAGES):
            listener = self._job.listener
            fds = set(self._job.peers) | ({listener.fileno()} if listener is not None else set())
            if not self._loop.drain(fds):
                return

    # -- ends ----------------------------------------------------------------------------------

    def child_ended(self, pid: int, status: int, error: str, used: Used) -> None:
        """Note the end of a process: of a rank of `dlsched run`, a helper, or the job itself."""
        self.signals.child_ended()
        if pid not in self._ranks:
            self._children.executed.discard(pid)  # asked of ranks only, and orphans are many
        of_node = bool(error) and status == child_process.NODE_FAULT
        status = child_process.CANNOT_START if of_node else status
        code, number = (status, 0) if status >= 0 else (0, -status)
        if self.calls.ended(pid, code, number, error, used):
            return
        self._used_by_others += used
        if (
            self.hook.ended(pid, status)
            or self.suspension.ended(pid)
            or self._output.ended(pid, status, error)
            or self._stacks.ended(pid, code, number, error)
            or self.shells.ended(pid, code, number, error)
        ):
            return
        rank = self._running.pop(pid, None)
        if rank is None:
            return
        is_running = self._keeper.state.stage is protocol.Stage.RUNNING
        if (code or number) and is_running and not (self._failed and self._has_killed):
            self._read_last_messages()
            self._training.rank_ended(rank, code, number)
        if (code or number) and not self._failed:
            self._failed, self._ended_unasked = True, self._keeper.state.stop is None
            self._start_fault = m.StartFault.NODE if of_node else None
            said = error or self._training.error_of(rank)
            if self._spec.desired.mode is m.LaunchMode.GPU:
                said = f"rank {rank}: {said}" if said else f"rank {rank}"
            self._code, self._signal, self._detail = code, number, said
            if self._running:
                self._end_other_ranks()
        if not self._running:
            self._ended_at = clock.boottime()
            self._ended_unasked = self._ended_unasked or self._keeper.state.stop is None
        if self._running:
            return
        if self._keeper.state.stage is not protocol.Stage.STOPPING:
            self._give_up_at = clock.boottime() + self._spec.timing.unkillable_s
            self._kill()
            return
        # a script's shell dies of TERM at once, but what it has started has its grace
        self.shells.hang_up()

    def _end_other_ranks(self) -> None:
        """End the other ranks on this node after one has failed: TERM, then KILL."""
        self.signals.ask_to_end()
        grace_s = protocol.grace_of_peers_s(self._spec.desired.grace_s)
        self._kill_others_at = clock.boottime() + grace_s

    def fail_job(self, why: str) -> None:
        """Kill a job that cannot go on; its exit record says why."""
        if not self._failed:
            self._failed, self._ended_unasked = True, self._keeper.state.stop is None
            self._code, self._signal, self._detail = child_process.CANNOT_START, 0, why
        self._give_up_at = clock.boottime() + self._spec.timing.unkillable_s
        self._kill()

    @property
    def _waits_for_first_node(self) -> bool:
        """Whether this node has no process of its own, as all but the first of a batch job."""
        return self._spec.desired.mode is m.LaunchMode.BATCH and self._spec.rank != 0

    def no_child_left(self) -> None:
        """Report the job's exit when all its processes have ended and none is to come."""
        idle = not self._running and self._has_executed
        stopping = self._keeper.state.stage in (protocol.Stage.STOPPING, protocol.Stage.KILLING)
        if not idle or (self._waits_for_first_node and not stopping and not self._exit_reported):
            return
        self._kill_again_at = self._give_up_at = self._kill_others_at = None
        self._children.start_limit_at = None
        self._read_last_messages()
        self._report_exit(stuck=False)

    def _report_exit(self, *, stuck: bool) -> None:
        """Report that the job has ended, or that its processes cannot be killed (`stuck`)."""
        now, state = clock.boottime(), self._keeper.state
        if self._exit_reported or state.stage not in _ALIVE:
            if not stuck and state.quarantined:  # given up before, and now gone after all
                self._keeper.feed_later(protocol.JobExited(now))
            return
        self._exit_reported = True
        others = self._used_by_others
        used = others + self.calls.used
        killed = state.stage is protocol.Stage.KILLING and not self._failed and not self._code
        if killed and self._waits_for_first_node:
            self._signal = signal.SIGKILL
        self._keeper.feed_later(
            protocol.JobExited(
                now,
                code=self._code,
                signal=self._signal,
                out_of_memory=self.containment.out_of_memory(),
                detail=self._detail,
                stuck=stuck,
                told=self.leaving.told,
                checkpoint=self.leaving.checkpoint,
                term_s=self.leaving.term_s(self._ended_at or now),
                unasked=self._ended_unasked,
                at=clock.wall() - (now - (self._ended_at or now)),
                steps=self.calls.steps(),
                cpu_s=used.cpu_s,
                peak_memory_bytes=used.peak_memory_bytes,
                script_cpu_s=others.cpu_s,
                script_peak_bytes=others.peak_memory_bytes,
                start_fault=self._start_fault,
                executed=not self._ranks.isdisjoint(self._children.executed),
            )
        )
