"""All processes of one run on this node that clients attach to, and their connections.

A ticket starts one process, and finds it later: asked twice, nothing is started twice. Only the
agent may connect; it has checked the user, and the processes start as the job's user, inside the
job's cgroup and namespace.
"""

from __future__ import annotations

import contextlib
import signal
from typing import TYPE_CHECKING, Any

from dlsched.nodeagent.host import lean_socket, processes
from dlsched.nodeagent.ranks import child_process
from dlsched.nodeagent.ranks.child_process import ProcessSpec
from dlsched.nodeagent.ranks.job_environment import build_environment, the_one_process
from dlsched.nodeagent.ranks.master_port import port_of
from dlsched.nodeagent.shells.connection import Connection
from dlsched.nodeagent.shells.shell import Shell
from dlsched.protocol.keeper import Stage
from dlsched.protocol.messages import Phase, StopReason
from dlsched.system import clock

if TYPE_CHECKING:
    from dlsched.nodeagent.host.event_loop import EventLoop
    from dlsched.nodeagent.ranks.keeper_interface import KeeperInterface

MOST_SHELLS = 16  # live ones of one run on this node
MOST_CONNECTIONS = 32
NO_CLIENT_S = 600.0
KEPT_ENDS = 4  # ended ones whose last output a client may still fetch
STOPPED = {  # what the clients are told
    StopReason.CANCEL: "the job is cancelled",
    StopReason.PREEMPT: "the job is preempted",
    StopReason.MIGRATE: "the job is moved to other GPUs",
    StopReason.RESIZE: "the job is resized",
    StopReason.PEER: "the job has ended on another node",
    StopReason.TIME_LIMIT: "the job has reached its time limit",
    StopReason.REQUEUE: "the job is queued again",
    StopReason.TARGET: "the job has reached its target",
}
OWN = "interactivejob"  # the ticket of an interactive job's own process
_LONGEST_TICKET = 64


def _hang_up(shell: Shell) -> None:
    """As a terminal that is closed: a shell at its prompt ignores TERM."""
    found = processes.stat(shell.pid) if shell.end is None else None
    if found is not None:
        processes.send([found], signal.SIGHUP)


