"""Chronus: the loop of its simulator over minutes, with arrivals every five minutes."""

from __future__ import annotations

from dlsched.core.semantics import Semantics

CHRONUS = Semantics(
    name="chronus",
    source="Chronus, SoCC 2021, and its artifact's simulator",
    arrivals="grid",
    slot=300.0,
    release="tick",
    between="none",
    restart_overhead=30.0,
    owes_restarts=True,
    option_defaults={"clock": "slots"},
    moved_counts="preemption",
    rejoin=False,
    part_defaults={"placement": "count", "launch": "by-size"},
)
