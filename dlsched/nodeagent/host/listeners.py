"""Which processes listen at Unix sockets in a folder, even after the sockets were deleted."""

from __future__ import annotations

import os
from collections.abc import Iterator

from dlsched.nodeagent.host import processes

_LISTENS = 0x10000  # the flag of a socket that accepts connections
_KEEPER = "dls-"  # how the names of keepers begin


def listening_keepers(folder: str) -> Iterator[tuple[processes.Stat, str]]:
    """Give each keeper that listens below a folder, with the path that it gave its socket.

    The kernel keeps that path as long as the socket is open. Only processes of this process's user
    are given: a path alone could be another user's, in a mount namespace.
    """
    path_of = {inode: path for inode, path in _sockets() if path.startswith(f"{folder}/")}
    if not path_of:
        return
    for each in processes.all_processes():
        for path in {path_of[inode] for inode in _inodes(each.pid) if inode in path_of}:
            yield each, path


def _sockets() -> Iterator[tuple[str, str]]:
    """Give the inode and the path of each listening Unix socket."""
    with open("/proc/net/unix", encoding="utf-8", errors="surrogateescape") as file:
        next(file)
        for line in file:
            words = line.rstrip("\n").split(maxsplit=7)  # flags: the fourth; then inode and path
            if len(words) == 8 and int(words[3], 16) & _LISTENS:
                yield words[6], words[7]


def _inodes(pid: int) -> Iterator[str]:
    """Give the inodes of a keeper's sockets; none for any other process."""
    place = f"/proc/{pid}"
    try:
        with open(f"{place}/comm", encoding="utf-8", errors="replace") as file:
            if not file.read().startswith(_KEEPER) or os.stat(place).st_uid != os.geteuid():
                return
        yield from processes.socket_inodes(pid)
    except OSError:
        return
