"""Muri: the event loop of its simulator, in which every change costs all running jobs time."""

from __future__ import annotations

from dlsched.core.semantics import Semantics

MURI = Semantics(
    name="muri",
    source="Muri, SIGCOMM 2022, and its artifact's simulator",
    grid=None,
    between="full",
    overhead="every-change",
    restart_overhead=10.0,
    option_defaults={
        "ties": "published",
        "rebuild": "full",
        "clock": "held",
    },
    part_defaults={"placement": "yarn"},
    variants={"tiresias": "simulate.published.muri.tiresias:WholeSeconds"},
)
