"""Shockwave: Gavel's rounds as its simulator changed them, for jobs that adapt their batch."""

from __future__ import annotations

from dlsched.core.semantics import Semantics
from simulate.published.gavel import GAVEL

SHOCKWAVE = Semantics(
    name="shockwave",
    source="Shockwave, NSDI 2023, and its artifact's simulator",
    grid=120.0,
    drift=True,
    absence=20.0,
    overrun=1.5,
    fruitless=5,
    release="tick",
    between="none",
    option_defaults={**GAVEL.option_defaults, "resolve_s": 1000.0, "alpha": 0.2},
    part_defaults={"placement": "first-free"},
    variants=GAVEL.variants,
)
