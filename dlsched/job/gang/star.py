"""The exchange of the agreement over TCP, for gangs without a process group: a star around rank 0.

Rank 0 listens at MASTER_ADDR and MASTER_PORT; each other rank sends it a few numbers and gets the
numbers of all ranks back. A rank that has closed its connection wants nothing. Rank 0 accepts the
first connection for each rank whose greeting proves that it knows the run's id, which is random and
in the environment of the run's processes alone, and no other.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import socket
import struct
import time
from collections.abc import Sequence

from dlsched.job.errors import JobError
from dlsched.job.gang.agreement import NOTHING, Numbers
from dlsched.job.gang.greetings import Greetings
from dlsched.job.runtime import Runtime

NUMBERS = struct.Struct("!5q")
PROOF = "sha256"
LOOK_S = 1.0  # between two looks for connections that say no greeting


class Star:
    """One rank's part in the star; made on all ranks at the same point of the program."""

    def __init__(self, runtime: Runtime, *, timeout_s: float = 300.0) -> None:
        """Connect all ranks.

        Raises:
            JobError: when there is no port, or the ranks are not connected in time.
        """
        if not runtime.master_port:
            raise JobError(
                f"WORLD_SIZE={runtime.world_size} but no MASTER_PORT; set it, or attach(gang=False)"
            )
        self._runtime = runtime
        self._until = time.monotonic() + timeout_s
        self._mine: list[Numbers] = []  # rank 0's own, posted and not yet collected
        self._peers: dict[int, socket.socket] = {}  # of rank 0
        self._middle: socket.socket | None = None  # of the others
        if runtime.rank == 0:
            self._accept_all()
        else:
            self._middle = self._connect()

    # -- Exchange ----------------------------------------------------------------------------------

    def post(self, numbers: Numbers) -> None:
        """Send this rank's numbers."""
        if self._runtime.rank == 0:
            self._mine.append(numbers)
        elif self._middle is not None:
            with contextlib.suppress(OSError):  # rank 0 has gone: collect() notices
                self._middle.sendall(NUMBERS.pack(*numbers))

    def collect(self) -> Sequence[Numbers]:
        """Return the numbers of each rank, in order of rank; empty when rank 0 has gone."""
        return self._gather() if self._runtime.rank == 0 else self._await_all()

    def close(self) -> None:
        """Close the connections."""
        for peer in [*self._peers.values(), *([self._middle] if self._middle else [])]:
            peer.close()
        self._peers.clear()
        self._middle = None

    # -- the middle --------------------------------------------------------------------------------

    def _gather(self) -> Sequence[Numbers]:
        by_rank: dict[int, Numbers] = {0: self._mine.pop(0)}
        for rank, peer in list(self._peers.items()):
            packet = _exactly(peer, NUMBERS.size)
            if packet is None:
                peer.close()
                del self._peers[rank]
                continue
            by_rank[rank] = NUMBERS.unpack(packet)
        numbers = [by_rank.get(rank, NOTHING) for rank in range(self._runtime.world_size)]
        answer = b"".join(NUMBERS.pack(*each) for each in numbers)
        for peer in self._peers.values():
            with contextlib.suppress(OSError):
                peer.sendall(answer)
        return numbers

    def _accept_all(self) -> None:
        runtime = self._runtime
        family, address = _address(runtime)
        is_local = address[0] in {"127.0.0.1", "::1"}
        where = (address[0] if is_local else "", address[1])
        try:
            listener = socket.create_server(where, family=family, reuse_port=False)
        except OSError as error:
            raise JobError(
                f"cannot listen on MASTER_PORT={runtime.master_port}: {error.strerror}; "
                "make the process group before the first step, or give another port"
            ) from None
        greetings = Greetings(listener, hashlib.new(PROOF).digest_size)
        with contextlib.closing(greetings):
            while len(self._peers) < runtime.world_size - 1:
                left = self._left("the other ranks did not connect in time")
                for greeting, peer in greetings.take(min(left, LOOK_S)):
                    self._admit(greeting, peer)

    def _admit(self, greeting: bytes, peer: socket.socket) -> None:
        for rank in range(1, self._runtime.world_size):
            expected = _greeting(self._runtime, rank)
            if rank not in self._peers and hmac.compare_digest(greeting, expected):
                peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._peers[rank] = peer
                return
        peer.close()  # a stranger, or a rank of another run

    # -- the others --------------------------------------------------------------------------------

    def _await_all(self) -> Sequence[Numbers]:
        if self._middle is None:
            return ()
        packet = _exactly(self._middle, NUMBERS.size * self._runtime.world_size)
        if packet is None:  # rank 0 has finished or died
            self._middle.close()
            self._middle = None
            return ()
        return list(NUMBERS.iter_unpack(packet))

    def _connect(self) -> socket.socket:
        while True:
            left = self._left(f"rank 0 does not answer at {self._runtime.master_addr}")
            try:
                family, address = _address(self._runtime)
                link = socket.socket(family, socket.SOCK_STREAM)
                link.settimeout(min(left, 10.0))
                link.connect(address)
                link.sendall(_greeting(self._runtime, self._runtime.rank))
            except OSError:
                link.close()
                time.sleep(0.02)  # rank 0 does not listen yet
                continue
            link.settimeout(None)
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return link

    def _left(self, complaint: str) -> float:
        left = self._until - time.monotonic()
        if left <= 0:
            runtime = self._runtime
            raise JobError(f"rank {runtime.rank} of {runtime.world_size}: {complaint}")
        return left


def _greeting(runtime: Runtime, rank: int) -> bytes:
    text = f"dlsched 2 {runtime.job} {runtime.run} {rank} {runtime.world_size}"
    return hmac.digest(runtime.run_id.encode(), text.encode(), PROOF)


def _address(runtime: Runtime) -> tuple[socket.AddressFamily, tuple[str, int]]:
    try:
        found = socket.getaddrinfo(
            runtime.master_addr, runtime.master_port, type=socket.SOCK_STREAM
        )
    except OSError as error:
        raise JobError(f"MASTER_ADDR={runtime.master_addr}: {error.strerror}") from None
    family, _, _, _, address = found[0]
    return family, (str(address[0]), int(address[1]))


def _exactly(link: socket.socket, count: int) -> bytes | None:
    """Return `count` bytes, or None when the other side has closed the connection."""
    found = b""
    while len(found) < count:
        try:
            more = link.recv(count - len(found))
        except OSError:
            return None
        if not more:
            return None
        found += more
    return found
