"""A program that reads outputs of jobs, each with its user's rights; a child of the agent.

Its input is a socket on which it receives one more socket for each output. There a line of JSON
comes first, later perhaps `over`. The answer begins with the line `ready`, or with one that says
why the file cannot be read; then the file's bytes follow. A thread serves each output, so a file
system that hangs stops nothing else. The program uses the standard library only and no other module
of ours.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import select
import socket
import stat
import threading
from typing import Any

CHUNK = 64 * 1024
POLL_S = 0.1
FULL = b"\nerror: No space left on device, where this output is written\n"  # after the last lines
LEAVES_S = 60.0  # after the end, until the agent has read it
_SETGROUPS = {"x86_64": 116, "aarch64": 159}  # the system call, which changes one thread


def access_files_as(uid: int, gid: int, groups: list[int]) -> None:
    """Give this thread the rights of a user on files, and no others.

    The rights of the process stay root's, so that the user cannot signal it. The C library sets
    groups for all threads; the system call does so for one.

    Raises:
        OSError: they could not be given.
    """
    if os.geteuid() != 0:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    ids = (ctypes.c_uint32 * max(len(groups), 1))(*(groups or [gid]))
    number = _SETGROUPS.get(os.uname().machine)
    if number is None or libc.syscall(number, len(ids), ids) != 0:
        raise OSError(ctypes.get_errno(), "the rights of the user cannot be had")
    for change, wanted in ((libc.setfsgid, gid), (libc.setfsuid, uid)):
        change(ctypes.c_uint32(wanted))
        if ctypes.c_uint32(change(ctypes.c_uint32(0xFFFFFFFF))).value != wanted:  # what it is now
            raise OSError(1, "the rights of the user cannot be had")


class RankLines:
    """Of a file in which each line begins with a rank's label: what one rank has written."""

    def __init__(self, label: bytes) -> None:
        """Begin at the start of a line; without a label, everything is taken as it is."""
        self._label, self._again = label, b"\r" + label
        self._line = re.compile(b"^%s(.*\n)" % re.escape(label), re.MULTILINE)
        self._rest = b""  # the start of a line, too short to tell whose it is
        self._is_own: bool | None = None  # the line that has begun; None: none, or not known
        self._held = b""  # perhaps the start of a repeated label

    def take(self, data: bytes) -> bytes:
        """Return what the rank has written of the next bytes of the file, without its labels."""
        if not self._label:
            return data
        data, found = self._rest + data, [self._held]
        if self._is_own is not None:
            end = data.find(b"\n") + 1 or len(data)
            if self._is_own:
                found.append(data[:end])
            if data[end - 1 : end] == b"\n":
                self._is_own = None
            data = data[end:]
        end = data.rfind(b"\n") + 1
        found += self._line.findall(data[:end])
        self._rest = data[end:]
        if len(self._rest) >= len(self._label):
            self._is_own = self._rest.startswith(self._label)
            found.append(self._rest[len(self._label) :] if self._is_own else b"")
            self._rest = b""
        text = b"".join(found).replace(self._again, b"\r")
        last = text.rfind(b"\r")
        self._held = text[last:] if last >= 0 and self._again.startswith(text[last:]) else b""
        return text[: len(text) - len(self._held)]

    def end(self) -> bytes:
        """Return what was held back."""
        return self._held


def begin_of_tail(fd: int, size: int, lines: int, label: bytes = b"") -> int:
    """Return the position in a file of `size` bytes at which its last `lines` lines begin.

    Only lines that begin with `label` count.
    """
    if lines < 0:
        return 0
    position, found, begin = size, 0, b"\n" + label
    while position > 0:
        start = max(0, position - CHUNK)
        block = os.pread(fd, position - start + len(label), start)
        at = len(block)
        while (at := block.rfind(begin, 0, at)) >= 0:
            if start + at < size - 1:  # the last byte ends the last line
                found += 1
                if found == lines:
                    return start + at + 1
        position = start
    return size if lines == 0 else 0


def copy(fd: int, position: int, lines: RankLines, asked: socket.socket) -> int:
    """Send the wanted lines of a file from a position on; return the position of its end."""
    while data := os.pread(fd, CHUNK, position):
        check_is_wanted(asked)
        asked.sendall(lines.take(data))
        position += len(data)
    return position


def check_is_wanted(asked: socket.socket) -> None:
    """Raise OSError if the agent has closed its side: it does not want the rest."""
    with contextlib.suppress(BlockingIOError):
        if not asked.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT):
            raise OSError


def read_request(asked: socket.socket) -> tuple[bytes, bool]:
    """Return the first line that comes, and whether anything stands behind it already.

    A buffered `readline` would take what follows the line with it, and a wait for `over` would
    then last for ever.

    Raises:
        ConnectionAbortedError: the agent closed its side within the line.
    """
    read = b""
    while b"\n" not in read and (chunk := asked.recv(CHUNK)):
        read += chunk
    line, newline, rest = read.partition(b"\n")
    if not newline:
        raise ConnectionAbortedError("the agent left before it had asked")
    return line, bool(rest)


def serve(asked: socket.socket) -> None:
    """Read the request, then the file; until its end, and with `follow` until the run is over."""
    with asked, contextlib.suppress(OSError):  # the agent does not want it any more
        line, over = read_request(asked)
        answer(asked, json.loads(line), over=over)
        asked.shutdown(socket.SHUT_WR)
        asked.settimeout(LEAVES_S)
        while asked.recv(CHUNK):  # closed with bytes unread, it would lose what was sent
            pass


def answer(asked: socket.socket, request: dict[str, Any], *, over: bool) -> None:
    """Open the file with its user's rights, and send it or the reason why it cannot be read."""
    try:
        access_files_as(request["uid"], request["gid"], request["groups"])
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(request["path"], flags)
    except OSError as error:
        asked.sendall(f"{error.strerror}\n".encode())
        return
    try:
        send_file(asked, fd, request, over=over)
    finally:
        os.close(fd)


def send_file(asked: socket.socket, fd: int, request: dict[str, Any], *, over: bool) -> None:
    """Send an open file as the request wants it; `over`: it will not grow."""
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        asked.sendall(b"not a regular file\n")
        return
    asked.sendall(b"ready\n")
    label, lines = request["label"].encode(), RankLines(request["label"].encode())
    begin = begin_of_tail(fd, status.st_size, request["tail"], label)
    position = copy(fd, begin, lines, asked)
    over = over or not request["follow"]
    while not over:
        readable, _, _ = select.select([asked], [], [], POLL_S)
        check_is_wanted(asked)
        over = bool(readable)
        if os.fstat(fd).st_size < position:
            position, lines = 0, RankLines(label)  # it was truncated
        position = copy(fd, position, lines, asked)
    asked.sendall(lines.end())
    if request["tail"] > 0 and not request["follow"] and is_on_full_disk(fd):
        asked.sendall(FULL)


def is_on_full_disk(fd: int) -> bool:
    """Whether a file cannot grow: what its job wrote last may be missing, and its error as well."""
    space = os.fstatvfs(fd)
    return space.f_blocks > 0 and space.f_bavail == 0


def main() -> None:
    """Serve each socket that comes, until the agent is gone."""
    with socket.socket(fileno=0) as agent:
        while True:
            packet, fds, _, _ = socket.recv_fds(agent, 1, 1)
            if not packet:
                return
            for fd in fds:
                asked = socket.socket(fileno=fd)
                threading.Thread(target=serve, args=(asked,), daemon=True).start()


if __name__ == "__main__":
    main()
    os._exit(0)  # a thread may hang in a file system, and has nothing to end
