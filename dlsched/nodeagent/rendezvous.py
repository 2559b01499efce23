"""MASTER_PORT: one port on the first node that all members of a run know without asking.

It follows from the run id. A keeper on the first node holds its number, and the port itself until
the job is executed; when it cannot, a gang is given up before anything runs and its next run has
another port, and a run on one node takes the next port.
"""

from __future__ import annotations

import binascii

from dlsched.nodeagent import lean_socket

FIRST, COUNT = 20000, 12000  # below the ports that the system gives to clients


class PortTaken(Exception):
    """Somebody has the port of a gang."""


def derived(run_id: str, attempt: int = 0) -> int:
    """The port of a run."""
    return FIRST + (binascii.crc32(run_id.encode()) + attempt * 7919) % COUNT


class HeldPort:
    """A port that no other run on this machine gets as long as this process lives."""

    def __init__(self, run_id: str, *, alone: bool) -> None:
        for attempt in range(64 if alone else 1):
            self.port = derived(run_id, attempt)
            claim = lean_socket.Socket(lean_socket.AF_UNIX, lean_socket.SOCK_DGRAM)
            try:
                claim.bind(f"\0dlsched-port-{self.port}")
                self._bound = self._bind()
            except OSError:
                claim.close()
                continue
            self._claim = claim
            return
        raise PortTaken(f"port {self.port} of the run's first node is taken")

    def _bind(self) -> lean_socket.Socket:
        bound = lean_socket.Socket(lean_socket.AF_INET)
        bound.setsockopt(lean_socket.SOL_SOCKET, lean_socket.SO_REUSEADDR, 1)
        try:
            bound.bind(("0.0.0.0", self.port))
        except OSError:
            bound.close()
            raise
        return bound

    def hand_over(self) -> None:
        """Let the job bind the port; its number stays ours."""
        self._bound.close()
