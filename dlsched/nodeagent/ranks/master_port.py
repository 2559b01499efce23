"""MASTER_PORT: one port on the first node that all nodes of a run know without asking.

It follows from the run id. The keeper on the first node reserves the number as long as it lives,
and binds the port itself until the job is executed. When the port is taken, a run on one node takes
the next one; a gang is given up before anything runs, and its next run has another port.
"""

from __future__ import annotations

import binascii

from dlsched.nodeagent.host import lean_socket

FIRST, COUNT = 20000, 12000  # below the ports that the system gives to clients


class PortTaken(Exception):
    """The port of a gang is in use."""


def port_of(run_id: str, attempt: int = 0) -> int:
    """Return the port of a run; `attempt` counts the ports tried before."""
    return FIRST + (binascii.crc32(run_id.encode()) + attempt * 7919) % COUNT


class HeldPort:
    """A port that no other run on this machine gets as long as this process lives."""

    def __init__(self, run_id: str, *, alone: bool) -> None:
        """Reserve the port of a run; one on a single node (`alone`) may take another port.

        Raises:
            PortTaken: when the port is in use.
        """
        for attempt in range(64 if alone else 1):
            self.port = port_of(run_id, attempt)
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
        """Unbind the port, so that the job can bind it; the number stays reserved."""
        self._bound.close()
