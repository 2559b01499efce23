"""Pollux: the round loop of its simulator, in which trainings run as they were measured."""

from __future__ import annotations

from dlsched.core.semantics import Semantics

POLLUX = Semantics(
    name="pollux",
    source="Pollux, OSDI 2021, and its artifact's simulator",
    grid=60.0,
    origin=60.0,
    arrivals="grid",
    release="tick",
    between="none",
    restart_overhead=30.0,
    option_defaults={
        "limits": (57600.0,),
        "clock": "held",
        "equals": "arrival",
    },
    part_defaults={"placement": "roomiest"},
)
