"""Sends a job's output file; what the file server does, in a process of the job's user.

The answer begins with the line `ready`, or with one that says why the file cannot be read; then the
file's bytes follow, until its end or, to be followed, until the agent says `over`.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import socket
import stat
from typing import Any

from dlsched.nodeagent.host.syscalls import is_on_proc
from dlsched.nodeagent.host.user_rights import open_path

CHUNK = 64 * 1024
POLL_S = 0.1
FULL = b"\nerror: No space left on device, where this output is written\n"  # after the last lines


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
        """Return the bytes that were held back, as no further ones come."""
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


def answer(asked: socket.socket, request: dict[str, Any], *, over: bool) -> None:
    """Open the file, and send it or the reason why it cannot be read."""
    try:
        fd = open_path(request["path"], os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError as error:
        asked.sendall(f"{error.strerror}\n".encode())
        return
    send_file(asked, fd, request, over=over)


def send_file(asked: socket.socket, fd: int, request: dict[str, Any], *, over: bool) -> None:
    """Send an open file as the request wants it; `over`: it will not grow."""
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode) or is_on_proc(fd):
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
