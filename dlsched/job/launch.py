"""`dlsched run`: start ranks inside an allocation, over all its nodes, and wait for them.

The keeper of the first node starts them; this program shows what they write, passes signals on and
exits with the highest exit code of those that end by themselves. It uses the standard library only;
`srun` calls it. `dlsched.job.messages` says what it expects of the keeper.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import NoReturn

from dlsched.job import caller_input
from dlsched.job.errors import JobError
from dlsched.job.messages import (
    EVERY_RANK,
    MAX_MESSAGE,
    BadMessage,
    Done,
    Exited,
    FromKeeper,
    InputTaken,
    Output,
    Refused,
    RunRanks,
    SignalRanks,
    Started,
    decode_from_keeper,
    encode,
)

PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
NOT_INHERITED = {  # the runtime sets them for each rank
    *("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK"),
    *("CUDA_VISIBLE_DEVICES", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_NTASKS"),
}
Write = Callable[[int, int, bytes], None]  # what a rank has written to stream 1 or 2


def launch(
    wanted: RunRanks,
    control_socket: str,
    *,
    label: bool = False,
    output: Callable[[Started], Write] | None = None,
    limit_s: float = 0.0,
    after_first_s: float = 0.0,
    start_within_s: float = 0.0,
) -> int:
    """Start ranks and wait for them; return the highest code of those that end by themselves.

    Args:
        wanted: the ranks; their output comes here if it has `label`, and the standard input goes
            to those of its `input_to`.
        control_socket: the keeper's; empty: this process is not inside an allocation.
        label: begin each line with its rank.
        output: is told of the start, and returns what takes the output; None: it is shown.
        limit_s: end the ranks after so long; 0: never.
        after_first_s: kill the ranks that are left so long after the first one has ended; 0: never.
        start_within_s: give up when they have not started after so long; 0: never.

    Raises:
        JobError: when there is no keeper, or it refuses.
    """
    if not control_socket:
        raise JobError(
            "run: not inside an allocation (no DLSCHED_CTL_SOCK); "
            "use it in a job's script, which `dlsched submit` starts"
        )
    link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
    with link:
        try:
            link.connect(control_socket)
        except OSError as error:
            raise JobError(
                f"run: no keeper answers at {control_socket}: {error.strerror}"
            ) from None
        given = None if wanted.input_to is None else caller_input.find()
        _send_request(link, wanted, [] if given is None else [given])
        watch = _Watch(link, given, label=label, output=output)
        watch.after_first_s = after_first_s
        if start_within_s:
            watch.start_by = time.monotonic() + start_within_s
        return watch.until_done(limit_s)


def _send_request(link: socket.socket, wanted: RunRanks, given: Sequence[int]) -> None:
    packet = encode(wanted)
    if len(packet) > MAX_MESSAGE:
        raise JobError(
            f"run: command and environment take {len(packet)} bytes, at most {MAX_MESSAGE} fit"
        )
    link.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * MAX_MESSAGE)
    sys.stdout.flush()
    streams = [_descriptor(sys.stdout, 1), _descriptor(sys.stderr, 2), *given]
    try:
        socket.send_fds(link, [packet], streams, socket.MSG_NOSIGNAL)
    except OSError as error:
        raise JobError(f"run: the keeper does not listen: {error.strerror}") from None


def _descriptor(stream: object, default: int) -> int:
    try:
        return int(stream.fileno())  # type: ignore[attr-defined]  # not all streams have one
    except (AttributeError, OSError, ValueError):
        return default


class _Watch:
    """Shows the output and the ends of ranks to their caller, and gives them its input."""

    def __init__(
        self,
        link: socket.socket,
        given: int | None,
        *,
        label: bool,
        output: Callable[[Started], Write] | None,
    ) -> None:
        self._link = link
        self._input = None if given is None else caller_input.CallerInput(given)
        self._is_input_sent = False  # the ranks do not read it themselves
        self._label = label
        self._output = output
        self._to: Write = self._write
        self._codes: list[int] = []
        self._unfinished: dict[tuple[int, int], bytes] = {}  # unfinished lines, by rank and stream
        self._done = False
        self.after_first_s = 0.0
        self._kill_at: float | None = None
        self.start_by: float | None = None  # it gives up then

    def until_done(self, limit_s: float) -> int:
        end = time.monotonic() + limit_s if limit_s else None
        waking, woken = socket.socketpair()
        with waking, woken, selectors.PollSelector() as ready:  # epoll takes no file
            waking.setblocking(False)
            before = {number: signal.signal(number, self._pass_on) for number in PASSED_ON}
            woke_before = signal.set_wakeup_fd(waking.fileno(), warn_on_full_buffer=False)
            ready.register(self._link, selectors.EVENT_READ)
            ready.register(woken, selectors.EVENT_READ)
            try:
                while not self._done:
                    self._watch_input(ready)
                    self._kill_when_due()
                    due = [at for at in (end, self._kill_at, self.start_by) if at is not None]
                    left = min(due) - time.monotonic() if due else None
                    if self.start_by is not None and time.monotonic() >= self.start_by:
                        raise JobError("run: the GPUs that it asks for are not free in time")
                    if end is not None and time.monotonic() >= end:
                        raise JobError(f"run: the time limit of {limit_s:g} s is over")
                    for key, _ in ready.select(left):
                        if key.fileobj is woken:
                            woken.recv(64)
                        elif key.fileobj is self._link:
                            self._take(self._link.recv(MAX_MESSAGE))
                        else:
                            self._send_input()
            finally:
                signal.set_wakeup_fd(woke_before)
                for number, handler in before.items():
                    signal.signal(number, handler)
        return max(self._codes, default=0)

    def _kill_when_due(self) -> None:
        """Kill the ranks that are left when the first one has ended long enough ago."""
        if self._kill_at is not None and time.monotonic() >= self._kill_at:
            self._kill_at, self.after_first_s = None, 0.0
            print("dlsched: run: the other ranks are killed: one has ended before", file=sys.stderr)
            with contextlib.suppress(OSError):
                self._link.send(encode(SignalRanks(number=signal.SIGKILL)), socket.MSG_NOSIGNAL)

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        with contextlib.suppress(OSError):
            self._link.send(encode(SignalRanks(number=number)), socket.MSG_NOSIGNAL)

    def _watch_input(self, ready: selectors.BaseSelector) -> None:
        """Wait for input only while more of it may be sent."""
        given = self._input
        if given is None or not self._is_input_sent:
            return
        if given.may_go_on != (given.fd in ready.get_map()):
            if given.may_go_on:
                ready.register(given.fd, selectors.EVENT_READ)
            else:
                ready.unregister(given.fd)

    def _send_input(self) -> None:
        assert self._input is not None
        piece = self._input.read()
        if piece is not None:
            with contextlib.suppress(OSError):  # a keeper that is gone is noticed elsewhere
                self._link.send(encode(piece), socket.MSG_NOSIGNAL)

    def _take(self, packet: bytes) -> None:
        if not packet:
            raise JobError("run: the keeper has closed the connection; the ranks are being ended")
        try:
            message = decode_from_keeper(packet)
        except BadMessage as error:
            raise JobError(f"run: unreadable message of the keeper: {error}") from None
        self._handle(message)

    def _handle(self, message: FromKeeper | None) -> None:
        match message:
            case Refused(why=why):
                raise JobError(f"run: {why}")
            case Started():
                self.start_by = None
                self._is_input_sent = message.sends_input
                if self._output is not None:
                    self._to = self._output(message)
            case InputTaken(bytes=count):
                if self._input is not None:
                    self._input.taken(count)
            case Output(rank=rank, stream=stream, data=data):
                self._show(rank, stream, data)
            case Exited():
                self._ended(message)
            case Done():
                for (rank, stream), rest in self._unfinished.items():
                    self._to(rank, stream, f"{rank}: ".encode() + rest + b"\n")
                self._done = True
            case _:
                pass

    def _ended(self, end: Exited) -> None:
        """Note how a rank has ended; one that was ended with the others has no code of its own."""
        if self.after_first_s and self._kill_at is None:
            self._kill_at = time.monotonic() + self.after_first_s
        code, how = end.code, f"exit code {end.code}"
        if end.signal:
            code, how = 128 + end.signal, f"ended by signal {end.signal}"
        if end.with_others:
            how = "ended with the others"
        else:
            self._codes.append(code)
        if code:
            where = f" on {end.node}" if end.node else ""
            print(f"dlsched: run: rank {end.rank}{where}: {how}", file=sys.stderr)

    def _show(self, rank: int, stream: int, data: bytes) -> None:
        if not self._label:
            self._to(rank, stream, data)
            return
        *lines, rest = (self._unfinished.pop((rank, stream), b"") + data).split(b"\n")
        label = f"{rank}: ".encode()
        self._to(rank, stream, b"".join(label + line + b"\n" for line in lines))
        if rest:
            self._unfinished[rank, stream] = rest

    @staticmethod
    def _write(rank: int, stream: int, data: bytes) -> None:
        target = sys.stderr if stream == 2 else sys.stdout
        target.buffer.write(data)
        target.buffer.flush()


# -- the command -----------------------------------------------------------------------------------


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _WrongUse(message)


class _WrongUse(JobError):
    """The command line is wrong."""


def parse(words: Sequence[str]) -> RunRanks:
    """Read the command line; the environment and the folder are those of this process.

    Raises:
        JobError: when the command line is wrong.
    """
    parser = _Parser(
        prog="dlsched run",
        usage="dlsched run [OPTIONS] COMMAND [ARGUMENT]...",
        description="Start ranks inside an allocation, over all its nodes, and wait for them. "
        "The exit code is the highest of those that end by themselves.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "-n",
        "--ntasks",
        type=_count,
        default=0,
        help="Ranks in all (default: as submitted, else one for each GPU).",
    )
    parser.add_argument(
        "--ntasks-per-node", type=_count, default=0, metavar="N", help="Ranks on each node."
    )
    parser.add_argument(
        "--gpus-per-task", type=_count, default=0, metavar="N", help="GPUs that each rank sees."
    )
    parser.add_argument("-l", "--label", action="store_true", help="Begin each line with its rank.")
    parser.add_argument(
        "--kill-on-bad-exit",
        default="1",
        choices=("0", "1"),
        help="End all ranks when one fails (default: 1).",
    )
    parser.add_argument(
        "-K", dest="kill_on_bad_exit", action="store_const", const="1", help=argparse.SUPPRESS
    )
    parser.add_argument(
        "-D", "--chdir", default="", metavar="FOLDER", help="Folder in which ranks start."
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    given = parser.parse_args(list(words))
    argv = given.command[1:] if given.command[:1] == ["--"] else given.command
    if not argv:
        raise _WrongUse("no command to run")
    said = given.ntasks or given.ntasks_per_node
    return RunRanks(
        argv=tuple(argv),
        ntasks=given.ntasks if said else _asked("DLSCHED_NTASKS"),
        per_node=given.ntasks_per_node if said else _asked("DLSCHED_NTASKS_PER_NODE"),
        overcommit=not said and "DLSCHED_NTASKS" in os.environ,
        gpus_per_task=given.gpus_per_task,
        environment=inherited(os.environ),
        working_directory=os.path.abspath(given.chdir or os.getcwd()),
        label=given.label,
        kill_on_bad_exit=given.kill_on_bad_exit == "1",
        input_to=EVERY_RANK,
    )


def _asked(variable: str) -> int:
    """What the job was submitted with; 0: not said."""
    text = os.environ.get(variable, "")
    return int(text) if text.isascii() and text.isdigit() else 0


def inherited(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that ranks inherit: text, and not set for each rank by the runtime."""
    return {
        name: value
        for name, value in environment.items()
        if name not in NOT_INHERITED and _is_text(name + value)
    }


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:  # bytes that are not UTF-8
        return False
    return True


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 < int(text) <= 1_000_000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def main(words: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code: 1 after an error, 2 when the command line is wrong."""
    try:
        wanted = parse(sys.argv[1:] if words is None else words)
        return launch(wanted, os.environ.get("DLSCHED_CTL_SOCK", ""), label=wanted.label)
    except _WrongUse as error:
        print(f"dlsched: run: {error}", file=sys.stderr)
        return 2
    except JobError as error:
        print(f"dlsched: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    raise SystemExit(main())
