"""How many connections one user id or address may have to a server; the excess is closed.

gRPC accepts whatever connects. So the sockets of this process are looked at once a second: of each
source, and of all together, the newest beyond the bound are shut down. Connections on which a node,
an operator or a login node has called, and those of root, are outside of these bounds: half of the
descriptors of the process are kept for them.
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
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import unquote

from dlsched.rpc.identity import Identity

log = logging.getLogger(__name__)
OF_ONE = 256
LOOK_S = 1.0
_CREDENTIALS = struct.Struct("3i")
_LOGIN = "dlsched://login/"


@dataclass(frozen=True, slots=True)
class _Connection:
    """One accepted connection."""

    inode: int  # tells it from others, also when its descriptor is used again
    source: str  # user id or address
    peer: str  # as gRPC names it
    line: socket.socket  # a duplicate of its descriptor


class ConnectionLimits:
    """Counts the connections to the servers of this process."""

    def __init__(self, of_one: int = OF_ONE) -> None:
        """Allow every source so many."""
        self._of_one = of_one
        self._reserved: set[str] = set()  # peers whose connections are not counted
        self._since: dict[int, int] = {}  # in which look a connection was first seen, by inode
        self._looks = 0

    def note(self, peer: str, caller: Identity) -> None:
        """Note on which connection a caller has called; the kernel knows those of unix sockets."""
        if peer.startswith("unix:"):
            return  # gRPC gives all of them one name
        if caller.kind != "user" or caller.is_operator or caller.via.startswith(_LOGIN):
            self._reserved.add(unquote(peer))
        else:
            self._reserved.discard(unquote(peer))  # the port of a connection that has ended

    async def watch(self) -> None:
        """Close the excess once a second, for ever."""
        while True:
            await asyncio.sleep(LOOK_S)
            open_files = len(os.listdir("/proc/self/fd"))
            if max(open_files, len(self._reserved)) > self._of_one:
                closed = await asyncio.to_thread(self.close_excess)
                for source, count in closed.items():
                    log.warning("connections-closed source=%s count=%d", source, count)

    def close_excess(self) -> Counter[str]:
        """Close what is beyond the bounds; returns how many of each source."""
        self._looks += 1
        closed: Counter[str] = Counter()
        with contextlib.ExitStack() as held:
            found = list(_accepted(held))
            self._reserved &= {each.peer for each in found}
            since = {each.inode: self._since.get(each.inode, self._looks) for each in found}
            self._since = since
            counted: Counter[str] = Counter()
            most = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2
            for each in sorted(found, key=lambda each: since[each.inode]):
                if each.peer in self._reserved or each.source in ("uid 0", _own_user()):
                    continue
                counted[each.source] += 1
                if counted[each.source] > self._of_one or counted.total() > most:
                    with contextlib.suppress(OSError):  # it was closed meanwhile
                        each.line.shutdown(socket.SHUT_RDWR)
                    counted[each.source] -= 1
                    closed[each.source] += 1
        return closed


def _own_user() -> str:
    return f"uid {os.geteuid()}"


def _accepted(held: contextlib.ExitStack) -> Iterator[_Connection]:
    """Every connection to an address on which this process listens."""
    lines = []
    listening = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # closed meanwhile
            if not stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                continue
            line = held.enter_context(socket.socket(fileno=os.dup(int(name))))
            if line.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                listening.add(_end(line))
            elif line.type == socket.SOCK_STREAM:
                lines.append(line)
    for line in lines:
        with contextlib.suppress(OSError):  # it has no other end any more
            if _end(line) in listening:
                source, peer = _source(line)
                yield _Connection(os.fstat(line.fileno()).st_ino, source, peer, line)


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
