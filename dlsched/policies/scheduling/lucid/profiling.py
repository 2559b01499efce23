"""The queue of Lucid's profiling stage: fewest GPUs first, and one more node while it is long."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dlsched.core.allocation import Refused
from dlsched.core.arrays import Bools, Floats, Rows
from dlsched.core.cluster.occupancy import Occupancy, lowest_node
from dlsched.core.memory import Remembering, kept, memory
from dlsched.core.walk.room_under_limits import OVER_LIMIT
from dlsched.core.walk.walk import Walk
from dlsched.policies.scheduling.lucid.arrivals import ArrivalForecast

GROW_S, SHRINK_S = 10.0, 100.0  # seconds between two looks
LONG, SHORT = 10, 5  # waiting jobs above and below which it grows and shrinks
FEW_SLOTS = 5.0  # predicted GPUs in a slot, over those of the stage, up to which it shrinks


class ProfilingQueue(Remembering):
    """Places jobs on the nodes that profile.

    Attributes:
        began: when the policy began to decide, in seconds; NaN before.
        extra: the further node that it uses now, as a bit; 0 for none.
        changes: what it lent and gave back so far: seconds, and +1 or -1.
    """

    began: float = kept(math.nan)
    extra: int = kept(0)
    changes: list[tuple[float, int]] = kept(list, lambda stored: [(at, by) for at, by in stored])
    _look_at: float = kept(math.inf)  # when to look again whether to borrow or to give back

    def begin(self, now: float) -> None:
        """A decision is made; the first one is remembered."""
        if math.isnan(self.began):
            self.began = now

    def start(self, rows: Rows, nodes: int, walk: Walk) -> tuple[list[int], list[int]]:
        """Place rows, those with the fewest GPUs first, up to the first that does not fit.

        Args:
            rows: those that wait, in order of arrival.
            nodes: that profile, as bits.
            walk: of the decision.

        Returns:
            the rows that still wait, and those for which the nodes are too few even when idle.
        """
        never: list[int] = []
        order: list[int] = rows[np.argsort(walk.table.gang[rows], kind="stable")].tolist()
        for place, row in enumerate(order):
            placed = walk.place(row, nodes=nodes | self.extra)
            if not isinstance(placed, Refused) or placed is OVER_LIMIT:
                continue
            if are_idle(nodes & walk.ctx.pools.nodes[walk.table.pool.item(row)], walk.occupancy):
                never.append(row)
                continue
            for behind in order[place:]:
                walk.refuse(behind, Refused("Profiling", "waits for a node that profiles"))
            return order[place:], never
        return [], never

    def scale(
        self, waiting: int, spare: int, gpus: int, forecast: ArrivalForecast, walk: Walk
    ) -> None:
        """Borrow a node, or give it back, and say when to look again.

        Args:
            waiting: how many rows wait.
            spare: nodes that could be borrowed, all of them idle, as bits.
            gpus: of the nodes that profile.
            forecast: of the load.
            walk: of the decision.
        """
        now = walk.ctx.now
        if not self.extra and waiting > LONG:
            if spare and self._is_due(now, GROW_S):
                self.extra = 1 << (spare.bit_length() - 1)
                self._change(now, +1, SHRINK_S)
                walk.stable_until(-math.inf)  # there is room at once
            else:
                self._look_at = after(now, GROW_S)
        elif self.extra:
            due, occupancy = self._is_due(now, SHRINK_S), walk.occupancy
            node = lowest_node(self.extra)
            is_idle = occupancy.free[node].bit_count() == occupancy.cluster.gpus[node]
            if due and waiting < SHORT and is_idle and forecast.gpus(now) <= FEW_SLOTS * gpus:
                self.extra = 0
                self._change(now, -1, math.inf)
            else:
                self._look_at = after(now, SHRINK_S)
        else:
            self._look_at = math.inf
        walk.wake_at(self._look_at)

    def _is_due(self, now: float, step: float) -> bool:
        return now % step == 0 or now >= self._look_at

    def _change(self, now: float, by: int, step: float) -> None:
        self.changes.append((now, by))
        self._look_at = after(now, step) if step < math.inf else math.inf


NEW, PROFILING, PROFILED, UNPROFILED = 0, 1, 2, 3


class ProfiledRows(Remembering):
    """Which rows are profiled or were, what was seen of them, and which began beside another."""

    _stage: NDArray[np.int8] = memory(NEW, np.int8)
    _seen: Bools = memory(False)
    _joined: Bools = memory(False)  # began beside another
    _score: Floats = memory(math.nan)  # packing class, as it was known last
    _memory: Floats = memory(math.nan)  # GiB on each GPU, likewise

    def see(self, rows: Rows) -> Rows:
        """Those of some rows that were not seen before."""
        new: Rows = rows[~self._seen[rows]]
        self._seen[new] = True
        return new

    def of(self, rows: Rows, stage: int) -> Bools:
        """Which of some rows are at a stage: new, profiling, profiled, or never."""
        return np.asarray(self._stage[rows] == stage)

    def enter(self, row: int, stage: int) -> None:
        """A row is at a stage from now on."""
        self._stage[row] = stage

    def joins(self, row: int) -> None:
        """A row begins beside another."""
        self._joined[row] = True

    def joined(self, rows: Rows) -> Bools:
        """Which of some rows began beside another."""
        found: Bools = self._joined[rows]
        return found

    def remembered(self, name: Literal["score", "memory"], now: Floats) -> Floats:
        """What is known of each row now, or was before: a node that is away says nothing."""
        column = self._score if name == "score" else self._memory
        known = ~np.isnan(now)
        column[: len(now)][known] = now[known]
        return column[: len(now)]


def are_idle(nodes: int, occupancy: Occupancy) -> bool:
    """Does no row hold a GPU of these nodes, as far as they are in service?"""
    nodes &= occupancy.open_nodes
    return occupancy.free_in(nodes) == occupancy.capacity_in(nodes)


def after(now: float, step: float) -> float:
    """The first multiple of `step` after now."""
    return (math.floor(now / step) + 1) * step
