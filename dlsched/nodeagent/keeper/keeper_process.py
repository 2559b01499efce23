"""A keeper's process: carries out what `dlsched.protocol.keeper` commands for one run on one node.

It is the parent of the job and outlives every agent. It never opens a path that a user named, never
waits for the agent, and exits only when the end of its run is durable and committed.
"""

from __future__ import annotations

import errno
import os
import signal
from collections import deque
from collections.abc import Callable

from dlsched.job import messages as words
from dlsched.nodeagent.host import cgroups, lean_socket, processes
from dlsched.nodeagent.host.event_loop import READABLE, WRITABLE, EventLoop
from dlsched.nodeagent.json_values import UNCLEAR, value_of
from dlsched.nodeagent.keeper import run_files
from dlsched.nodeagent.keeper.agent_connection import AgentConnection
from dlsched.nodeagent.keeper.lease_watch import LeaseWatch
from dlsched.nodeagent.keeper.run_processes import RunProcesses
from dlsched.nodeagent.ranks.held_reports import HeldReports
from dlsched.nodeagent.ranks.job_limits import JobLimits
from dlsched.nodeagent.ranks.job_socket import JobSocket, Peer
from dlsched.nodeagent.ranks.launch_spec import KeeperSpec
from dlsched.nodeagent.ranks.master_port import PortTaken
from dlsched.nodeagent.ranks.task_messages import TaskMessages
from dlsched.nodeagent.ranks.training_messages import TrainingMessages
from dlsched.protocol import keeper
from dlsched.protocol import messages as m
from dlsched.system import clock
from dlsched.system.fault_points import fault_point

ORDERS: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        *(m.Release, m.Freeze, m.Thaw, m.Signal, m.Adjust, m.Stop, m.TakeOver, m.Kill, m.Forget),
    )
}
READ_BY_EACH = (KeeperSpec, run_files.LeaseFile, *ORDERS.values())  # from JSON, by any keeper


LONGEST_UNCLEAR = 300  # characters of what was wrong with a message
MOST_BACKLOG = 4 * 1024 * 1024  # bytes that the agent has not read, while the job is listened to
HOLD_BACK_S = 0.1  # between two looks whether it has read them
_NOT_RECORDED = (keeper.Stage.NEW, keeper.Stage.RESERVING, keeper.Stage.GONE)
_NOT_RELEASED = (keeper.Stage.PROLOG, keeper.Stage.PREPARED, keeper.Stage.RELEASING)


class CannotKeep(Exception):
    """The run cannot be reserved here; the text says why."""


