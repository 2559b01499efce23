"""From fork to exec: one process of a job becomes its user and opens its own files.

Everything that touches a path that a user named happens here, as that user: a dead mount or a
planted link harms this process only. An error goes to the keeper over a pipe, as text.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import resource
import select
import signal
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from dlsched.nodeagent.host import lean_socket, syscalls, user_rights
from dlsched.nodeagent.ranks.containers import in_container
from dlsched.nodeagent.ranks.launch_spec import KeeperSpec

__all__ = [
    "CANNOT_START",
    "NODE_FAULT",
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
NODE_FAULT = 125  # the exit code of a process that the node could not start, which says why
# what a node has run out of, whatever was to be done with a user's path; else the job's. No memory
# and no process is the job's too: it has limits of its own
_OF_THE_NODE = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS})
OPEN = b"open"  # what opens a gate; anything else is why the process cannot start
LONGEST_ERROR = 3000  # bytes
_PATTERN = re.compile(r"%(\d{0,2})([Nnt%])")
FOLDER_WITHIN_S, _AGAIN_S = 1.0, 0.02  # how long an output's folder is waited for


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
    traces: bool = False  # may read all processes of the run, and is not in the job's cgroup


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
    if spec.launch.container and not process.traces:
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
    except OSError as error:  # outside of everything that a user named
        code = CANNOT_START if error.errno == errno.ENOMEM else NODE_FAULT
        _send_error(writing, f"cannot start: {error.strerror}")
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
    if process.cgroup_procs is not None and not process.traces:
        os.write(process.cgroup_procs, b"0")
    with contextlib.suppress(OSError):
        _write("/proc/self/oom_score_adj", b"0")
    become_user(spec, keeps=(syscalls.CAP_SYS_PTRACE,) if process.traces else ())
    if process.tied_to_keeper:
        syscalls.die_with_parent(signal.SIGKILL)
        if os.getppid() != keeper:
            os._exit(CANNOT_START)
    if spec.no_new_privileges and not process.traces:
        syscalls.forbid_new_privileges()
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    os.umask(spec.launch.umask & 0o777)
    enter(process.working_directory)
    if spec.launch.container and not process.traces:
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


def become_user(spec: KeeperSpec, keeps: Sequence[int] = ()) -> None:
    """Give up all rights but those of the job's user, and the capabilities that it `keeps`.

    Raises:
        CannotStart: this process may not.
    """
    launch = spec.launch
    try:
        user_rights.become(launch.uid, launch.gid, launch.groups, keeps=keeps)
    except OSError:
        raise CannotStart(f"cannot become user {launch.user}", NODE_FAULT) from None


def enter(path: str) -> None:
    """Enter the working directory.

    Raises:
        CannotStart: the user may not, or it is not there.
    """
    try:
        user_rights.enter(path or "/")
    except OSError as error:
        raise _refused(f"cannot enter working directory {path}", error) from None


def _refused(what: str, error: OSError) -> CannotStart:
    """Why a process cannot use what its user named: the node's fault where it has run out."""
    code = NODE_FAULT if error.errno in _OF_THE_NODE else CANNOT_START
    return CannotStart(f"{what}: {error.strerror}", code)


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
            os.close(user_rights.open_path(image, os.O_RDONLY | os.O_NONBLOCK))
    except OSError as error:
        raise _refused(cannot, error) from None


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
        fd = user_rights.open_path(path or os.devnull, os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK)
    except OSError as error:
        raise _refused(f"cannot open input {path}", error) from None
    os.set_blocking(fd, True)
    return fd


def open_output(path: str, truncate: bool) -> int:
    """Open an output file as the present user; return its descriptor.

    A folder that is not there is waited for: submitit and others make it once they know the job id.

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
        fd = _once_there(path, flags)
    except OSError as error:
        raise _refused(f"cannot open output {path}", error) from None
    mode = os.fstat(fd).st_mode
    if not stat.S_ISREG(mode) and not (
        stat.S_ISCHR(mode) and (path == "/dev/null" or os.isatty(fd))
    ):
        raise CannotStart(f"cannot open output {path}: not a regular file")
    os.set_blocking(fd, True)
    return fd


def _once_there(path: str, flags: int) -> int:
    until = time.monotonic() + FOLDER_WITHIN_S
    while True:
        try:
            return user_rights.open_path(path, flags)
        except FileNotFoundError:
            if time.monotonic() >= until:
                raise
            time.sleep(_AGAIN_S)


def _no_device(path: str) -> None:
    """Refuse devices before they are opened: for some, opening has an effect."""
    with contextlib.suppress(FileNotFoundError):
        mode = os.lstat(path).st_mode
        if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or stat.S_ISBLK(mode):
            raise CannotStart(f"cannot open output {path}: not a regular file")


def _execute(process: ProcessSpec) -> None:
    """Execute the program, found as a shell finds it.

    `os.execvpe` would import a module for that, from where the user may not read.
    """
    program, arguments = process.argv[0], list(process.argv)
    environment = dict(process.environment)
    if "SLURM_PROCID" in environment:
        environment["SLURM_TASK_PID"] = str(os.getpid())
    try:
        environment["PWD"] = os.getcwd()
    except OSError as error:  # its user has removed it meanwhile
        what = f"cannot enter working directory {process.working_directory}"
        raise _refused(what, error) from None
    folders = [""]
    if not os.path.dirname(program):
        folders = environment.get("PATH", os.defpath).split(os.pathsep)
    failed: OSError | ValueError | None = None
    for folder in folders:
        try:
            os.execve(os.path.join(folder, program), arguments, environment)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (OSError, ValueError) as error:
            failed = failed or error
    if failed is None:
        raise CannotStart(f"{program}: command not found", NOT_FOUND)
    if isinstance(failed, OSError):
        raise _refused(f"cannot execute {program}", failed)
    raise CannotStart(f"cannot execute {program}: {failed}")
