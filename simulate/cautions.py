"""Things about a run that its reader should know before believing it."""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from dlsched.core.arrays import Floats
from dlsched.core.round import Parts
from dlsched.core.units import UnitTable

__all__ = ["cautions", "distribution_distance"]

FAR_APART = 0.25  # Kolmogorov-Smirnov distance from which a sample does not describe a trace


def distribution_distance(one: Floats, other: Floats) -> float:
    """Kolmogorov-Smirnov distance: the largest gap between two cumulative distributions."""
    values = np.concatenate([one, other])
    gap = np.searchsorted(np.sort(one), values, side="right") / len(one)
    gap = gap - np.searchsorted(np.sort(other), values, side="right") / len(other)
    return float(np.abs(gap).max())


def cautions(parts: Parts, units: UnitTable, true_work: Floats) -> list[str]:
    """Sentences about samples that do not describe the trace."""
    said: list[str] = []
    service = true_work * units.gang
    for f in fields(parts.scheduling.options):
        sample = getattr(parts.scheduling.options, f.name)
        if not f.metadata.get("from_file") or not sample or not len(service):
            continue
        distance = distribution_distance(np.array(sample), service)
        if distance > FAR_APART:
            said.append(
                f"{parts.scheduling.name}: the {f.name} does not describe this trace's GPU-seconds "
                f"(the distributions are {distance:.0%} apart); what it teaches may mislead"
            )
    return said
