"""From fork to exec: one process of a job becomes its user and opens its own files.

Everything that touches a path that a user named happens here, as that user: a dead mount or a
planted link hurts this process only. What goes wrong is told to the keeper over a pipe, in words.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dlsched.nodeagent import syscalls
from dlsched.nodeagent.spec import KeeperSpec

__all__ = ["CANNOT_START", "CannotStart", "Start", "expanded", "replace", "script_argv", "spawn"]

CANNOT_START, NOT_FOUND = 126, 127  # as a shell says it


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What one process is to be."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    working_directory: str
    output: str  # path, expanded; empty: /dev/null
    error: str  # empty: with the output
    truncate: bool = False
    streams: tuple[int, int] | None = None  # open already: standard output and error
    cgroup_procs: int | None = None  # of the job, to be entered
    tied_to_keeper: bool = False  # no namespace ends it with its keeper


class CannotStart(Exception):
    """In words for the user."""

    def __init__(self, why: str, code: int = CANNOT_START) -> None:
        super().__init__(why)
        self.code = code


def expanded(pattern: str, *, node: str, node_rank: int, rank: int) -> str:
    """An output pattern with what only the node knows: %N, %n and %t; %% is a percent sign."""
    words = {"N": node, "n": str(node_rank), "t": str(rank), "%": "%"}
    found: list[str] = []
    place = 0
    while place < len(pattern):
        if pattern[place] == "%" and place + 1 < len(pattern) and pattern[place + 1] in words:
            found.append(words[pattern[place + 1]])
            place += 2
        else:
            found.append(pattern[place])
            place += 1
    return "".join(found)


def script_argv(script: bytes, path: str, arguments: Sequence[str]) -> tuple[str, ...]:
    """How to run a script without the kernel's help, so that its folder need not allow it."""
    first = script.split(b"\n", 1)[0]
    if first.startswith(b"#!"):
        words = os.fsdecode(first[2:].strip()).split(None, 1)
        if words:
            return (*words, path, *arguments)
    return ("/bin/sh", path, *arguments)


def spawn(spec: KeeperSpec, start: Start) -> tuple[int, int]:
    """Fork a process that becomes `start`; its id, and a pipe on which it may say why it cannot."""
    reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    keeper = os.getpid()
    pid = os.fork()
    if pid:
        os.close(writing)
        return pid, reading
    code = CANNOT_START
    try:
        _become(spec, start, keeper)
    except CannotStart as error:
        code = error.code
        _tell(writing, str(error))
    except BaseException as error:  # the child must never go on as a second keeper
        _tell(writing, f"cannot start: {error}")
    finally:
        os._exit(code)


def _tell(fd: int, text: str) -> None:
    with contextlib.suppress(OSError):
        os.write(fd, text.encode("utf-8", "replace")[:3000])


def _become(spec: KeeperSpec, start: Start, keeper: int) -> None:
    os.setsid()
    _default_signals()
    if start.cgroup_procs is not None:
        os.write(start.cgroup_procs, b"0")
    with contextlib.suppress(OSError):
        _write("/proc/self/oom_score_adj", b"0")
    _become_user(spec)
    if start.tied_to_keeper:
        syscalls.die_with_parent(signal.SIGKILL)
        if os.getppid() != keeper:
            os._exit(CANNOT_START)
    if spec.no_new_privileges:
        syscalls.forbid_new_privileges()
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    os.umask(0o022)
    _enter(start.working_directory)
    _open_streams(start)
    _execute(start)


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


def _become_user(spec: KeeperSpec) -> None:
    launch = spec.launch
    if os.geteuid() == 0:
        os.setgroups(list(launch.groups) or [launch.gid])
        os.setgid(launch.gid)
        os.setuid(launch.uid)
    if (os.getuid(), os.geteuid()) != (launch.uid, launch.uid):
        raise CannotStart(f"cannot become user {launch.user}")


def _enter(path: str) -> None:
    try:
        os.chdir(path or "/")
    except OSError as error:
        raise CannotStart(f"cannot enter working directory {path}: {error.strerror}") from None


def _open_streams(start: Start) -> None:
    null = os.open("/dev/null", os.O_RDONLY)
    os.dup2(null, 0)
    if start.streams is not None:
        for target, stream in enumerate(start.streams, 1):
            os.dup2(stream, target)
    else:
        output = _open_output(start.output or "/dev/null", start.truncate)
        error = output
        if start.error and start.error != start.output:
            error = _open_output(start.error, start.truncate)
        os.dup2(output, 1)
        os.dup2(error, 2)


def _open_output(path: str, truncate: bool) -> int:
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
    """Opening some devices does something by itself; look before."""
    with contextlib.suppress(FileNotFoundError):
        mode = os.lstat(path).st_mode
        if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or stat.S_ISBLK(mode):
            raise CannotStart(f"cannot open output {path}: not a regular file")


def _execute(start: Start) -> None:
    environment = dict(start.environment)
    environment["PWD"] = os.getcwd()
    try:
        os.execvpe(start.argv[0], list(start.argv), environment)
    except FileNotFoundError:
        raise CannotStart(f"{start.argv[0]}: command not found", NOT_FOUND) from None
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise CannotStart(f"cannot execute {start.argv[0]}: {why}") from None
