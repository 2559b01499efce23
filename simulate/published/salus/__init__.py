"""Salus: our rounds, with the lanes of its published code in place of the paper's."""

from __future__ import annotations

from dataclasses import replace

from dlsched.core.semantics import ROUNDS

SALUS = replace(
    ROUNDS,
    name="salus",
    source="Salus, MLSys 2020, and its published code",
    variants={"salus": "simulate.published.salus.policy:PublishedSalus"},
)
