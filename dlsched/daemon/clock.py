"""The two clocks: one that counts pauses and never jumps, and one for display."""

from __future__ import annotations

import time

__all__ = ["boottime", "wall"]


def boottime() -> float:
    """Seconds that also pass while the machine sleeps; durations and timers come from here."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def wall() -> float:
    """Seconds since the epoch, UTC: shown and stored, never used to order or time anything."""
    return time.time()
