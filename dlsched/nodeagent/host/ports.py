"""Which processes of a user listen at a TCP port, as /proc shows it."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass

from dlsched.nodeagent.host import processes

_LISTENS = "0A"  # a socket's state in /proc/net/tcp
_ANY = {"0.0.0.0": "127.0.0.1", "::": "::1"}


@dataclass(frozen=True, slots=True)
class Listener:
    """A listening socket.

    Attributes:
        host: where it is reached from this machine.
        inode: of the socket; the kernel gives it to no other one while it is open.
        pids: of the processes that have it open.
    """

    host: str
    inode: str
    pids: tuple[int, ...]


def listeners(port: int, uid: int) -> list[Listener]:
    """Return the sockets of a user that listen at a port, with processes of the same user."""
    found = list(_sockets(port, uid))
    if not found:
        return []
    holders: dict[str, list[int]] = {inode: [] for _, inode in found}
    for name in os.listdir("/proc"):
        if name.isdigit():
            for inode in _inodes(int(name), uid):
                if inode in holders:
                    holders[inode].append(int(name))
    return [Listener(host, inode, tuple(holders[inode])) for host, inode in found if holders[inode]]


def _sockets(port: int, uid: int) -> Iterator[tuple[str, str]]:
    """Give where each listening socket is reached, and its inode."""
    for name, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        try:
            with open(f"/proc/net/{name}", encoding="utf-8") as file:
                rows = [line.split() for line in file][1:]
        except OSError:  # a machine without IPv6
            continue
        for row in rows:
            address, _, at = row[1].partition(":")
            if row[3] == _LISTENS and int(at, 16) == port and int(row[7]) == uid:
                host = _address(address, family)
                yield _ANY.get(host, host), row[9]


def _address(text: str, family: int) -> str:
    """Read an address of /proc/net: words of 32 bits in the machine's order."""
    raw = bytes.fromhex(text)
    words = [raw[at : at + 4][::-1] for at in range(0, len(raw), 4)]  # little-endian machines
    return socket.inet_ntop(family, b"".join(words))


def _inodes(pid: int, uid: int) -> Iterator[str]:
    """Give the inodes of the sockets that a process of the user has open."""
    try:
        if os.stat(f"/proc/{pid}").st_uid == uid:
            yield from processes.socket_inodes(pid)
    except OSError:
        return
