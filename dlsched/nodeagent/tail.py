"""A child of the agent that reads one file as its owner; started as a program of its own.

In: one line of JSON, later perhaps `over`. Out: the bytes; on the error stream first `ready` or why
not. Standard library only, no other module of ours: it runs with a user's rights.
"""

from __future__ import annotations

import json
import os
import select
import stat
import sys

CHUNK = 64 * 1024
POLL_S = 0.1


def become(uid: int, gid: int, groups: list[int]) -> None:
    """Give up all rights but the user's."""
    if os.geteuid() == 0:
        os.setgroups(groups or [gid])
        os.setgid(gid)
        os.setuid(uid)


def begin_of_tail(fd: int, size: int, lines: int) -> int:
    """Where the last so many lines begin."""
    if lines < 0:
        return 0
    position, found = size, 0
    while position > 0:
        start = max(0, position - CHUNK)
        block = os.pread(fd, position - start, start)
        at = len(block)
        while (at := block.rfind(b"\n", 0, at)) >= 0:
            if start + at < size - 1:  # the last byte ends the last line
                found += 1
                if found == lines:
                    return start + at + 1
        position = start
    return size if lines == 0 else 0


def copy(fd: int, position: int) -> int:
    """Write what there is from a position; where it ends."""
    while data := os.pread(fd, CHUNK, position):
        sent = 0
        while sent < len(data):
            sent += os.write(1, data[sent:])
        position += len(data)
    return position


def main() -> None:
    """Do as asked."""
    asked = json.loads(sys.stdin.buffer.readline())
    try:
        become(asked["uid"], asked["gid"], asked["groups"])
        fd = os.open(asked["path"], os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(0, "not a regular file")
    except OSError as error:
        os.write(2, f"{error.strerror}\n".encode())
        return
    os.write(2, b"ready\n")
    position = copy(fd, begin_of_tail(fd, status.st_size, asked["tail"]))
    over = not asked["follow"]
    while not over:
        readable, _, _ = select.select([0], [], [], POLL_S)
        over = bool(readable)  # told, or the agent is gone
        if os.fstat(fd).st_size < position:
            position = 0  # it was truncated
        position = copy(fd, position)


if __name__ == "__main__":
    main()
