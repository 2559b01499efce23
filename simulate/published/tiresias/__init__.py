"""Tiresias: the event loop of its simulator, which has formulas of its own."""

from __future__ import annotations

from dlsched.core.semantics import Semantics

TIRESIAS = Semantics(
    name="tiresias",
    source="Tiresias, NSDI 2019, and its artifact's simulator",
    grid=None,
    between="full",
    part_defaults={"placement": "count"},
    variants={"tiresias": "simulate.published.tiresias.policy:PublishedTiresias"},
)
