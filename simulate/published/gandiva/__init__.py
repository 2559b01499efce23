"""Gandiva as Tiresias' simulator reduces it: the policy counts what jobs have done itself."""

from __future__ import annotations

from dlsched.core.semantics import Semantics

GANDIVA = Semantics(
    name="gandiva",
    source="Gandiva, OSDI 2018, as Tiresias' simulator reduces it",
    grid=None,
    between="full",
    ends="policy",
    variants={"gandiva": "simulate.published.gandiva.policy:ReducedPolicy"},
)
