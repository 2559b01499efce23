"""How many connections one user id or address may have to a server; the excess is closed.

gRPC accepts whatever connects. So the sockets of this process are looked at once a second: of each
source, and of all together, those beyond the bound are shut down. A source is a user, where the
kernel or a call has told it: then the newest leave. Else it is an address, which users may share:
then those leave that have been silent for longest. Connections on which a node, an operator or a
login node has called, and those of root, are outside of these bounds: half of the descriptors of
the process are kept for them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
import socket
import stat
import struct
from collections import Counter
from dataclasses import dataclass
from urllib.parse import unquote

from dlsched.rpc.identity import Identity

log = logging.getLogger(__name__)
OF_ONE = 256
LOOK_S = 1.0
_CREDENTIALS = struct.Struct("3i")
_LOGIN = "dlsched://login/"


@dataclass(frozen=True, slots=True)
class _Socket:
    """What is to be known of a socket; it does not change while the socket is open."""

    inode: int  # tells it from others, also when its descriptor is used again
    end: object  # this end: its port, or its path
    listens: bool
    source: str = ""  # user id or address of the other end
    peer: str = ""  # the other end as gRPC names it; empty: there is none yet


class ConnectionLimits:
    """Counts the connections to the servers of this process."""

    def __init__(self, of_one: int = OF_ONE) -> None:
        """Allow every source so many."""
        self._of_one = of_one
        self._reserved: set[str] = set()  # peers whose connections are not counted
        self._users: dict[str, str] = {}  # by peer, the user that has called last
        self._since: dict[int, int] = {}  # in which look a connection was first seen, by inode
        self._known: dict[int, _Socket] = {}  # of the last look, by descriptor
        self._looks = 0

    def note(self, peer: str, caller: Identity) -> None:
        """Note on which connection a caller has called; the kernel knows those of unix sockets."""
        if peer.startswith("unix:"):
            return  # gRPC gives all of them one name
        peer = unquote(peer)
        if caller.kind != "user" or caller.is_operator or caller.via.startswith(_LOGIN):
            self._reserved.add(peer)
        else:
            self._reserved.discard(peer)  # the port of a connection that has ended
            self._users[peer] = caller.name

    async def watch(self) -> None:
        """Close the excess once a second, for ever."""
        while True:
            await asyncio.sleep(LOOK_S)
            open_files = len(os.listdir("/proc/self/fd"))
            if max(open_files, len(self._reserved), len(self._users)) > self._of_one:
                closed = await asyncio.to_thread(self.close_excess)
                for source, count in closed.items():
                    log.warning("connections-closed source=%s count=%d", source, count)

    def close_excess(self) -> Counter[str]:
        """Close what is beyond the bounds; returns how many of each source."""
        self._looks += 1
        closed: Counter[str] = Counter()
        noted = self._reserved | self._users.keys()
        found = self.accepted()
        for peer in noted - {each.peer for each in found.values()}:
            self._reserved.discard(peer)
            self._users.pop(peer, None)
        since = {each.inode: self._since.get(each.inode, self._looks) for each in found.values()}
        self._since = since
        counted: Counter[str] = Counter()
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2
        not_counted = ("uid 0", f"uid {os.geteuid()}")
        bounded = [
            (number, each)
            for number, each in found.items()
            if each.peer not in self._reserved and each.source not in not_counted
        ]

        def last_to_leave(each: _Socket) -> tuple[bool, int, int]:
            age = since[each.inode], each.inode  # inodes grow, too
            knows = each.peer in self._users or each.peer.startswith("unix:")
            return (False, *age) if knows else (True, -age[0], -age[1])

        for number, each in sorted(bounded, key=lambda pair: last_to_leave(pair[1])):
            user = self._users.get(each.peer)
            source = each.source if user is None else f"user {user}"
            counted[source] += 1
            if counted[source] > self._of_one or counted.total() > most:
                _close(number, each)
                counted[source] -= 1
                closed[source] += 1
        return closed

    def accepted(self) -> dict[int, _Socket]:
        """Every connection to an address on which this process listens, by descriptor.

        Nodes keep theirs open: only sockets that are new since the last look are looked into.
        """
        known, now = self._known, {}
        for name in os.listdir("/proc/self/fd"):
            number = int(name)
            inode = _inode_of_socket(number)
            if inode is None:
                continue
            each: _Socket | None = known.get(number)
            if each is None or each.inode != inode:
                each = _looked_into(number)
            if each is not None:
                now[number] = each
        listening = {each.end for each in now.values() if each.listens}
        # one that neither listens nor has an other end may do so later
        self._known = {n: each for n, each in now.items() if each.listens or each.peer}
        return {n: each for n, each in now.items() if each.peer and each.end in listening}


def _inode_of_socket(number: int) -> int | None:
    """The inode of a descriptor's socket; None: it is none, or was closed meanwhile."""
    try:
        found = os.fstat(number)
    except OSError:
        return None
    return found.st_ino if stat.S_ISSOCK(found.st_mode) else None


def _looked_into(number: int) -> _Socket | None:
    """The socket of a descriptor; None: it was closed meanwhile."""
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(number)) as line:
        inode = os.fstat(line.fileno()).st_ino
        if line.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            return _Socket(inode, _end(line), listens=True)
        source = peer = ""
        if line.type == socket.SOCK_STREAM:
            with contextlib.suppress(OSError):  # it has no other end, or not any more
                source, peer = _source(line)
        return _Socket(inode, _end(line), False, source, peer)
    return None


def _close(number: int, known: _Socket) -> None:
    """End a connection, unless it was closed meanwhile."""
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(number)) as line:
        if os.fstat(line.fileno()).st_ino == known.inode:
            line.shutdown(socket.SHUT_RDWR)


def _end(line: socket.socket) -> object:
    """This end of a connection: its port, or its path."""
    name = line.getsockname()
    return name[1] if line.family in (socket.AF_INET, socket.AF_INET6) else name or None


def _source(line: socket.socket) -> tuple[str, str]:
    if line.family == socket.AF_UNIX:
        raw = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        return f"uid {_CREDENTIALS.unpack(raw)[1]}", "unix:"
    host, port = line.getpeername()[:2]
    host = host.removeprefix("::ffff:")
    peer = f"ipv6:[{host}]:{port}" if ":" in host else f"ipv4:{host}:{port}"
    return host, peer
