"""The clocks of a machine: one for durations and deadlines, one for times that people read."""

from __future__ import annotations

import time


def boottime() -> float:
    """Return the seconds since the machine was booted, the time it slept included.

    This clock never jumps and is the same in every process of the machine: durations, deadlines
    and timers use it.
    """
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def wall() -> float:
    """Return the seconds since the epoch, UTC: stored and shown, never used to order or time."""
    return time.time()


def boot_id() -> str:
    """Return the kernel's random name of this boot of this machine."""
    with open("/proc/sys/kernel/random/boot_id", encoding="utf-8") as file:
        return file.read().strip()
