"""Gavel: the round loop of its simulator, in which jobs do whole steps."""

from __future__ import annotations

from dlsched.core.semantics import Semantics

GAVEL = Semantics(
    name="gavel",
    source="Gavel, OSDI 2020, and its artifact's simulator",
    grid=360.0,
    drift=True,
    release="tick",
    between="none",
    option_defaults={
        "mechanism": "published",
        "resolve_s": 1920.0,
        "settle": "published",
    },
    part_defaults={"placement": "first-free"},
    variants={
        "gavel": "simulate.published.gavel.policy:PublishedGavel",
        "gandiva-fair": "simulate.published.shockwave.gandiva_fair:EqualSharesInRounds",
    },
)
