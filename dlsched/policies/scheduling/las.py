"""Least attained service first: the job with the least service runs; durations are not needed.

As in Tiresias (NSDI 2019) and Blox (EuroSys 2024). Attained service is GPU-seconds received, or
seconds on GPUs whatever their number (`service=time`, as Blox counts it). Meant for
rounds: in continuous time equal jobs would alternate infinitely fast, so with `--clock events`
decisions are taken only when something changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from dlsched.core.arrays import Floats
from dlsched.core.context import RoundContext
from dlsched.core.options import option
from dlsched.core.units import Units, UnitTable
from dlsched.policies.scheduling.key_order import KeyOptions, KeyOrder


@dataclass(frozen=True, slots=True, kw_only=True)
class LasOptions(KeyOptions):
    """Least attained service."""

    service: Literal["gpu-time", "time"] = option(
        "gpu-time", "unit of attained service: GPU-seconds, or seconds on GPUs"
    )


class Las(KeyOrder[LasOptions]):
    """Order by attained service; ties in order of admission."""

    name = "las"
    summary = "least attained service first, preemptive"

    def fill_key(self, row: int, table: UnitTable) -> float:
        """Attained service, which stands still while a row waits."""
        service = table.held_s if self.options.service == "time" else table.attained
        return service.item(row)

    def key(self, units: Units, ctx: RoundContext) -> tuple[Floats, Floats]:
        """Attained service, which grows as the job runs."""
        if self.options.service == "time":
            return units.held_s, np.ones(len(units))
        return units.attained, units.counted_gpus
