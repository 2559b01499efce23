"""A keeper's process: carries out what `dlsched.protocol.keeper` commands for one run on one node.

It is the parent of the job and outlives every agent. It never opens a path that a user named, never
waits for the agent, and leaves only when the end of its run is durable and committed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import struct
import sys
from collections import deque
from collections.abc import Callable

from dlsched.core.errors import BadInput
from dlsched.job import messages as words
from dlsched.nodeagent import child, clock, lean_socket, process, runfiles, syscalls
from dlsched.nodeagent.checkpointing import Suspension
from dlsched.nodeagent.containment import Cgroup, Containment, Namespace, Tree
from dlsched.nodeagent.environment import build, ranks_here
from dlsched.nodeagent.faultpoint import faultpoint
from dlsched.nodeagent.framing import FrameSocket
from dlsched.nodeagent.job_socket import JobSocket, Peer
from dlsched.nodeagent.plainjson import plain, value_of
from dlsched.nodeagent.rank_calls import RankCalls
from dlsched.nodeagent.rank_steps import RankSteps
from dlsched.nodeagent.rendezvous import HeldPort, PortTaken, derived
from dlsched.nodeagent.spec import KeeperSpec
from dlsched.protocol import keeper
from dlsched.protocol.messages import (
    Adjust,
    ExitRecord,
    Forget,
    Freeze,
    Kill,
    LaunchMode,
    Order,
    Phase,
    Release,
    Signal,
    Stop,
    StopReason,
    Thaw,
)

ORDERS: dict[str, type] = {
    kind.__name__: kind for kind in (Release, Freeze, Thaw, Signal, Adjust, Stop, Kill, Forget)
}
_KILL_AGAIN_S = 0.2
_PEERS_GRACE_S = 10.0  # for the other ranks on a node when one has failed
_LAST_WORDS = 1000  # turns in which processes that have ended are still heard


class CannotKeep(Exception):
    """The run cannot be reserved here; in words."""


class Keeper:
    """One run on one node."""

    def __init__(
        self, spec: KeeperSpec, agent: lean_socket.Socket, identity: process.Identity, spawning: int
    ) -> None:
        self.spec = spec
        self._spawning = spawning  # held open until the run is recorded: see zygote
        self._identity = identity
        self.folder = runfiles.RunFolder(spec.state_dir, spec.run_dir, spec.desired.key)
        self.state = keeper.KeeperState(
            node=spec.node,
            desired=spec.desired,
            timing=spec.timing,
            can_freeze=spec.can_freeze,
        )
        self.containment: Containment = _containment(spec)
        self._events: deque[keeper.Event] = deque()
        self._poll = select.epoll()
        self._calls: dict[int, tuple[Callable[[int], None], int]] = {}
        self._timer = syscalls.make_timer()
        self._children = self._watch_children()
        self._agents: list[FrameSocket] = []
        self._left = False
        self._running: dict[int, int] = {}  # pid -> rank, of the processes that make up the job
        self._told: dict[int, bytes] = {}  # pipe of a child -> why it cannot start
        self._pipes: dict[int, int] = {}  # pipe -> pid
        self._code, self._signal, self._detail = 0, 0, ""
        self._executed = False
        self._ended = False  # JobExited was said
        self._failed = False
        self._kill_again: float | None = None
        self._stuck_at: float | None = None
        self._peers_kill: float | None = None
        self._start_limit: float | None = None
        self._warned = False
        self._port: HeldPort | None = None
        self.watch(self._timer, self._timer_rang)
        self.job: JobSocket | None = None
        self.steps = RankSteps(self)
        self.calls = RankCalls(self)
        self.suspension = Suspension(self)
        self._attach(agent)

    # -- the loop ------------------------------------------------------------------------------

    def run(self) -> int:
        """Keep the run until it is forgotten; the exit code."""
        faultpoint("keeper-begin")
        try:
            self._listen()
            self.feed(keeper.Began(clock.now(), self.spec.covered_until))
            while not self._left:
                self._set_timer()
                for fd, mask in self._poll.poll():
                    if fd in self._calls:  # an earlier call may have ended it
                        self._calls[fd][0](mask)
                self._drain()
        except CannotKeep as error:
            self.tell({"failed": str(error)})
            return 1
        faultpoint("keeper-forgotten")
        return 0

    def watch(self, fd: int, call: Callable[[int], None]) -> None:
        """Have a descriptor's events handled."""
        self._poll.register(fd, select.EPOLLIN)
        self._calls[fd] = (call, select.EPOLLIN)

    def unwatch(self, fd: int) -> None:
        """Look at a descriptor no more."""
        if self._calls.pop(fd, None) is not None:
            with contextlib.suppress(OSError):
                self._poll.unregister(fd)

    def feed(self, event: keeper.Event) -> None:
        """One step, and those that follow from what it commands."""
        self._events.append(event)
        self._drain()

    def soon(self, event: keeper.Event) -> None:
        """One step when what is under way is done."""
        self._events.append(event)

    def _drain(self) -> None:
        while self._events:
            self.state, commands = keeper.step(self.state, self._events.popleft())
            for command in commands:
                self._do(command)

    def _deadlines(self) -> list[float]:
        times = [
            self.state.deadline(),
            self._kill_again,
            self._stuck_at,
            self._peers_kill,
            self._start_limit,
            self._warn_at(),
            self.suspension.deadline,
            self.calls.deadline,
        ]
        return [time for time in times if time is not None]

    def _set_timer(self) -> None:
        syscalls.set_timer(self._timer, min(self._deadlines(), default=None))

    def _timer_rang(self, _mask: int) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._timer, 8)
        now = clock.now()
        due = self.state.deadline()
        if due is not None and now >= due:
            self.feed(keeper.Woke(now))
        if self._start_limit is not None and now >= self._start_limit:
            self._start_limit = None
            self._fail(child.CANNOT_START, "cannot open output: it takes too long")
        if self._peers_kill is not None and now >= self._peers_kill:
            self._peers_kill = None
            self._kill()
        if self._stuck_at is not None and now >= self._stuck_at:
            self._stuck_at = None
            self._exit(stuck=True)
        if self._kill_again is not None and now >= self._kill_again:
            self._kill()
        warn_at = self._warn_at()
        if warn_at is not None and now >= warn_at:
            self._warned = True
            self._signal_those_that_care(self.spec.launch.warn_signal, or_all=False)
        self.suspension.wake(now)
        self.calls.wake(now)

    def _warn_at(self) -> float | None:
        limit, since = self.state.desired.limits.time_s, self.state.executed_at
        if limit is None or since is None or self._warned or not self.spec.launch.warn_signal:
            return None
        if self.state.stage is not keeper.Stage.RUNNING:
            return None
        return since + limit - self.state.ran_s - self.spec.launch.warn_before_s

    # -- commands ------------------------------------------------------------------------------

    def _do(self, command: keeper.Command) -> None:
        match command:
            case keeper.Reserve():
                self._reserve()
            case keeper.WriteReleased():
                self.folder.release()
                self._events.append(keeper.ReleaseWritten(clock.now()))
            case keeper.WriteExit(exit=record):
                self._persist_exit(record)
            case keeper.Execute():
                self._execute()
            case keeper.SendSignal(number=number, stop_step=at):
                self._send_signal(number, at)
            case keeper.FreezeJob():
                self.suspension.freeze()
            case keeper.ThawJob():
                self.suspension.thaw()
            case keeper.Report(status=status):
                if status.phase is not Phase.SUSPENDED or not self.suspension.busy:
                    self.tell({"status": plain(status), **self.suspension.said()})
            case keeper.Leave():
                self._left = True

    def _reserve(self) -> None:
        if self.spec.rank == 0:
            try:
                self._port = HeldPort(
                    self.spec.desired.key.run_id, alone=len(self.spec.desired.layout) <= 1
                )
            except PortTaken as error:
                raise CannotKeep(str(error)) from None
        file = runfiles.RunFile(
            desired=self.spec.desired,
            boot_id=clock.boot_id(),
            keeper=self._identity,
            facts=self.spec.facts,
        )
        try:
            mine = self.folder.reserve(file)
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            what = "no space" if full else "the run cannot be recorded"
            raise CannotKeep(f"{what} on {self.spec.node}: {error.strerror}") from None
        if mine:
            os.rename(self.folder.agent_socket + ".new", self.folder.agent_socket)
            os.rename(self.folder.job_socket + ".new", self.folder.job_socket)
        os.close(self._spawning)
        self._events.append(keeper.Reserved(clock.now(), mine))

    def _persist_exit(self, record: ExitRecord) -> None:
        self.containment.remove()
        self.folder.end(record)
        self._events.append(keeper.ExitWritten(clock.now()))

    def _execute(self) -> None:
        self._executed = True
        port = self._port.port if self._port else derived(self.spec.desired.key.run_id)
        if self._port is not None:
            self._port.hand_over()
        launch = self.spec.launch
        argv = launch.argv
        ranks = ranks_here(self.spec)
        if launch.script and ranks:
            self._write_script()
            argv = child.script_argv(launch.script, self.folder.script, launch.argv)
        for rank in ranks:
            names = {"node": self.spec.node, "node_rank": self.spec.rank, "rank": rank.rank}
            start = child.Start(
                argv=argv,
                environment=build(self.spec, rank, self.folder.job_socket, port),
                working_directory=launch.working_directory,
                output=child.expanded(launch.output, **names),  # type: ignore[arg-type]
                error=child.expanded(launch.error, **names),  # type: ignore[arg-type]
                truncate=not launch.append and rank.rank == 0,
            )
            self._running[self.start_child(start)] = rank.rank
        faultpoint("keeper-executed")
        if self._told or self._pipes:
            self._start_limit = clock.now() + self.spec.start_limit_s

    def start_child(self, start: child.Start) -> int:
        """Start one process of the job; its id."""
        entrance = self.containment.entrance()
        tied = not self.spec.namespace
        start = child.replace(start, cgroup_procs=entrance, tied_to_keeper=tied)
        faultpoint("keeper-forked")
        pid, pipe = child.spawn(self.spec, start)
        if entrance is not None:
            os.close(entrance)
        self._pipes[pipe] = pid
        self.watch(pipe, lambda _mask: self._child_told(pipe))
        return pid

    def _write_script(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(self.folder.script, flags, 0o500)
        try:
            with open(fd, "wb", closefd=False) as file:
                file.write(self.spec.launch.script)
            if os.geteuid() == 0:
                os.fchown(fd, self.spec.launch.uid, self.spec.launch.gid)
        finally:
            os.close(fd)

    def _child_told(self, pipe: int) -> None:
        """A child says why it cannot start, or has closed the pipe by executing."""
        data = os.read(pipe, 4096)
        if data:
            self._told[self._pipes[pipe]] = data
            return
        self.unwatch(pipe)
        os.close(pipe)
        del self._pipes[pipe]
        if not self._pipes:
            self._start_limit = None

    # -- signals -------------------------------------------------------------------------------

    def _send_signal(self, number: int, at: int | None) -> None:
        if number == signal.SIGKILL:
            self._stuck_at = None
            self._kill()
            return
        if number != signal.SIGTERM or self.state.stage is not keeper.Stage.STOPPING:
            self._signal_those_that_care(number, or_all=True)
            return
        if not self._running:  # nothing to run here, so nothing that could leave by itself
            self._code = self._code or (0 if self._ended else 143)
            self._kill()
            return
        leaving = self.job.stoppable() if self.job is not None else []
        if not leaving:
            self.containment.send(signal.SIGTERM)
            return
        reason = self.state.stop.value if self.state.stop else "preempt"
        said: words.Message = words.Stop(reason=reason, deadline_s=self.state.desired.grace_s)
        if at is not None:
            said = words.StopAt(step=at)
        for peer in leaving:
            peer.say(said)

    def _signal_those_that_care(self, number: int, *, or_all: bool) -> None:
        """A signal that would end a process goes to those that have a handler for it.

        A shell that waits for the training script does not die of the script's own signal.
        """
        members = self.containment.members()
        handling = [each for each in members if process.catches(each.pid, number)]
        if handling:
            process.send(handling, number)
        elif or_all:
            self.containment.send(number)

    def _kill(self) -> None:
        """Kill all there is, again and again; those stuck in the kernel are counted elsewhere."""
        self.containment.kill()
        self._kill_again = clock.now() + _KILL_AGAIN_S
        self._reap()

    # -- ends ----------------------------------------------------------------------------------

    def _watch_children(self) -> lean_socket.Socket:
        reading, writing = lean_socket.pair()
        reading.setblocking(False)
        writing.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        signal.set_wakeup_fd(writing.fileno(), warn_on_full_buffer=False)
        self._wakeup = writing
        self.watch(reading.fileno(), lambda _mask: self._reap())
        return reading

    def _reap(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._children.recv(4096)
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self._nobody_left()
                return
            if pid == 0:
                return
            self._one_ended(pid, os.waitstatus_to_exitcode(status))

    def _one_ended(self, pid: int, status: int) -> None:
        code, number = (status, 0) if status >= 0 else (0, -status)
        told = self._told.pop(pid, b"")
        for pipe, owner in list(self._pipes.items()):
            if owner == pid:  # it may have written right before it left
                with contextlib.suppress(BlockingIOError):
                    told = told or os.read(pipe, 4096)
                self.unwatch(pipe)
                os.close(pipe)
                del self._pipes[pipe]
        detail = told.decode("utf-8", "replace")
        if self.calls.ended(pid, code, number, detail) or self.suspension.ended(pid, status):
            return
        if self._running.pop(pid, None) is None:
            return
        if (code or number) and not self._failed:
            self._failed = True
            self._code, self._signal, self._detail = code, number, detail
            if self._running:
                self._end_the_others()
        if not self._running and self.state.stage is not keeper.Stage.STOPPING:
            self._stuck_at = clock.now() + self.spec.timing.unkillable_s
            self._kill()
        # asked to leave: a shell dies of TERM at once, what it had started has its grace

    def _end_the_others(self) -> None:
        """A rank has failed: those beside it on this node leave, or are made to."""
        self.containment.send(signal.SIGTERM)
        wait = min(self.spec.desired.grace_s, _PEERS_GRACE_S)
        self._peers_kill = clock.now() + wait

    def _fail(self, code: int, detail: str) -> None:
        if not self._failed:
            self._failed = True
            self._code, self._signal, self._detail = code, 0, detail
        self._stuck_at = clock.now() + self.spec.timing.unkillable_s
        self._kill()

    def give_up_on_job(self, why: str) -> None:
        """The job cannot go on: it is killed, and this is why."""
        self._fail(child.CANNOT_START, why)

    def tell_status(self) -> None:
        """Tell the agent where the run stands."""
        self.tell({"status": plain(self.state.status()), **self.suspension.said()})

    def _nobody_left(self) -> None:
        """No child, so no descendant: the kernel says so, not a count."""
        idle = not self._running and self._executed
        stopping = self.state.stage in (keeper.Stage.STOPPING, keeper.Stage.KILLING)
        waits = self.spec.desired.mode is LaunchMode.BATCH and self.spec.rank != 0
        if not idle or (waits and not stopping and not self._ended):
            return
        self._kill_again = self._stuck_at = self._peers_kill = self._start_limit = None
        self._hear_the_rest()
        self._exit(stuck=False)

    def _exit(self, *, stuck: bool) -> None:
        now = clock.now()
        if self._ended:
            if not stuck and self.state.quarantined:
                self._events.append(keeper.JobExited(now))
            return
        alive = (keeper.Stage.RUNNING, keeper.Stage.STOPPING, keeper.Stage.KILLING)
        if self.state.stage not in alive:
            if not stuck and self.state.quarantined:  # given up on by its own deadline
                self._events.append(keeper.JobExited(now))
            return
        self._ended = True
        if self.state.stage is keeper.Stage.KILLING and not self._failed and not self._code:
            waits = self.spec.desired.mode is LaunchMode.BATCH and self.spec.rank != 0
            if waits:
                self._signal = signal.SIGKILL
        self._events.append(
            keeper.JobExited(
                now,
                code=self._code,
                signal=self._signal,
                out_of_memory=self.containment.out_of_memory(),
                detail=self._detail,
                stuck=stuck,
            )
        )

    # -- the agent -----------------------------------------------------------------------------

    def _listen(self) -> None:
        with contextlib.suppress(FileExistsError):
            os.mkdir(self.folder.sockets, 0o711)
        os.chmod(self.folder.sockets, 0o711)
        path = self.folder.agent_socket + ".new"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        listener = lean_socket.Socket(
            lean_socket.AF_UNIX, lean_socket.SOCK_STREAM | lean_socket.SOCK_NONBLOCK
        )
        listener.bind(path)
        os.chmod(path, 0o600)
        listener.listen(4)
        self._listener = listener
        self.watch(listener.fileno(), lambda _mask: self._agent_came())
        job = JobSocket(
            self.folder.job_socket + ".new",
            self.spec.launch.uid,
            self.spec.desired.key.run_id,
            self._job_said,
            self.steps.unread,
        )
        self.job = job
        self.watch(job.listener.fileno(), lambda _mask: self._peer_came())
        if self.state.needs_lease:
            self._lease_watch = syscalls.watch_folder(self.spec.run_dir)
            self.watch(self._lease_watch, lambda _mask: self._folder_changed())

    def _agent_came(self) -> None:
        with contextlib.suppress(OSError):
            connection = lean_socket.accept(self._listener)
            raw = connection.getsockopt(lean_socket.SOL_SOCKET, lean_socket.SO_PEERCRED, 12)
            _, uid, _ = struct.unpack("3i", raw)
            if uid not in (0, os.geteuid()):
                connection.close()
                return
            self._attach(connection)
            self.feed(keeper.AgentAttached(clock.now()))
            self.steps.agent_came()

    def _attach(self, connection: lean_socket.Socket) -> None:
        for old in self._agents:  # there is one agent; an older connection is a dead one's
            self.unwatch(old.socket.fileno())
            old.close()
        link = FrameSocket(connection)
        self._agents = [link]
        self.watch(connection.fileno(), lambda mask: self._agent_said(link, mask))

    def _agent_said(self, link: FrameSocket, mask: int) -> None:
        fd = link.socket.fileno()
        if mask & select.EPOLLOUT:
            link.flush()
        messages = (
            link.receive() if mask & (select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR) else []
        )
        if not link.open:
            self.unwatch(fd)
            self._agents = [each for each in self._agents if each is not link]
            self._forgotten_without_word()
        else:
            self._want_write(link)
        for message in messages:
            self._obey(message)

    def _forgotten_without_word(self) -> None:
        """An agent that died between dropping the record and saying so has forgotten the run."""
        if self.state.stage is keeper.Stage.ENDED and not self.folder.is_recorded():
            self.feed(keeper.OrderArrived(clock.now(), Forget()))

    def _want_write(self, link: FrameSocket) -> None:
        mask = select.EPOLLIN | (select.EPOLLOUT if link.wants_to_write else 0)
        self._set_mask(link.socket.fileno(), mask)

    def tell(self, message: dict[str, object]) -> bool:
        """Tell the agent, if there is one."""
        for link in self._agents:
            link.send(message)
            if link.open:
                self._want_write(link)
                return True
        return False

    def _obey(self, message: dict[str, object]) -> None:
        name = message.get("order")
        if isinstance(name, str) and name in ORDERS:
            try:
                order: Order = value_of(ORDERS[name], message.get("with", {}))
            except BadInput:
                return
            if isinstance(order, Freeze):
                self.suspension.level = order.level
                held = message.get("gpu_bytes")
                self.suspension.gpu_bytes = held if isinstance(held, int) else 0
            self.feed(keeper.OrderArrived(clock.now(), order))
            return
        self.steps.agent_said(message)
        self.calls.agent_said(message)

    def _folder_changed(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._lease_watch, 65536)
        lease = runfiles.read_lease(self.spec.run_dir)
        if lease is not None:
            covered = self.spec.desired.key.run_id in lease.covers
            self.feed(keeper.LeaseChanged(clock.now(), lease.until, covered, lease.by_leader))

    # -- the job -------------------------------------------------------------------------------

    def _peer_came(self) -> None:
        assert self.job is not None
        peer = self.job.accept()
        if peer is not None:
            self.watch(peer.socket.fileno(), lambda mask: self._peer_ready(peer, mask))

    def _peer_ready(self, peer: Peer, mask: int) -> None:
        assert self.job is not None
        if mask & select.EPOLLOUT:
            self._set_mask(peer.socket.fileno(), select.EPOLLIN)
            self.calls.flush(peer)
        if mask & ~select.EPOLLOUT and not self.job.receive(peer):
            self.unwatch(peer.socket.fileno())
            self.calls.hung_up(peer)
            self.steps.hung_up(peer)
            self.job.close(peer)

    def _hear_the_rest(self) -> None:
        """What processes told right before they ended, on connections not yet taken too."""
        for _ in range(_LAST_WORDS):
            job = self.job
            ours = {job.listener.fileno(), *job.peers} if job is not None else set[int]()
            ready = [(fd, mask) for fd, mask in self._poll.poll(0) if fd in ours]
            words_left = [(fd, mask) for fd, mask in ready if mask & ~select.EPOLLOUT]
            if not words_left:
                return
            for fd, mask in words_left:
                if fd in self._calls:
                    self._calls[fd][0](mask)

    def wait_to_write(self, peer: Peer) -> None:
        """Come back when a peer reads again."""
        self._set_mask(peer.socket.fileno(), select.EPOLLIN | select.EPOLLOUT)

    def _set_mask(self, fd: int, mask: int) -> None:
        call, present = self._calls[fd]
        if present != mask:
            self._poll.modify(fd, mask)
            self._calls[fd] = (call, mask)

    def _job_said(self, peer: Peer, message: words.FromJob) -> None:
        self.steps.heard(peer, message)
        self.calls.heard(peer, message)
        if isinstance(message, words.Hello) and self.state.stage is keeper.Stage.STOPPING:
            reason = self.state.stop or StopReason.PREEMPT
            left = (self.state.kill_at or clock.now()) - clock.now()
            peer.say(words.Stop(reason=reason.value, deadline_s=max(0.0, left)))


def _containment(spec: KeeperSpec) -> Containment:
    below = Namespace() if spec.namespace else Tree()
    if spec.facts.cgroup:
        path = os.path.join(spec.facts.cgroup, "keeper", "cgroup.procs")
        with open(path, "w", encoding="ascii") as file:
            file.write("0")  # this process: out of what is frozen and killed
        return Cgroup(spec.facts.cgroup, below)
    return below


def keep(
    spec: KeeperSpec, agent: lean_socket.Socket, identity: process.Identity, spawning: int
) -> int:
    """Be a keeper; the process's exit code."""
    try:
        return Keeper(spec, agent, identity, spawning).run()
    except Exception as error:  # said to whoever reads the agent's log; the run is `keeper lost`
        print(f"keeper of {spec.desired.key}: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
