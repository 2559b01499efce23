"""From fork to exec: one process of a job becomes its user and opens its own files.

Everything that touches a path that a user named happens here, as that user: a dead mount or a
planted link harms this process only. An error goes to the keeper over a pipe, as text.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import select
import signal
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from dlsched.nodeagent.host import lean_socket, syscalls
from dlsched.nodeagent.ranks.containers import in_container
from dlsched.nodeagent.ranks.launch_spec import KeeperSpec

__all__ = [
    "CANNOT_START",
    "OPEN",
    "CannotStart",
    "ProcessSpec",
    "become_user",
    "enter",
    "expand_pattern",
    "fork",
    "open_output",
    "replace",
    "script_argv",
    "spawn",
    "write_script",
]

CANNOT_START, NOT_FOUND = 126, 127  # exit codes, as of a shell
OPEN = b"open"  # what opens a gate; anything else is why the process cannot start
LONGEST_ERROR = 3000  # bytes
_PATTERN = re.compile(r"%(\d{0,2})([Nnt%])")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSpec:
    """One process of a job before its process."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    working_directory: str
    output: str  # path, expanded; empty: /dev/null
    error: str  # path, expanded; empty: the same as the output
    truncate: bool = False
    streams: tuple[int | None, int | None] = (None, None)  # descriptors for output and error
    input: int | None = None  # descriptor for standard input; None: the file
    input_path: str = ""  # empty: /dev/null
    terminal: bool = False  # the input is the terminal that controls it
    gate: lean_socket.Socket | None = None  # it goes on when it reads `OPEN` here
    cgroup_procs: int | None = None  # descriptor through which it enters the job's cgroup
    tied_to_keeper: bool = False  # no namespace ends it with its keeper
    as_keeper: bool = False  # with the keeper's rights, and not in the job's cgroup


class CannotStart(Exception):
    """The process cannot be started; the text tells the user why."""

    def __init__(self, why: str, code: int = CANNOT_START) -> None:
        super().__init__(why)
        self.code = code


def expand_pattern(pattern: str, *, node: str, node_rank: int, rank: int) -> str:
    """Return the path of an output file, with what only the node knows in its pattern.

    Args:
        pattern: with %N, %n, %t, and %% for a percent sign; numbers may be padded (%2t).
        node: replaces %N.
        node_rank: replaces %n.
        rank: replaces %t.
    """
    words = {"N": node, "n": node_rank, "t": rank, "%": "%"}

    def value(match: re.Match[str]) -> str:
        found = words[match[2]]
        return f"{found:0{min(int(match[1] or 0), 10)}d}" if isinstance(found, int) else str(found)

    return _PATTERN.sub(value, pattern)


def script_argv(script: bytes, path: str, arguments: Sequence[str]) -> tuple[str, ...]:
    """Return the command that runs a script file, even where its folder forbids execution."""
    first = script.split(b"\n", 1)[0]
    if first.startswith(b"#!"):
        words = os.fsdecode(first[2:].strip()).split(None, 1)
        if words:
            return (*words, path, *arguments)
    return ("/bin/sh", path, *arguments)


