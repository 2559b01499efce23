"""The socket between a keeper and the processes of its job.

Who connects is what SO_PEERCRED says; only the job's user and root are heard. A rank that says
hello is told when to leave; what it tells goes on to the agent. No packet can hurt the keeper: what
it does not understand it skips, nonsense it counts, and a peer that sends garbage is hung up on.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

from dlsched.job import messages as words
from dlsched.nodeagent import lean_socket

_CREDENTIALS = struct.Struct("3i")
MAX_PEERS = 512


@dataclass(slots=True, eq=False)
class Peer:
    """One connected process."""

    socket: lean_socket.Socket
    pid: int
    rank: int | None = None  # after hello
    capabilities: tuple[str, ...] = ()
    is_foreign: bool = False  # it says that it is of another run
    streams: list[int] = field(default_factory=list)  # descriptors that a caller has sent

    def send(self, packet: bytes) -> bool:
        """Send if it can be taken now; a peer that has gone takes everything."""
        try:
            self.socket.send(packet, lean_socket.MSG_DONTWAIT | lean_socket.MSG_NOSIGNAL)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True

    def say(self, message: words.Message) -> None:
        """Send; a peer that does not read misses it."""
        with contextlib.suppress(OSError):
            self.socket.send(
                words.encode(message), lean_socket.MSG_DONTWAIT | lean_socket.MSG_NOSIGNAL
            )


class JobSocket:
    """Listens, knows its peers, hands their words on."""

    def __init__(
        self,
        path: str,
        uid: int,
        run_id: str,
        heard: Callable[[Peer, words.FromJob], None],
        unread: Callable[[Peer], None],
    ) -> None:
        """Listen.

        Args:
            path: of the socket.
            uid: the job's user.
            run_id: of the run; who names another is foreign.
            heard: takes what can be read.
            unread: counts what cannot.
        """
        self._uid, self._run_id, self._heard, self._unread = uid, run_id, heard, unread
        self.listener = lean_socket.Socket(
            lean_socket.AF_UNIX, lean_socket.SOCK_SEQPACKET | lean_socket.SOCK_NONBLOCK
        )
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        self.listener.bind(path)
        os.chmod(path, 0o666)  # the way is open, the credentials decide
        self.listener.listen(64)
        self.peers: dict[int, Peer] = {}

    def accept(self) -> Peer | None:
        """A process has connected; None when it may not."""
        try:
            connection = lean_socket.accept(self.listener)
        except OSError:
            return None
        raw = connection.getsockopt(
            lean_socket.SOL_SOCKET, lean_socket.SO_PEERCRED, _CREDENTIALS.size
        )
        pid, uid, _ = _CREDENTIALS.unpack(raw)
        if uid not in (self._uid, 0) or len(self.peers) >= MAX_PEERS:
            connection.close()
            return None
        connection.setblocking(False)
        peer = Peer(connection, pid)
        self.peers[connection.fileno()] = peer
        return peer

    def receive(self, peer: Peer) -> bool:
        """Take one packet; False when the peer has gone or sends garbage."""
        try:
            packet, fds, flags = lean_socket.recv_fds(peer.socket, words.MAX_MESSAGE, 4)
        except BlockingIOError:
            return True
        except OSError:
            return False
        peer.streams.extend(fds)
        if not packet:
            return False
        try:
            if flags & lean_socket.MSG_TRUNC:
                raise words.BadMessage("longer than any message")
            message = words.decode_from_job(packet)
        except words.BadMessage as error:
            self._unread(peer)
            return isinstance(error, words.Nonsense)
        if isinstance(message, words.Hello):
            peer.rank = message.rank
            peer.is_foreign = message.run_id not in ("", self._run_id)
            peer.capabilities = () if peer.is_foreign else message.capabilities
        if message is not None:
            self._heard(peer, message)
        return True

    def close(self, peer: Peer) -> None:
        """Hang up on a peer."""
        self.peers.pop(peer.socket.fileno(), None)
        peer.socket.close()
        for fd in peer.streams:
            with contextlib.suppress(OSError):
                os.close(fd)
        peer.streams.clear()

    def stoppable(self) -> list[Peer]:
        """The ranks that leave by themselves when told."""
        return [each for each in self.peers.values() if "stop" in each.capabilities]
