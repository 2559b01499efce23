"""Telling systemd that a service is up and well, where there is one."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket


def notify(text: str) -> None:
    """Say it; silence where nobody listens."""
    path = os.environ.get("NOTIFY_SOCKET", "")
    if not path:
        return
    address = "\0" + path[1:] if path.startswith("@") else path
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
        line.sendto(text.encode(), address)


async def watchdog() -> None:
    """Say that the loop turns, twice in each interval that systemd allows."""
    interval = int(os.environ.get("WATCHDOG_USEC", "0") or 0) / 1e6
    while interval > 0:
        notify("WATCHDOG=1")
        await asyncio.sleep(interval / 2)
