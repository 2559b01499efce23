"""Salus: jobs get into lanes of a GPU's memory, on the GPU that they leave the least of.

Decides which waiting jobs start, and beside which others. Jobs are looked at in the order of the
queue; one that no GPU has room for waits, and those behind it may pass. A job that has started is
never interrupted. A job whose memory is not known has its GPUs alone. Whose iteration runs on a GPU
is decided there, in each moment (`dlsched.policies.node.salus`).

Source: Yu, Chowdhury, "Salus: Fine-Grained GPU Sharing Primitives for Deep Learning Applications",
MLSys 2020. The paper has one GPU; choosing among several by best fit is ours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from dlsched.core.allocation import Refused
from dlsched.core.arrays import Floats, Rows
from dlsched.core.cluster.occupancy import Placement
from dlsched.core.context import RoundContext
from dlsched.core.options import option
from dlsched.core.scheduling import SchedulingPolicy
from dlsched.core.sums import ordered_sum
from dlsched.core.units import Units
from dlsched.core.walk.co_location import may_join
from dlsched.core.walk.walk import Walk
from dlsched.policies.node.salus.lane_table import (
    MIB_OF_GIB,
    LaneTable,
    TakesTurns,
    TurnRules,
    memories,
    takes_turns,
)
from dlsched.policies.node.salus.lanes import AnyLanes, Lanes
from dlsched.policies.node.salus.turns import Order
from dlsched.policies.scheduling.ordering import order_by

Queue = Literal["fifo", "sjf", "las"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SalusOptions:
    """Lanes of GPU memory, and turns by iteration."""

    queue: Queue = option("fifo", "waiting jobs by submit time, predicted work or attained service")
    turns: Order = option("srtf", "which job of a lane runs its next iteration")
    conserves_work: bool = option(
        False, "`fifo` and `srtf` go on with the next job when the first wants no iteration"
    )
    reserved_mib: float = option(300.0, "MiB of each GPU that no job gets", low=0)
    free_first: bool = option(False, "a job gets GPUs of its own while there are any")


class Salus(SchedulingPolicy[SalusOptions], TakesTurns):
    """Lanes on the GPU that is left the least, and turns within each lane.

    Attributes:
        lanes: their rules say which job gets into which lane.
    """

    lanes: ClassVar[type[AnyLanes]] = Lanes
    name = "salus"
    summary = "jobs take turns by iteration, in lanes of each GPU's memory"
    at_limits = "tries"

    def __init__(self, options: SalusOptions) -> None:
        super().__init__(options)
        self.turns = TurnRules(
            order=options.turns,
            conserves_work=options.conserves_work,
            lanes=self.lanes,
            reserved_mib=options.reserved_mib,
        )
        self._lanes = LaneTable(self.turns)
        self.memories = (self._lanes,)

    @property
    def pairs_units(self) -> bool:
        """It decides which jobs share GPUs."""
        return True

    def allocate(self, units: Units, ctx: RoundContext, walk: Walk) -> None:
        """Give each waiting job the GPUs with the best fit, in the order of the queue."""
        occupancy, memory = ctx.occupancy, memories(ctx.table)
        self._lanes.follow(occupancy, memory)
        walk.stable_until(math.inf)
        waiting = units[~walk.runs(units)]
        for row in waiting.rows[self._order(waiting)].tolist():
            known = takes_turns(memory, row)
            need: tuple[float, float] = tuple(memory[row].tolist())
            where = self._best(row, need, ctx, walk) if known else walk.place(row)
            if isinstance(where, Refused):
                walk.refuse(row, where)
                continue
            if not known:  # it has its GPUs alone
                continue
            capacity = self._lanes.capacity(where, occupancy)
            self._lanes.come(row, where, self._lanes.need(*need, capacity), capacity)
            walk.output("lane", row, float(self._lanes.lane_of(row)))

    def _order(self, waiting: Units) -> Rows:
        keys: dict[Queue, Floats | None] = {
            "fifo": None,
            "sjf": waiting.predicted_work,
            "las": waiting.attained,
        }
        return order_by(keys[self.options.queue], waiting.submit_time)

    def _best(
        self, row: int, need: tuple[float, float], ctx: RoundContext, walk: Walk
    ) -> Placement | Refused:
        """Start a row where the least memory is left; says where, or why it waits."""
        lanes, occupancy = self._lanes, ctx.occupancy
        best: tuple[float, int] | None = None
        holders = {where: other for other, where in occupancy.held.items()}  # the last of each
        for where, holder in holders.items() if ctx.may_share else ():
            if where not in lanes.lanes or not may_join(row, holder, walk):
                continue
            capacity = lanes.capacity(where, occupancy)
            left = lanes.left_after(where, lanes.need(*need, capacity), capacity)
            if left is not None and (best is None or left < best[0]):
                best = left, holder
        if best is None or self.options.free_first or self._left_alone(need, ctx) < best[0]:
            placed = walk.place(row)
            if not isinstance(placed, Refused) or best is None:
                return placed
        return walk.share(row, best[1])

    def _left_alone(self, need: tuple[float, float], ctx: RoundContext) -> float:
        """MiB that are left of the smallest GPU that is free; infinite where none is."""
        lanes, occupancy = self._lanes, ctx.occupancy
        if not occupancy.free_total:
            return math.inf
        sizes = [
            float(occupancy.cluster.gpu_memory[code]) * MIB_OF_GIB - self.turns.reserved_mib
            for code in {
                occupancy.type_of.item(node) for node, free in enumerate(occupancy.free) if free
            }
        ]
        left = [size - ordered_sum(lanes.need(*need, size)) for size in sizes]
        return min((each for each in left if each >= 0), default=math.inf)
