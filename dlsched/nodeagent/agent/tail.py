"""A program that reads one file with a user's rights; a child of the agent (`job_output`).

Its input is one line of JSON, later perhaps `over`. Its output is the file's bytes. Its error
stream begins with `ready`, or with the reason why the file cannot be read. It uses the standard
library only and no other module of ours.
"""

from __future__ import annotations

import json
import os
import re
import select
import stat

CHUNK = 64 * 1024
POLL_S = 0.1


def become(uid: int, gid: int, groups: list[int]) -> None:
    """Give up all rights but those of this user."""
    if os.geteuid() == 0:
        os.setgroups(groups or [gid])
        os.setgid(gid)
        os.setuid(uid)


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


def copy(fd: int, position: int, lines: RankLines) -> int:
    """Write the wanted lines of a file from a position on; return the position of its end."""
    while data := os.pread(fd, CHUNK, position):
        send(lines.take(data))
        position += len(data)
    return position


def send(data: bytes) -> None:
    """Write all bytes to the output."""
    sent = 0
    while sent < len(data):
        sent += os.write(1, data[sent:])


def read_request() -> tuple[bytes, bool]:
    """Return the first line of the input, and whether anything stands behind it already.

    A buffered `readline` would take what follows the line with it, and `select` would then wait
    for an `over` that has been read.
    """
    read = b""
    while b"\n" not in read and (chunk := os.read(0, CHUNK)):
        read += chunk
    line, _, rest = read.partition(b"\n")
    return line, bool(rest)


def main() -> None:
    """Read the request, then the file."""
    line, over = read_request()
    request = json.loads(line)
    try:
        become(request["uid"], request["gid"], request["groups"])
        fd = os.open(request["path"], os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(0, "not a regular file")
    except OSError as error:
        os.write(2, f"{error.strerror}\n".encode())
        return
    os.write(2, b"ready\n")
    label = request.get("label", "").encode()  # an agent of before does not send it
    begin, lines = begin_of_tail(fd, status.st_size, request["tail"], label), RankLines(label)
    position = copy(fd, begin, lines)
    over = over or not request["follow"]
    while not over:
        readable, _, _ = select.select([0], [], [], POLL_S)
        over = bool(readable)  # the run is over, or the agent is gone
        if os.fstat(fd).st_size < position:
            position, lines = 0, RankLines(label)  # it was truncated
        position = copy(fd, position, lines)
    send(lines.end())


if __name__ == "__main__":
    main()