class Keeper:
    """One run on one node."""

    def __init__(
        self,
        spec: KeeperSpec,
        agent: lean_socket.Socket,
        identity: processes.Identity,
        spawning_lock: int,
    ) -> None:
        """Prepare to keep a run; `run` keeps it.

        Args:
            spec: of the run.
            agent: the connection to the agent that starts this keeper.
            identity: of this process, as the agent sees it.
            spawning_lock: a descriptor, open until the run is recorded: see `zygote`.
        """
        self.spec = spec
        self._spawning_lock = spawning_lock
        self._identity = identity
        self.folder = run_files.RunFolder(spec.state_dir, spec.run_dir, spec.desired.key)
        self.job_socket_path = self.folder.job_socket
        self.state = keeper.KeeperState(
            node=spec.node,
            desired=spec.desired,
            timing=spec.timing,
            can_freeze=spec.can_freeze,
            prolog_s=spec.hooks.prolog_limit_s if spec.hooks.prolog else None,
            epilog_s=spec.hooks.epilog_limit_s if spec.hooks.epilog else None,
        )
        self._events: deque[keeper.Event] = deque()
        self._loop = EventLoop(self._on_timer)
        self._lease = LeaseWatch(self._loop, spec.run_dir, spec.timing.beat_s, self._read_lease)
        self._has_left = False
        self._training = TrainingMessages(self)
        self._tasks = TaskMessages(self)
        self._job = JobSocket(
            spec.launch.uid,
            spec.desired.key.run_id,
            on_message=self._from_job,
            on_unclear=self._training.unclear,
        )
        self._limits = JobLimits(self, self._job)
        self.processes = RunProcesses(self, self._loop, self.folder, self._job, self._training)
        self._files_are_lost = False  # as an agent says
        self._shells_listener: lean_socket.Socket | None = None
        self._agent = AgentConnection(
            self._loop,
            agent,
            on_message=self._from_agent,
            on_new_agent=self._new_agent,
            on_close=self._agent_gone,
        )
        self._reports = HeldReports(
            lambda report: self._agent.send({"report": report}),
            is_backed_up=lambda: self._agent.backlog > 0,
        )
        self._unread: list[Peer] = []  # whose messages wait until the agent reads

    # -- the loop ------------------------------------------------------------------------------

    def run(self) -> int:
        """Keep the run until the leader has forgotten it; return the exit code."""
        fault_point("keeper-begin")
        try:
            signal.signal(signal.SIGHUP, self._note_lost_files)
            self._listen_first()
            self.feed(keeper.Began(clock.boottime(), self.spec.covered_until))
            while not self._has_left:
                self._read_on()
                times = [self.state.deadline(), self._lease.deadline, *self.processes.deadlines()]
                times.append(self._reports.deadline)
                if self._unread:
                    times.append(clock.boottime() + HOLD_BACK_S)
                self._loop.turn(min((time for time in times if time is not None), default=None))
                self._find_lost_files()
                self._drain()
        except CannotKeep as error:
            self.send_to_agent({"failed": str(error)})
            return 1
        except Exception as error:
            what = error.strerror if isinstance(error, OSError) else repr(error)
            self.send_to_agent({"failed": f"its keeper failed on {self.spec.node}: {what}"})
            raise
        fault_point("keeper-forgotten")
        return 0

    def watch(self, fd: int, call: Callable[[int], None]) -> None:
        """Call a function whenever a descriptor is readable."""
        self._loop.watch(fd, call)

    def unwatch(self, fd: int) -> None:
        """Stop watching a descriptor."""
        self._loop.unwatch(fd)

    def wait_to_write(self, fd: int, wanted: bool) -> None:
        """Call the function of a watched descriptor also when it is writable, or no longer."""
        self._loop.wait_to_write(fd, wanted)

    def feed(self, event: keeper.Event) -> None:
        """Take one step, and those that follow from what it commands."""
        self._events.append(event)
        self._drain()

    def feed_later(self, event: keeper.Event) -> None:
        """Take one step when the step that is under way is done."""
        self._events.append(event)

    def _drain(self) -> None:
        while self._events:
            self.state, commands = keeper.step(self.state, self._events.popleft())
            for command in commands:
                self._do(command)

    def _on_timer(self) -> None:
        now = clock.boottime()
        due = self.state.deadline()
        if due is not None and now >= due:
            self.feed(keeper.DeadlinePassed(now))
        self._lease.wake(now)
        self.processes.wake(now)
        self._reports.wake(now)

    # -- commands ------------------------------------------------------------------------------

    def _do(self, command: keeper.Command) -> None:  # noqa: PLR0912  # one case a command
        match command:
            case keeper.Reserve():
                self._reserve()
            case keeper.WriteReleased():
                self._write_lost_files()
                self.folder.release()
                self._events.append(keeper.ReleaseWritten(clock.boottime()))
            case keeper.WriteExit(exit=record):
                self._persist_exit(record)
            case keeper.RunHook(name=name):
                self.processes.hook.start(name)
            case keeper.KillHook():
                self.processes.hook.kill()
            case keeper.ApplyLimits(limits=limits):
                self._apply(limits)
            case keeper.WriteEpilog(failed=failed):
                self._write_lost_files()
                self.folder.end_epilog(failed)
                self._events.append(keeper.EpilogWritten(clock.boottime()))
            case keeper.Execute():
                self.processes.execute()
            case keeper.SendSignal(number=number, stop_step=at, hand_over=where):
                self._limits.apply()  # what stands still would not stop
                self.processes.send_signal(number, at, where)
            case keeper.TellToTakeOver():
                for rank in self._job.able_to("take_over"):
                    rank.send_message(words.TakeOver())
            case keeper.FreezeJob():
                self._limits.let_go()  # its own freezing is another's
                self.processes.suspension.freeze()
                self.processes.turns.frozen()
            case keeper.ThawJob():
                self.processes.suspension.thaw()
                self.processes.turns.thawed()
                self._limits.apply()
            case keeper.Report(status=status):
                if status.phase is not m.Phase.SUSPENDED or not self.processes.suspension.is_busy:
                    self._send(status)
            case keeper.Leave():
                self._has_left = True

    def _apply(self, limits: m.Limits) -> None:
        """Limit the processors and the memory of the job from now on, and tell its ranks."""
        cgroups.limit(self.spec.facts.cgroup, limits.cpus, limits.memory_bytes)
        for rank in self._job.able_to("processors"):
            rank.send_message(words.Processors(count=limits.cpus or self.spec.cpus))

    def _reserve(self) -> None:
        if self.spec.rank == 0:
            try:
                self.processes.hold_port()
            except PortTaken as error:
                raise CannotKeep(str(error)) from None
        try:
            is_ours = self.folder.reserve(self._file())
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            what = "no space" if full else "the run cannot be recorded"
            raise CannotKeep(f"{what} on {self.spec.node}: {error.strerror}") from None
        if is_ours:
            self._publish_sockets()
        os.close(self._spawning_lock)
        self._events.append(keeper.Reserved(clock.boottime(), is_ours))

    def _file(self) -> run_files.RunFile:
        """Return what the disk says of this run."""
        return run_files.RunFile(
            desired=self.spec.desired,
            boot_id=m.BootId(clock.boot_id()),
            keeper=self._identity,
            facts=self.spec.facts,
        )

    # -- lost files ----------------------------------------------------------------------------
    # A node's state folder may be wiped or replaced by an older copy while jobs run. The agent that
    # starts on it sends SIGHUP to each live keeper, and finds the runs on its disk again.

    def _note_lost_files(self, _number: int, _frame: object) -> None:
        self._files_are_lost = True

    def _find_lost_files(self) -> None:
        """Write what is missing if an agent has asked for it; it asks again after an error."""
        if self._files_are_lost:
            self._files_are_lost = False
            try:
                self._write_lost_files()
            except OSError as error:
                self.send_to_agent({"failed": f"the run cannot be recorded: {error.strerror}"})

    def _write_lost_files(self) -> None:
        """Write what is missing of a run that was reserved.

        Raises:
            OSError: when it cannot be written.
        """
        stage = self.state.stage
        if stage in _NOT_RECORDED:
            return
        if not os.path.exists(self.folder.agent_socket):
            self._listen()
            self._publish_sockets()
        released = stage not in _NOT_RELEASED
        self.folder.write_again(self._file(), released=released, end=self.state.status().exit)

    def _publish_sockets(self) -> None:
        """Give the sockets the names at which agents and processes of the job look for them."""
        folder = self.folder
        for path in (folder.agent_socket, folder.job_socket, folder.shells_socket):
            os.rename(path + ".new", path)

    def _persist_exit(self, record: m.ExitRecord) -> None:
        self.processes.containment.remove()
        self._write_lost_files()
        self.folder.end(record)
        self._events.append(keeper.ExitWritten(clock.boottime()))

    # -- the agent -----------------------------------------------------------------------------

    def _listen_first(self) -> None:
        try:
            self._listen()
        except OSError as error:
            why = f"no place for sockets on {self.spec.node}: {error.strerror}"
            raise CannotKeep(why) from None

    def _listen(self) -> None:
        """Make sockets for agents and for the job, and watch the node lease.

        `_publish_sockets` gives the sockets their names.
        """
        os.makedirs(self.folder.sockets, 0o711, exist_ok=True)
        os.chmod(self.folder.sockets, 0o711)
        self._agent.listen(self.folder.agent_socket + ".new")
        self._listen_for_shells(self.folder.shells_socket + ".new")
        if self._job.listener is not None:
            self.unwatch(self._job.listener.fileno())
        listener = self._job.listen(self.folder.job_socket + ".new")
        self.watch(listener.fileno(), lambda _mask: self._accept_peer())
        if self.state.needs_lease:
            self._lease.begin()

    def _listen_for_shells(self, path: str) -> None:
        """Listen for the clients of shells, and no longer elsewhere."""
        if self._shells_listener is not None:
            self.unwatch(self._shells_listener.fileno())
        listener = self._shells_listener = lean_socket.listen(path)
        self.watch(listener.fileno(), lambda _mask: self.processes.shells.accept(listener))

    def _new_agent(self) -> None:
        self.feed(keeper.AgentAttached(clock.boottime()))
        self._training.new_agent()
        self._tasks.new_agent()
        self.processes.turns.new_agent()
        self.processes.calls.new_agent()
        self._limits.tell_agent()

    def _agent_gone(self) -> None:
        """Forget the run when the agent died between deleting its record and saying so."""
        self.processes.calls.agent_gone()
        self.processes.turns.agent_gone()
        if self.state.stage is keeper.Stage.ENDED and not self.folder.is_recorded():
            self.feed(keeper.OrderArrived(clock.boottime(), m.Forget()))

    def send_to_agent(self, message: dict[str, object]) -> bool:
        """Send the agent a message; return False when no agent is connected.

        A report of a rank may have to wait; those that wait go before the run's status.
        """
        report = message.get("report")
        if isinstance(report, dict):
            self._reports.add(report)
            return True
        if "status" in message:
            self._reports.send_all()
        return self._agent.send(message)

    def send_status(self) -> None:
        """Send the agent the status of the run."""
        self._send(self.state.status())

    def _send(self, status: m.KeeperStatus) -> None:
        suspended = self.processes.suspension.message()
        self.send_to_agent({"status": status, **suspended})

    def _from_agent(self, message: dict[str, object]) -> None:
        try:
            self._obey(message)
        except UNCLEAR as error:  # an agent of another version must not end the job
            self.send_to_agent({"unclear": f"{type(error).__name__}: {error}"[:LONGEST_UNCLEAR]})

    def _obey(self, message: dict[str, object]) -> None:
        name = message.get("order")
        if isinstance(name, str) and name in ORDERS:
            order: m.Order = value_of(ORDERS[name], message.get("with", {}))
            if isinstance(order, m.Freeze):
                held = message.get("gpu_bytes")
                self.processes.suspension.level = order.level
                self.processes.suspension.gpu_bytes = held if isinstance(held, int) else 0
            self.feed(keeper.OrderArrived(clock.boottime(), order))
            return
        if "ping" in message:
            self.send_to_agent({"pong": message["ping"]})
            return
        if "signal_part" in message:
            self._limits.apply()  # what stands still would not take it
            self.processes.signal_part(message["signal_part"])  # type: ignore[arg-type]
            return
        self._training.from_agent(message)
        self._tasks.from_agent(message)
        self._limits.from_agent(message)
        self.processes.calls.from_agent(message)
        self.processes.turns.from_agent(message)

    def _read_lease(self) -> None:
        """Read the node lease, after a change in its folder."""
        lease = run_files.read_lease(self.spec.run_dir)
        if lease is not None:
            covered = self.spec.desired.key.run_id in lease.covers
            now = clock.boottime()
            self.feed(keeper.LeaseChanged(now, lease.until, covered, lease.by_leader))

    # -- the job -------------------------------------------------------------------------------

    def _accept_peer(self) -> None:
        peer = self._job.accept()
        if peer is not None:
            self.watch(peer.socket.fileno(), lambda mask: self._peer_ready(peer, mask))

    def _peer_ready(self, peer: Peer, mask: int) -> None:
        if mask & WRITABLE:
            self.wait_to_write(peer.socket.fileno(), False)
            self.processes.calls.flush(peer)
        if mask == READABLE and self._agent.backlog > MOST_BACKLOG:
            self._loop.set_mask(peer.socket.fileno(), 0)
            self._unread.append(peer)
        elif mask & ~WRITABLE and not self._job.receive(peer):
            self.unwatch(peer.socket.fileno())
            self.processes.calls.closed(peer)
            self.processes.turns.closed(peer)
            self._training.closed(peer)
            self._tasks.closed(peer)
            self._job.close(peer)

    def _read_on(self) -> None:
        """Read again what peers say, when the agent has read what it got."""
        if self._unread and self._agent.backlog <= MOST_BACKLOG:
            unread, self._unread = self._unread, []
            for peer in unread:
                fd = peer.socket.fileno()
                if self._job.peers.get(fd) is peer:
                    self._loop.set_mask(fd, READABLE)

    def _from_job(self, peer: Peer, message: words.FromJob) -> None:
        self._training.from_job(peer, message)
        self._tasks.from_job(peer, message)
        self._limits.from_job(peer, message)
        if not peer.is_foreign:
            stopping = self.state.stop is not None
            self.processes.leaving.from_job(peer.pid, message, stopping=stopping)
        self.processes.calls.from_job(peer, message)
        self.processes.turns.from_job(peer, message)
        if isinstance(message, words.Hello) and self.state.stage is keeper.Stage.STOPPING:
            reason = self.state.stop or m.StopReason.PREEMPT
            left = (self.state.kill_at or clock.boottime()) - clock.boottime()
            peer.send_message(words.Stop(reason=reason.value, deadline_s=max(0.0, left)))
        if isinstance(message, words.Hello) and not self.state.desired.follows:
            peer.send_message(words.TakeOver())
