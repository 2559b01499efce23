"""The clock of a node: it counts sleep and pauses, never jumps, and is equal in every process."""

from __future__ import annotations

import time

from dlsched.protocol.messages import BootId


def now() -> float:
    """Seconds since the machine was booted, sleep included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def boot_id() -> BootId:
    """Names this boot of this machine."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return BootId(file.read().strip())
