"""Messages to the service manager, systemd: readiness, status and watchdog (sd_notify)."""

from __future__ import annotations

import contextlib
import os
import socket


def notify(*fields: str) -> bool:
    """Send fields such as `READY=1`; return False when no service manager listens."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return False
    if address.startswith("@"):  # an abstract socket
        address = "\0" + address[1:]
    with (
        contextlib.suppress(OSError),
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock,
    ):
        sock.sendto("\n".join(fields).encode(), address)
        return True
    return False


def watchdog_interval_s() -> float | None:
    """Return how often to send `WATCHDOG=1`, in seconds; None when no watchdog waits for it.

    The interval is half of the time after which the service manager restarts this process.
    """
    microseconds = os.environ.get("WATCHDOG_USEC", "0")
    is_ours = os.environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
    interval = int(microseconds) / 2e6 if microseconds.isdigit() and is_ours else 0.0
    return interval or None