class Shells:
    """What clients of one run are attached to."""

    def __init__(self, keeper: KeeperInterface, loop: EventLoop) -> None:
        """Start without any shell."""
        self._keeper, self._loop = keeper, loop
        self._shells: dict[str, Shell] = {}  # by ticket, in the order of their starts
        self._connections: set[Connection] = set()
        self._early: list[tuple[Connection, dict[str, Any]]] = []
        self._has_begun = False
        self._gate: lean_socket.Socket | None = None  # holds an interactive job back
        self._give_up_at: float | None = None  # when an interactive job without any client ends

    # -- connections ---------------------------------------------------------------------------

    def accept(self, listener: lean_socket.Socket) -> None:
        """Take a connection of the agent."""
        with contextlib.suppress(OSError):
            line = lean_socket.accept_own(listener)
            if line is None:
                return
            made = Connection(
                self._loop, line, on_open=self._open, on_close=self._connections.discard
            )
            self._connections.add(made)
            if len(self._connections) > MOST_CONNECTIONS:
                made.refuse(f"{MOST_CONNECTIONS} clients are attached here, which is the most")

    def stops(self) -> None:
        """Tell every client that the job is being stopped, and hang an interactive one up."""
        state = self._keeper.state
        text = self._stopped()
        if state.stop is not StopReason.CANCEL:
            text += f"; its processes have {state.desired.grace_s:.0f} s to end"
        for each in list(self._connections):
            each.notice(text)
        own = self._shells.get(OWN)
        if own is not None and state.stop is StopReason.CANCEL:
            _hang_up(own)

    def hang_up(self) -> None:
        """End the shells that are beside the job, whose own processes have ended."""
        for ticket, each in self._shells.items():
            if ticket != OWN:
                _hang_up(each)

    def _stopped(self) -> str:
        """Why the job is being stopped; empty: it is not."""
        stop = self._keeper.state.stop
        return STOPPED.get(stop, "the job is being stopped") if stop is not None else ""

    # -- what a client wants -------------------------------------------------------------------

    def begun(self) -> None:
        """Let the clients in that came before the job was executed."""
        self._has_begun = True
        early, self._early = self._early, []
        for client, wanted in early:
            if client.is_open:
                self._open(client, wanted)

    def _open(self, client: Connection, wanted: dict[str, Any]) -> None:
        if not self._has_begun:
            self._early.append((client, wanted))
            return
        try:
            self._attach(client, wanted)
        except OSError as error:  # no process, terminal or descriptor is left
            client.refuse(f"cannot start: {error.strerror}")

    def _attach(self, client: Connection, wanted: dict[str, Any]) -> None:
        ticket, argv = str(wanted["ticket"]), tuple(str(word) for word in wanted["argv"])
        if not 0 < len(ticket) <= _LONGEST_TICKET:
            client.refuse("the ticket is malformed")
            return
        shell = self._shells.get(ticket)
        if shell is None and (wanted["again"] or ticket == OWN):
            client.refuse("it has ended, and how is not known any more")
            return
        if shell is None and not argv and not wanted["fresh"]:
            shell = self._waiting_shell(on_terminal=bool(wanted["terminal"]))
        is_new = shell is None
        if shell is None:
            if self._keeper.state.stage is not Stage.RUNNING:
                client.refuse("the job does not run")
                return
            if sum(each.end is None for each in self._shells.values()) >= MOST_SHELLS:
                client.refuse(f"{MOST_SHELLS} shells are open here, which is the most")
                return
            shell = self._start(ticket, argv, wanted)
        elif shell.client is not None:
            shell.client.finish({"code": 0, "signal": 0, "why": "", "elsewhere": True})
        if not is_new:
            shell.resize(int(wanted["rows"]), int(wanted["columns"]))
        client.attach(shell, int(wanted["taken"]), started=is_new)
        if shell.is_own and self._gate is not None:
            self._gate.send(child_process.OPEN)
            self._gate.close()
            self._gate = self._give_up_at = None
        if self._keeper.state.status().phase is Phase.SUSPENDED:
            client.notice("the job is suspended")

    def _waiting_shell(self, *, on_terminal: bool) -> Shell | None:
        """The process of an interactive job, else the newest shell without a client; or None.

        A client on a terminal means no command on pipes, which another client has.
        """
        own = self._shells.get(OWN)
        if own is not None and own.end is None and (own.has_terminal or not on_terminal):
            return own
        free = [
            each
            for each in self._shells.values()
            if each.client is None and each.end is None and not each.is_command
        ]
        return free[-1] if free else None

    def _start(self, ticket: str, argv: tuple[str, ...], wanted: dict[str, Any]) -> Shell:
        spec = self._keeper.spec
        port = port_of(spec.desired.key.run_id)
        environment = build_environment(
            spec, the_one_process(spec), self._keeper.job_socket_path, port
        )
        if wanted["terminal"] and wanted["term"]:
            environment["TERM"] = str(wanted["term"])
        process = ProcessSpec(
            argv=argv or (spec.launch.shell,),
            environment=environment,
            working_directory=spec.launch.working_directory,
            output="",
            error="",
        )
        shell = Shell(
            self._loop,
            ticket,
            terminal=bool(wanted["terminal"]),
            is_own=False,
            is_command=bool(argv),
        )
        self._begin(shell, process, int(wanted["rows"]), int(wanted["columns"]))
        return shell

    def _begin(self, shell: Shell, process: ProcessSpec, rows: int, columns: int) -> int:
        """Start a process with the shell's ends as its streams; return its id."""
        try:
            shell.resize(rows, columns)
            shell.give_to(self._keeper.spec.launch.uid)
            their_input, their_output = shell.streams
            has_error_file = process.error not in ("", process.output) and not shell.has_terminal
            connected = child_process.replace(
                process,
                input=their_input,
                streams=(their_output, None if has_error_file else their_output),
                terminal=shell.has_terminal,
            )
            pid = self._keeper.processes.start_child(connected)
        except OSError:
            shell.abandon()
            raise
        shell.started(pid)
        self._shells[shell.ticket] = shell
        ended = [each for each in self._shells.values() if each.end is not None]
        for each in ended[:-KEPT_ENDS]:
            del self._shells[each.ticket]
        return pid

    # -- the interactive job itself ------------------------------------------------------------

    def start_own(self, process: ProcessSpec) -> int:
        """Start the process of an interactive job on a terminal, or on pipes; return its id.

        It executes its program when the first client is there: a short one would be over before.

        Raises:
            OSError: no process, terminal or descriptor is left.
        """
        rows, columns = map(int, self._keeper.spec.launch.terminal.split("x"))
        shell = Shell(self._loop, OWN, terminal=rows > 0, is_own=True, is_command=False)
        self._gate, theirs = lean_socket.pair(lean_socket.SOCK_SEQPACKET)
        self._give_up_at = clock.boottime() + NO_CLIENT_S
        try:
            gated = child_process.replace(process, gate=theirs)
            return self._begin(shell, gated, rows, columns)
        finally:
            theirs.close()

    @property
    def deadline(self) -> float | None:
        """When `wake` has something to do, in seconds since the boot; None: not at all."""
        times = [self._give_up_at, *(each.hold_until for each in self._shells.values())]
        return min((time for time in times if time is not None), default=None)

    def wake(self, now: float) -> None:
        """End an interactive job to which no client ever came; the daemon does so earlier.

        Lost clients are waited for no longer when their time is over.
        """
        for shell in self._shells.values():
            shell.wake(now)
        if self._give_up_at is not None and now >= self._give_up_at:
            self._give_up_at = None
            self._keeper.processes.fail_job("no client came")

    # -- ends ----------------------------------------------------------------------------------

    def ended(self, pid: int, code: int, number: int, why: str) -> bool:
        """Whether the process that has ended is one beside the job's own.

        Args:
            pid: of the process.
            code: its exit code.
            number: of the signal that has ended it, or 0.
            why: why it could not be started, or empty.
        """
        for shell in self._shells.values():
            if shell.pid == pid and shell.end is None:
                shell.has_ended(code, number, why or self._stopped())
                return not shell.is_own
        return False
