"""The file server: a program that has one process do what is asked of paths that a user named.

It is a child of the agent, root and with one thread. On its input it receives a socket for each
request, and perhaps a descriptor of the keeper of the run. It writes one byte there, by which the
agent sees that the server does not stand still, and forks a process, which reads the request there,
one line of JSON, enters the mounts of the run, becomes the user, and only then touches a path. A
file system that hangs, or a user who stops the process, holds up that process only; it is killed
when the agent does not want the answer any more.

The fields of a request are `do`, `uid`, `gid`, `groups`, and those that `do` needs.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dlsched.nodeagent.agent import log_reader
from dlsched.nodeagent.host import syscalls, user_rights

LEAVES_S = 60.0  # after the end of the answer, until the agent has read it
KILL_S = 2.0  # from when the agent does not want the answer until the process is killed
_CHUNK = 64 * 1024
_STANDARD = 3  # descriptors that every program has
Answer = Callable[..., None]  # of a socket, a request, and whether more has come behind the request


def _work_of(name: str) -> Answer:
    """Return what answers a kind of request; loads it, while this process can read the program."""
    if name == "delete checkpoints":
        from dlsched.nodeagent.agent import checkpoint_deleter  # noqa: PLC0415  # seldom, and large

        return checkpoint_deleter.answer
    return log_reader.answer


def read_request(asked: socket.socket) -> tuple[bytes, bool]:
    """Return the first line that comes, and whether anything stands behind it already.

    A buffered `readline` would take what follows the line with it, and a wait for `over` would
    then last for ever.

    Raises:
        ConnectionAbortedError: the agent closed its side within the line.
    """
    read = []
    while chunk := asked.recv(_CHUNK):
        read.append(chunk)
        if b"\n" in chunk:
            line, _, rest = b"".join(read).partition(b"\n")
            return line, bool(rest)
    raise ConnectionAbortedError("the agent left before it had asked")


def serve(asked: socket.socket, keeper: int | None, server: int) -> None:
    """Be the process of one request: read it, become its user, answer.

    Args:
        asked: where it comes, and where the answer goes.
        keeper: a descriptor of the process of the run's keeper; None: no run, or it is over.
        server: id of the process that has forked this one, and whose end is its end.
    """
    with asked, contextlib.suppress(OSError):  # the agent does not want it any more
        line, over = read_request(asked)
        request: dict[str, Any] = json.loads(line)
        answer = _work_of(request["do"])
        try:
            if keeper is not None:
                user_rights.see_mounts_of(keeper)
                os.close(keeper)
            user_rights.become(request["uid"], request["gid"], request["groups"])
        except OSError as error:
            asked.sendall(f"{error.strerror}\n".encode())
            return
        syscalls.die_with_parent(signal.SIGKILL)
        if os.getppid() != server:
            return
        answer(asked, request, over=over)
        asked.shutdown(socket.SHUT_WR)
        asked.settimeout(LEAVES_S)
        while asked.recv(_CHUNK):  # closed with bytes unread, it would lose what was sent
            pass


@dataclass(slots=True)
class _Process:
    """A process that was forked for a request."""

    pid: int
    asked: socket.socket  # its socket, only to see that the agent has left
    kill_at: float | None = None  # on the monotonic clock


class FileServer:
    """Forks a process for each request that comes."""

    def __init__(self, agent: socket.socket) -> None:
        """Serve an agent; `agent` is the socket on which requests come."""
        self._agent = agent
        self._events = select.poll()
        self._events.register(agent, select.POLLIN)
        self._ends: dict[int, _Process] = {}  # by a descriptor of the process
        self._lines: dict[int, _Process] = {}  # by the descriptor of the socket

    def run(self) -> None:
        """Serve until the agent is gone."""
        while True:
            due = [each.kill_at for each in self._ends.values() if each.kill_at is not None]
            wait_s = max(0.0, min(due) - time.monotonic()) if due else None
            for fd, _ in self._events.poll(None if wait_s is None else 1000 * wait_s + 1):
                if fd in self._ends:
                    self._ended(fd)
                elif fd in self._lines:
                    self._left(fd)
                elif fd == self._agent.fileno() and not self._take():
                    return
            now = time.monotonic()
            for process in self._ends.values():
                if process.kill_at is not None and now >= process.kill_at:
                    process.kill_at = None
                    os.kill(process.pid, signal.SIGKILL)  # it is ours until `_ended` reaps it

    def _take(self) -> bool:
        """Fork for one more request; return False when the agent is gone."""
        packet, fds, _, _ = socket.recv_fds(self._agent, 1, 2)
        if not packet or not fds:
            return bool(packet)
        asked, keeper = socket.socket(fileno=fds[0]), fds[1] if len(fds) > 1 else None
        with contextlib.suppress(OSError):  # the agent has left: its process will see that
            asked.send(b".")
        try:
            server, pid = os.getpid(), os.fork()
        except OSError as error:
            with asked, contextlib.suppress(OSError):
                asked.sendall(f"{error.strerror}\n".encode())
        else:
            if pid == 0:
                self._be_child(asked, keeper, server)
            process = _Process(pid, asked)
            end = os.pidfd_open(pid)
            self._ends[end], self._lines[asked.fileno()] = process, process
            self._events.register(end, select.POLLIN)
            self._events.register(asked, select.POLLRDHUP)
        if keeper is not None:
            os.close(keeper)
        return True

    def _be_child(self, asked: socket.socket, keeper: int | None, server: int) -> None:
        """Never return; hold nothing of other requests."""
        code = 1
        try:
            place = _STANDARD
            for fd in sorted({asked.fileno(), *([keeper] if keeper is not None else [])}):
                os.closerange(place, fd)
                place = fd + 1
            os.closerange(place, 1 << 20)
            os.dup2(1, 0)  # the agent's socket: the null device in its place
            serve(asked, keeper, server)
            code = 0
        except Exception as error:  # for the agent's log
            print(f"file server: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        finally:
            os._exit(code)

    def _left(self, fd: int) -> None:
        """The agent does not want the answer, or has it: the process has a moment to end."""
        self._events.unregister(fd)
        self._lines.pop(fd).kill_at = time.monotonic() + KILL_S

    def _ended(self, end: int) -> None:
        """Reap a process, and close its socket: the agent waits for that."""
        process = self._ends.pop(end)
        os.waitpid(process.pid, 0)
        if self._lines.pop(process.asked.fileno(), None) is not None:
            self._events.unregister(process.asked)
        process.asked.close()
        self._events.unregister(end)
        os.close(end)


def main() -> None:
    """Be the file server of the agent whose socket is the standard input."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # it ends with its agent, not with a terminal
    syscalls.set_name("dls-files")
    gc.collect()
    gc.freeze()
    with socket.socket(fileno=0) as agent:
        FileServer(agent).run()
