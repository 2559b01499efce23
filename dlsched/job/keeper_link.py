"""The rank's end of its keeper's socket. It never blocks training and never fails it.

A keeper that cannot be reached, or that goes away, leaves a job that runs on as if alone: the
keeper's own death ends the job by other means. A forked child (a data-loading worker) has no link.
"""

from __future__ import annotations

import os
import socket
import sys
from collections import deque

from dlsched.job.messages import (
    MAX_MESSAGE,
    BadMessage,
    FromKeeper,
    Hello,
    Message,
    decode_from_keeper,
    encode,
)

__all__ = ["CAPABILITIES", "KeeperLink"]

CAPABILITIES = ("stop", "stop_at", "checkpoint", "metrics", "use_batch")
MOST_WAITING = 64  # messages that must arrive and could not be sent yet


class KeeperLink:
    """A connection that says hello, sends what it can and tells what has come."""

    def __init__(self, path: str, rank: int, run_id: str = "") -> None:
        self._owner = os.getpid()
        self._unsent: deque[bytes] = deque(maxlen=MOST_WAITING)
        self._socket: socket.socket | None = None
        if path:
            self._open(path, rank, run_id)

    def _open(self, path: str, rank: int, run_id: str) -> None:
        link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
        try:
            link.connect(path)
            hello = Hello(rank=rank, capabilities=CAPABILITIES, pid=os.getpid(), run_id=run_id)
            link.send(encode(hello))
        except OSError as error:
            link.close()
            print(f"dlsched.job: no keeper at {path}: {error.strerror}", file=sys.stderr)
            return
        self._socket = link

    @property
    def is_open(self) -> bool:
        """Whether there is a keeper to talk to, from this process."""
        return self._socket is not None and os.getpid() == self._owner

    def send(self, message: Message, *, must_arrive: bool = False) -> None:
        """Send at once or not at all; what must arrive is tried again with what follows."""
        if not self.is_open:
            return
        packet = encode(message)
        if must_arrive:
            self._unsent.append(packet)
        elif not self._unsent:
            self._try(packet)
        self._flush()

    def receive(self) -> list[FromKeeper]:
        """What has come since the last call, in order; at once."""
        self._flush()
        found: list[FromKeeper] = []
        while (packet := self._next_packet()) is not None:
            try:
                message = decode_from_keeper(packet)
            except BadMessage as error:
                print(f"dlsched.job: the keeper said what I cannot read: {error}", file=sys.stderr)
                continue
            if message is not None:
                found.append(message)
        return found

    def wait(self, timeout_s: float) -> None:
        """Until something has come, the keeper is gone or the time is over."""
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

    def close(self) -> None:
        """Hang up; harmless when repeated."""
        if self._socket is not None and os.getpid() == self._owner:
            self._socket.close()
            self._socket = None

    def _next_packet(self) -> bytes | None:
        if not self.is_open or self._socket is None:
            return None
        try:
            packet = self._socket.recv(MAX_MESSAGE, socket.MSG_DONTWAIT)
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
