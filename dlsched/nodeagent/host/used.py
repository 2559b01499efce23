"""What processes that have ended have used."""

from __future__ import annotations

import resource
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Used:
    """Processor time of some processes, and the most memory that one of them had."""

    cpu_s: float = 0.0
    peak_memory_bytes: int = 0

    def __add__(self, other: Used) -> Used:
        """What both have used."""
        peak = max(self.peak_memory_bytes, other.peak_memory_bytes)
        return Used(self.cpu_s + other.cpu_s, peak)


def of_rusage(found: resource.struct_rusage) -> Used:
    """What the kernel says; with a process, it counts the children that it has waited for."""
    return Used(found.ru_utime + found.ru_stime, found.ru_maxrss * 1024)
