"""Restart overhead: seconds on GPUs without progress after a start."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dlsched.core.cluster.occupancy import Placement
from dlsched.core.options import NoOptions, option
from dlsched.core.stage import LaunchPart
from dlsched.core.units import UnitTable


class ConstantOverhead(LaunchPart[NoOptions]):
    """Every job takes the run's restart overhead (`--restart-overhead`)."""

    name = "constant"
    summary = "every start costs the run's restart overhead (default)"
    usual = True

    def overhead(self, row: int, placement: Placement, units: UnitTable, usual: float) -> float:
        """The run's overhead, in seconds."""
        return usual


class OverheadBySize(LaunchPart[NoOptions]):
    """Large gangs take longer: the run's restart overhead × (1 + log2 GPUs)."""

    name = "by-size"
    summary = "a start costs the run's restart overhead × (1 + log2 GPUs)"

    def overhead(self, row: int, placement: Placement, units: UnitTable, usual: float) -> float:
        """The overhead of so many GPUs, in seconds."""
        return usual * (1.0 + math.log2(placement.gpus))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfiledOptions:
    """Each job's own overhead."""

    column: str = option(
        "restart_overhead", "the trace's column with the seconds that a start of the job takes"
    )
    per_node: float = option(0.0, "additional seconds for each node after the first", low=0.0)


class ProfiledOverhead(LaunchPart[ProfiledOptions]):
    """The overhead of a job comes from its own column, plus some seconds for each further node.

    Checkpoints and start-up differ between models (Tiresias and Sia measured seconds to minutes). A
    job with an empty column has the run's overhead.
    """

    name = "profiled"
    summary = "a start costs the seconds in the job's own column, plus seconds per further node"

    def overhead(self, row: int, placement: Placement, units: UnitTable, usual: float) -> float:
        """The job's overhead on this placement, in seconds."""
        column = units.extra.get(self.options.column)
        own = float(column[row]) if column is not None else math.nan
        base = usual if math.isnan(own) else max(own, 0.0)
        return base + self.options.per_node * (len(placement.nodes) - 1)
