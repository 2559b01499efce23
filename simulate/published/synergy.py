"""Synergy: the round loop of its simulator, in which jobs do whole steps."""

from __future__ import annotations

from dataclasses import replace

from dlsched.core.semantics import Semantics

SYNERGY = Semantics(
    name="synergy",
    source="Synergy, OSDI 2022, and its artifact's simulator",
    grid=300.0,
    whole_steps=True,
    arrivals="grid",
    finish="tick",
    release="tick",
    between="none",
    option_defaults={"rebuild": "full", "peers": "in-turn"},
    part_defaults={"placement": "first-free"},
)
SYNERGY_STATIC = replace(SYNERGY, name="synergy-static", origin=1.0)
