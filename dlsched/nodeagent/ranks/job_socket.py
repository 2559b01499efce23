"""The socket between a keeper and the processes of its job.

SO_PEERCRED names the user of each peer; only the job's user and root may connect. A rank that sends
hello is told when to stop; its reports go on to the agent. No packet can harm the keeper: it skips
unknown messages, counts impossible ones, and closes the connection of a peer that sends garbage.
"""

from __future__ import annotations

import contextlib
import os
import resource
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from dlsched.job import messages as words
from dlsched.nodeagent.host import lean_socket

_CREDENTIALS = struct.Struct("3i")
MAX_PEERS = 512
_DESCRIPTORS_OF_PEER = 4  # at most, with its connection


def most_peers() -> int:
    """How many processes may be connected: they get half of the descriptors that a keeper has."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(MAX_PEERS, limit // (2 * _DESCRIPTORS_OF_PEER))


@dataclass(slots=True, eq=False)
class Peer:
    """One connected process."""

    socket: lean_socket.Socket
    pid: int
    rank: int | None = None  # after hello
    capabilities: tuple[str, ...] = ()
    is_foreign: bool = False  # its hello names another run
    streams: list[int] = field(default_factory=list)  # descriptors that it has sent

    def send(self, packet: bytes) -> bool:
        """Send a packet now; return False when the peer must read first. A closed peer loses it."""
        try:
            self.socket.send(packet, lean_socket.MSG_DONTWAIT | lean_socket.MSG_NOSIGNAL)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True

    def send_message(self, message: words.Message) -> None:
        """Send a message; a peer that does not read loses it."""
        with contextlib.suppress(OSError):
            self.socket.send(
                words.encode(message), lean_socket.MSG_DONTWAIT | lean_socket.MSG_NOSIGNAL
            )


class JobSocket:
    """Listens for peers and passes their messages on."""

    def __init__(
        self,
        uid: int,
        run_id: str,
        *,
        on_message: Callable[[Peer, words.FromJob], None],
        on_unclear: Callable[[Peer], None],
    ) -> None:
        """Wait for `listen`.

        Args:
            uid: the job's user.
            run_id: of the run; a peer that names another is foreign.
            on_message: takes each message.
            on_unclear: is called for each packet that cannot be read.
        """
        self._uid, self._run_id = uid, run_id
        self._on_message, self._on_unclear = on_message, on_unclear
        self.listener: lean_socket.Socket | None = None
        self.peers: dict[int, Peer] = {}
        self._most_peers = most_peers()

    def listen(self, path: str) -> lean_socket.Socket:
        """Listen for peers at `path`, and no longer elsewhere; return the listening socket."""
        listener = lean_socket.Socket(
            lean_socket.AF_UNIX, lean_socket.SOCK_SEQPACKET | lean_socket.SOCK_NONBLOCK
        )
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        listener.bind(path)
        os.chmod(path, 0o600)  # nothing connects before it listens
        if os.geteuid() == 0:
            os.chown(path, self._uid, -1)
        listener.listen(64)
        self.listener = listener
        return listener

    def accept(self) -> Peer | None:
        """Accept a process that connects; return None when it may not."""
        if self.listener is None:
            return None
        try:
            connection = lean_socket.accept(self.listener)
        except OSError:
            return None
        raw = connection.getsockopt(
            lean_socket.SOL_SOCKET, lean_socket.SO_PEERCRED, _CREDENTIALS.size
        )
        pid, uid, _ = _CREDENTIALS.unpack(raw)
        if uid not in (self._uid, 0) or len(self.peers) >= self._most_peers:
            connection.close()
            return None
        connection.setblocking(False)
        peer = Peer(connection, pid)
        self.peers[connection.fileno()] = peer
        return peer

    def receive(self, peer: Peer) -> bool:
        """Take one packet; return False when the peer has closed or sends garbage."""
        try:
            packet, fds, flags = lean_socket.recv_fds(peer.socket, words.MAX_MESSAGE, 4)
        except BlockingIOError:
            return True
        except ConnectionResetError:  # told once: it left our messages unread; its own are here
            return True
        except OSError:
            return False
        message: words.FromJob | None = None
        try:
            if not packet:
                return False
            if flags & lean_socket.MSG_TRUNC:
                raise words.BadMessage("longer than any message")
            message = words.decode_from_job(packet)
        except words.BadMessage as error:
            self._on_unclear(peer)
            return isinstance(error, words.Nonsense)
        finally:
            if isinstance(message, words.Hello | words.RunRanks) and not peer.streams:
                most = 3 if isinstance(message, words.RunRanks) else 2  # the third: its input
                peer.streams, fds = fds[:most], fds[most:]
            _close_all(fds)  # only these messages bring descriptors, and only once
        if isinstance(message, words.Hello):
            peer.rank = message.rank
            peer.is_foreign = message.run_id not in ("", self._run_id)
            peer.capabilities = () if peer.is_foreign else message.capabilities
        if message is not None:
            self._on_message(peer, message)
        return True

    def close(self, peer: Peer) -> None:
        """Close the connection of a peer."""
        self.peers.pop(peer.socket.fileno(), None)
        peer.socket.close()
        _close_all(peer.streams)
        peer.streams.clear()

    def able_to(self, capability: str) -> list[Peer]:
        """Return the ranks with a capability, such as `stop`: they stop when they are told to."""
        return [each for each in self.peers.values() if capability in each.capabilities]


def _close_all(fds: Iterable[int]) -> None:
    for fd in fds:
        with contextlib.suppress(OSError):
            os.close(fd)
