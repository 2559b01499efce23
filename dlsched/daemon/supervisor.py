"""The service manager's side: readiness, status and watchdog datagrams (sd_notify)."""

from __future__ import annotations

import contextlib
import os
import socket

__all__ = ["tell", "watchdog_s"]


def tell(*fields: str) -> bool:
    """Send fields like `READY=1`; false when nobody listens."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return False
    if address.startswith("@"):
        address = "\0" + address[1:]
    with (
        contextlib.suppress(OSError),
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock,
    ):
        sock.sendto("\n".join(fields).encode(), address)
        return True
    return False


def watchdog_s() -> float | None:
    """Half of the time within which the watchdog wants to hear; None when there is none."""
    microseconds = os.environ.get("WATCHDOG_USEC", "")
    mine = os.environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
    return int(microseconds) / 2e6 if microseconds.isdigit() and mine else None
