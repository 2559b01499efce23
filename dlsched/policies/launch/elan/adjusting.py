"""The cost of a resize in which running workers stay and new ones join them.

New workers start while the old ones continue to train. Then all of them stop at the same iteration,
form another group, copy the state, and continue. So a job stops for the adjustment only. While new
workers start, it runs at its old rate; the work that it lacks by then is charged as time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from dlsched.core.cluster.occupancy import Placement
from dlsched.core.options import option
from dlsched.core.stage import LaunchPart
from dlsched.core.units import UnitTable
from dlsched.policies.launch.elan.replication import copies, takes_s

NODE = 1 << 20  # distance of two nodes' GPU numbers, above the GPUs of any node
LOCAL, NETWORK = 0, 1


@dataclass(frozen=True, slots=True, kw_only=True)
class AdjustmentOptions:
    """The parts of an adjustment."""

    fixed_s: float | None = option(
        1.0, "seconds of every adjustment; none: computed from the options below", low=0.0
    )
    group_s: float = option(0.5, "seconds to form a new group of workers", low=0.0)
    state_gb: float = option(
        1.0,
        "GB of parameters and optimiser state where the trace's column state_gb is empty",
        low=0.0,
    )
    local_gb_s: float = option(10.0, "GB/s between GPUs of one node", low=1e-9)
    network_gb_s: float = option(3.0, "GB/s between nodes", low=1e-9)
    startup_s: float = option(20.0, "seconds that new workers start while old ones train", low=0.0)


class ElasticAdjustment(LaunchPart[AdjustmentOptions]):
    """Starts cost the run's restart overhead; resizes and moves of running jobs about a second."""

    name = "elan"
    summary = "running jobs are resized and moved in about a second; starts cost the run's overhead"

    def overhead(self, row: int, placement: Placement, units: UnitTable, usual: float) -> float:
        """The overhead of a start: that of the run."""
        return usual

    def adjustment(
        self,
        row: int,
        before: Placement,
        after: Placement,
        units: UnitTable,
        usual: float,
        slowdown: Callable[[], float],
    ) -> float:
        """Seconds that a change of GPUs costs a running job; never more than a restart."""
        old, new = set(_gpus(before)), set(_gpus(after))
        fresh = sorted(new - old)
        behind = self.options.startup_s * max(1.0 - slowdown(), 0.0) if fresh else 0.0
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