def write_script(spec: KeeperSpec, path: str) -> None:
    """Write the user's script to a new file that the user may read."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o500)
    try:
        with open(fd, "wb", closefd=False) as file:
            file.write(spec.launch.script)
        if os.geteuid() == 0:
            os.fchown(fd, spec.launch.uid, spec.launch.gid)
    finally:
        os.close(fd)


def spawn(spec: KeeperSpec, process: ProcessSpec) -> tuple[int, int]:
    """Fork a process and have it become `process`; return as `fork` does."""
    keeper = os.getpid()
    if spec.launch.container and not process.as_keeper:
        argv, environment = in_container(
            spec, process.argv, process.environment, process.working_directory
        )
        process = replace(process, argv=argv, environment=environment)
    return fork(lambda _started: _become(spec, process, keeper))


def fork(become: Callable[[int], None]) -> tuple[int, int]:
    """Fork a process that calls `become` and ends.

    `become` gets the descriptor of a pipe; it writes there why it cannot start, and closes it, or
    executes a program, when it has started.

    Returns:
        The id of the process, and the other end of its pipe.
    """
    reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        pid = os.fork()
    except OSError:
        os.close(reading)
        os.close(writing)
        raise
    if pid:
        os.close(writing)
        return pid, reading
    code = CANNOT_START
    try:
        become(writing)
        code = 0
    except CannotStart as error:
        code = error.code
        _send_error(writing, str(error))
    except BaseException as error:  # the child must never go on as a second keeper
        _send_error(writing, f"cannot start: {error}")
    finally:
        os._exit(code)


def _send_error(fd: int, text: str) -> None:
    with contextlib.suppress(OSError):
        os.write(fd, text.encode("utf-8", "replace")[:LONGEST_ERROR])


def _become(spec: KeeperSpec, process: ProcessSpec, keeper: int) -> None:
    os.setsid()
    _default_signals()
    if process.cgroup_procs is not None and not process.as_keeper:
        os.write(process.cgroup_procs, b"0")
    with contextlib.suppress(OSError):
        _write("/proc/self/oom_score_adj", b"0")
    if not process.as_keeper:
        become_user(spec)
    if process.tied_to_keeper:
        syscalls.die_with_parent(signal.SIGKILL)
        if os.getppid() != keeper:
            os._exit(CANNOT_START)
    if spec.no_new_privileges and not process.as_keeper:
        syscalls.forbid_new_privileges()
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    os.umask(spec.launch.umask & 0o777)
    enter(process.working_directory)
    if spec.launch.container and not process.as_keeper:
        _check_image(spec)
    if process.gate is not None:
        _wait_at(process.gate)
    _open_streams(process)
    _execute(process)


def _default_signals() -> None:
    signal.set_wakeup_fd(-1)
    for number in range(1, signal.NSIG):
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            with contextlib.suppress(OSError, ValueError):
                signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _write(path: str, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, data)
    finally:
        os.close(fd)


def become_user(spec: KeeperSpec) -> None:
    """Give up all rights but those of the job's user.

    Raises:
        CannotStart: this process may not.
    """
    launch = spec.launch
    if os.geteuid() == 0:
        os.setgroups(list(launch.groups) or [launch.gid])
        os.setgid(launch.gid)
        os.setuid(launch.uid)
    if (os.getuid(), os.geteuid()) != (launch.uid, launch.uid):
        raise CannotStart(f"cannot become user {launch.user}")


def enter(path: str) -> None:
    """Enter the working directory.

    Raises:
        CannotStart: the user may not, or it is not there.
    """
    try:
        os.chdir(path or "/")
    except OSError as error:
        raise CannotStart(f"cannot enter working directory {path}: {error.strerror}") from None


def _check_image(spec: KeeperSpec) -> None:
    """Refuse an image that the user cannot read, where it is a file and no address.

    Raises:
        CannotStart: which one, and why; or the node has no program for containers.
    """
    image = spec.launch.container
    cannot = f"cannot open container {image}"
    if not spec.container_tool:
        raise CannotStart(f"{cannot}: {spec.node} has neither Apptainer nor enroot")
    if "://" in image or "#" in image:
        return
    try:
        if not stat.S_ISDIR(os.stat(image).st_mode):
            os.close(os.open(image, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK))
    except OSError as error:
        raise CannotStart(f"{cannot}: {error.strerror}") from None


def _wait_at(gate: lean_socket.Socket) -> None:
    """Wait until the output writer has its files, or a client is there.

    Every rank of the node reads the same message.
    """
    waiting = select.poll()  # wakes every rank; a plain `recv` wakes one
    waiting.register(gate, select.POLLIN)
    waiting.poll()
    said = gate.recv(LONGEST_ERROR, lean_socket.MSG_PEEK)
    if said != OPEN:
        raise CannotStart(said.decode("utf-8", "replace") or "the output writer has ended")


def _open_streams(process: ProcessSpec) -> None:
    os.dup2(_open_input(process.input_path) if process.input is None else process.input, 0)
    if process.terminal:
        syscalls.take_terminal(0)
    output, error = process.streams
    if output is None:
        output = open_output(process.output or "/dev/null", process.truncate)
    if error is None:
        error = output
        if process.error and process.error != process.output:
            error = open_output(process.error, process.truncate)
    os.dup2(output, 1)
    os.dup2(error, 2)


def _open_input(path: str) -> int:
    try:  # a pipe without a writer is opened at once, too
        fd = os.open(path or os.devnull, os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise CannotStart(f"cannot open input {path}: {error.strerror}") from None
    os.set_blocking(fd, True)
    return fd


def open_output(path: str, truncate: bool) -> int:
    """Open an output file as the present user; return its descriptor.

    Raises:
        CannotStart: it cannot be opened, or is no place for output.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NOCTTY | os.O_NONBLOCK
    if truncate:
        flags |= os.O_TRUNC
    try:
        if path in ("/dev/null", "/dev/tty"):
            flags &= ~(os.O_CREAT | os.O_TRUNC)
        else:
            _no_device(path)
        fd = os.open(path, flags | os.O_CLOEXEC, 0o666)
    except OSError as error:
        why = "it is a symbolic link" if error.errno == 40 else error.strerror
        raise CannotStart(f"cannot open output {path}: {why}") from None
    mode = os.fstat(fd).st_mode
    if not stat.S_ISREG(mode) and not (
        stat.S_ISCHR(mode) and (path == "/dev/null" or os.isatty(fd))
    ):
        raise CannotStart(f"cannot open output {path}: not a regular file")
    os.set_blocking(fd, True)
    return fd


def _no_device(path: str) -> None:
    """Refuse devices before they are opened: for some, opening has an effect."""
    with contextlib.suppress(FileNotFoundError):
        mode = os.lstat(path).st_mode
        if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or stat.S_ISBLK(mode):
            raise CannotStart(f"cannot open output {path}: not a regular file")


def _execute(process: ProcessSpec) -> None:
    environment = dict(process.environment)
    environment["PWD"] = os.getcwd()
    try:
        os.execvpe(process.argv[0], list(process.argv), environment)
    except FileNotFoundError:
        raise CannotStart(f"{process.argv[0]}: command not found", NOT_FOUND) from None
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise CannotStart(f"cannot execute {process.argv[0]}: {why}") from None
