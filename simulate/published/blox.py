"""Blox: the round loop of its simulator, on a grid of 300 s."""

from __future__ import annotations

from dlsched.core.semantics import Semantics

BLOX = Semantics(
    name="blox",
    source="Blox, EuroSys 2024, and its artifact's round loop",
    grid=300.0,
    arrivals="grid",
    finish="tick",
    release="tick",
    between="none",
    moved_counts="preemption",
    rejoin=False,
    option_defaults={
        "misfit": "tail-preempt",
        "service": "time",
        "guard_s": 3_600_000.0,
        # its classes are lower first, 999 by default: here the numbers are negative
        "guard_priority": -1.0,
        "unset_priority": -999.0,
        "ties": "submit",
    },
)
