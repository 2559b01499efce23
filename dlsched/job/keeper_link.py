"""The rank's end of its keeper's socket. It never blocks or fails the training.

When the keeper cannot be reached or closes the connection, the job runs on as if it were alone: the
keeper's own death ends the job by other means. A forked child (a data-loading worker) has no link.
"""

from __future__ import annotations

import os
import select
import socket
import sys
from collections import deque

from dlsched.job import messages as words
from dlsched.job.gang.hand_over import Receiver
from dlsched.job.stacks import offer

CAPABILITIES = (
    *("stop", "stop_at", "checkpoint", "metrics", "use_batch", "processors", "limit"),
    "take_over",
)
STACKS = "stacks"  # the further one of a rank that can write them
MOST_WAITING = 64  # messages that must arrive and could not be sent yet


class KeeperLink:
    """The connection of one rank to its keeper."""

    def __init__(self, path: str, rank: int, run_id: str = "") -> None:
        """Connect and send hello; an empty path says that there is no keeper."""
        self._owner = os.getpid()
        self._unsent: deque[bytes] = deque(maxlen=MOST_WAITING)
        self._socket: socket.socket | None = None
        if path:
            self._open(path, rank, run_id)

    def _open(self, path: str, rank: int, run_id: str) -> None:
        link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
        try:
            link.connect(path)
            stacks = offer()
            capable = (*CAPABILITIES, STACKS) if stacks is not None else CAPABILITIES
            hello = words.Hello(rank=rank, capabilities=capable, pid=os.getpid(), run_id=run_id)
            socket.send_fds(link, [words.encode(hello)], [] if stacks is None else [stacks])
        except OSError as error:
            link.close()
            print(f"dlsched.job: no keeper at {path}: {error.strerror}", file=sys.stderr)
            return
        self._socket = link

    @property
    def is_open(self) -> bool:
        """Whether this process is connected to a keeper."""
        return self._socket is not None and os.getpid() == self._owner

    def send(self, message: words.Message, *, must_arrive: bool = False) -> None:
        """Send a message at once or not at all; one that must arrive is tried again later."""
        if not self.is_open:
            return
        packet = words.encode(message)
        if must_arrive:
            self._unsent.append(packet)
        elif not self._unsent:
            self._try(packet)
        self._flush()

    def receive(self) -> list[words.FromKeeper]:
        """Return the messages that have arrived since the last call, in order; does not wait."""
        self._flush()
        found: list[words.FromKeeper] = []
        while (packet := self._next_packet()) is not None:
            try:
                message = words.decode_from_keeper(packet)
            except words.BadMessage as error:
                print(f"dlsched.job: unreadable message of the keeper: {error}", file=sys.stderr)
                continue
            if message is not None:
                found.append(message)
        return found

    def wait(self, timeout_s: float) -> None:
        """Wait until a message has arrived, the keeper is gone or the time is over."""
        if self.is_open and self._socket is not None:
            self._socket.settimeout(max(0.001, timeout_s))
            try:
                self._socket.recv(1, socket.MSG_PEEK)
            except TimeoutError:
                pass
            except OSError:
                self.close()
            finally:
                if self._socket is not None:
                    self._socket.settimeout(None)

    def wait_with(self, other: Receiver, timeout_s: float) -> bool:
        """Wait for a message, or until something else is readable; returns whether that is."""
        here: list[socket.socket | Receiver] = [other]
        if self.is_open and self._socket is not None:
            here.append(self._socket)
        return other in select.select(here, [], [], timeout_s)[0]

    def close(self) -> None:
        """Close the connection; harmless when repeated."""
        if self._socket is not None and os.getpid() == self._owner:
            self._socket.close()
            self._socket = None

    def _next_packet(self) -> bytes | None:
        if not self.is_open or self._socket is None:
            return None
        try:
            packet = self._socket.recv(words.MAX_MESSAGE, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return None
        except OSError:
            packet = b""
        if not packet:
            self.close()
            return None
        return packet

    def _flush(self) -> None:
        while self._unsent and self._try(self._unsent[0]):
            self._unsent.popleft()

    def _try(self, packet: bytes) -> bool:
        if not self.is_open or self._socket is None:
            return False
        try:
            self._socket.send(packet, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except BlockingIOError:
            return False
        except OSError:
            self.close()
            return False
        return True
