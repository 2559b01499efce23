"""Jobs that share GPUs slow each other down as far as they need more than the whole of them.

A job uses its GPU for a part u of the time while it runs alone. Jobs that may run for parts s of
the time ask for Σ u·s of it together, and what is above 1 is lost: k = max(0, Σ u·s − 1).

Source: the model by which AntMan (OSDI 2020) is simulated here; see docs/policies/sharing.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dlsched.core.arrays import Floats
from dlsched.core.speed.interference import of_others


class LoadedGpus:
    """Groups of any size, by the measured use of a GPU by each unit alone."""

    name = "utilisation"
    most_together = math.inf

    def __init__(self, utilisation: Floats) -> None:
        """Take the part of the time for which each unit uses its GPUs alone; NaN: not known."""
        self._utilisation = utilisation

    def relative(self, rows: Sequence[int], limits: Floats, gpu_type: str, gpus: int) -> Floats:
        """A unit of limit s takes (1 + k × the largest limit of the others) / s times as long."""
        load = float((self._utilisation[list(rows)] * limits).sum())
        if len(rows) == 1:
            return limits
        excess = np.maximum(load - 1.0, 0.0)
        found: Floats = limits / (1.0 + excess * of_others(limits))
        return found
