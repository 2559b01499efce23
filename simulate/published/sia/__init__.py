"""Sia: Pollux' loop as its simulator changed it, with GPUs of several types and free moves."""

from __future__ import annotations

from dataclasses import replace

from simulate.published.pollux import POLLUX

SIA = replace(
    POLLUX,
    name="sia",
    source="Sia, SOSP 2023, and its artifact's simulator",
    shape_moves="free",
    option_defaults={
        "rounding": "artifact",
        "placing": "fast",
        "mechanism": "plain",
        "settle": "centre",
    },
    part_defaults={"launch": "profiled"},
    variants={"sia": "simulate.published.sia.policy:PublishedSia"},
)
