"""What a resize costs where running workers stay and new ones come to them.

New workers start while the old ones train on. Then all of them stop at the same iteration, form
another group, copy the state, and go on. A job therefore stands still for the adjustment only; that
it runs at its old pace while new workers start is charged as the time by which it is behind.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from dlsched.core.occupancy import Placement
from dlsched.core.options import option
from dlsched.core.stage import LaunchPart
from dlsched.core.units import UnitTable
from dlsched.policies.launch.elan.replication import copies, takes_s

__all__ = ["ElasticAdjustment"]

NODE = 1 << 20  # apart by more than any node has GPUs
LOCAL, NETWORK = 0, 1


@dataclass(frozen=True, slots=True, kw_only=True)
class AdjustmentOptions:
    """What an adjustment takes."""

    fixed_s: float | None = option(
        1.0, "seconds of an adjustment, whatever it is; none: from the rest", low=0.0
    )
    group_s: float = option(0.5, "seconds to form another group of workers", low=0.0)
    state_gb: float = option(
        1.0, "parameters and optimiser state, where the trace's column state_gb is empty", low=0.0
    )
    local_gb_s: float = option(10.0, "GB a second between GPUs of one node", low=1e-9)
    network_gb_s: float = option(3.0, "GB a second between nodes", low=1e-9)
    startup_s: float = option(20.0, "seconds that new workers start while old ones train", low=0.0)


class ElasticAdjustment(LaunchPart[AdjustmentOptions]):
    """Starts cost the run's restart overhead; resizes and moves of running jobs about a second."""

    name = "elan"
    summary = "running jobs are resized and moved in about a second; starts cost as ever"
    Options: ClassVar[type[Any]] = AdjustmentOptions

    def overhead(self, row: int, placement: Placement, units: UnitTable, usual: float) -> float:
        """Of a start: the run's overhead."""
        return usual

    def adjustment(
        self,
        row: int,
        before: Placement,
        after: Placement,
        units: UnitTable,
        usual: float,
        pace: Callable[[], float],
    ) -> float:
        """Of a running job that changes its GPUs; never more than stopping and starting it."""
        old, new = set(_gpus(before)), set(_gpus(after))
        fresh = sorted(new - old)
        behind = self.options.startup_s * max(1.0 - pace(), 0.0) if fresh else 0.0
        return min(self._pause(row, sorted(old), fresh, units) + behind, usual)

    def _pause(self, row: int, old: list[int], fresh: list[int], units: UnitTable) -> float:
        options = self.options
        if options.fixed_s is not None:
            return options.fixed_s
        column = units.extra.get("state_gb")
        own = math.nan if column is None else float(column[row])
        state = options.state_gb if math.isnan(own) else own
        planned = copies(old, fresh, _level)
        return options.group_s + takes_s(planned, state, (options.local_gb_s, options.network_gb_s))


def _gpus(placement: Placement) -> list[int]:
    found = []
    for node, mask in zip(placement.nodes, placement.masks, strict=True):
        found += [node * NODE + gpu for gpu in range(mask.bit_length()) if mask >> gpu & 1]
    return found


def _level(one: int, other: int) -> int:
    return LOCAL if one // NODE == other // NODE else NETWORK
