"""The queue of Lucid's profiling stage: fewest GPUs first, and one more node while it is long."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dlsched.core.allocation import Refused
from dlsched.core.arrays import Bools, Floats, Rows, carried
from dlsched.core.cluster.occupancy import Occupancy, lowest_node
from dlsched.core.walk.walk import Walk
from dlsched.policies.scheduling.lucid.arrivals import ArrivalForecast

GROW_S, SHRINK_S = 10.0, 100.0  # seconds between two looks
LONG, SHORT = 10, 5  # waiting jobs above and below which it grows and shrinks
FEW_SLOTS = 5.0  # predicted GPUs in a slot, over those of the stage, up to which it shrinks


class ProfilingQueue:
    """Places jobs on the nodes that profile.

    Attributes:
        began: when the policy began to decide, in seconds; NaN before.
        extra: the further node that it uses now, as a bit; 0 for none.
        changes: what it lent and gave back so far: seconds, and +1 or -1.
    """

    def __init__(self) -> None:
        self.began = math.nan
        self.extra = 0
        self.changes: list[tuple[float, int]] = []
        self._look_at = math.inf  # when to look again whether to borrow or to give back

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
            if not isinstance(placed, Refused):
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

    def state_dict(self) -> dict[str, Any]:
        """The borrowed node, and what was borrowed before."""
        changes = [list(each) for each in self.changes]
        return {
            "began": self.began,
            "extra": self.extra,
            "changes": changes,
            "look_at": self._look_at,
        }

    def load_state_dict(self, state: Any) -> None:
        """Continue from a `state_dict`."""
        self.began, self._look_at = float(state["began"]), float(state["look_at"])
        self.extra = int(state["extra"])
        self.changes = [(float(time), int(by)) for time, by in state["changes"]]

    def renumber(self, old: Rows) -> None:
        """Nothing is kept by row."""


NEW, PROFILING, PROFILED, UNPROFILED = 0, 1, 2, 3
_COLUMNS: dict[str, tuple[type[np.generic], float]] = {
    "stage": (np.int8, NEW),
    "seen": (np.bool_, False),
    "joined": (np.bool_, False),  # began beside another
    "score": (np.float64, np.nan),  # packing class, as it was known last
    "memory": (np.float64, np.nan),  # GiB on each GPU, likewise
}


class ProfiledRows:
    """Which rows are profiled or were, what was seen of them, and which began beside another."""

    def __init__(self) -> None:
        self._columns: dict[str, NDArray[Any]] = {
            name: np.full(0, fresh, kind) for name, (kind, fresh) in _COLUMNS.items()
        }

    def reserve(self, count: int) -> None:
        """Make room for so many rows."""
        more = count - len(self._columns["stage"])
        if more > 0:
            for name, (kind, fresh) in _COLUMNS.items():
                new = np.full(more, fresh, kind)
                self._columns[name] = np.concatenate([self._columns[name], new])

    def see(self, rows: Rows) -> Rows:
        """Those of some rows that were not seen before."""
        seen = self._columns["seen"]
        new: Rows = rows[~seen[rows]]
        seen[new] = True
        return new

    def of(self, rows: Rows, stage: int) -> Bools:
        """Which of some rows are at a stage: new, profiling, profiled, or never."""
        return np.asarray(self._columns["stage"][rows] == stage)

    def enter(self, row: int, stage: int) -> None:
        """A row is at a stage from now on."""
        self._columns["stage"][row] = stage

    def joins(self, row: int) -> None:
        """A row begins beside another."""
        self._columns["joined"][row] = True

    def joined(self, rows: Rows) -> Bools:
        """Which of some rows began beside another."""
        found: Bools = self._columns["joined"][rows]
        return found

    def remembered(self, name: Literal["score", "memory"], now: Floats) -> Floats:
        """What is known of each row now, or was before: a node that is away says nothing."""
        kept = self._columns[name]
        known = ~np.isnan(now)
        kept[: len(now)][known] = now[known]
        return kept[: len(now)]

    def state_dict(self) -> dict[str, Any]:
        """The columns."""
        return {name: column.copy() for name, column in self._columns.items()}

    def load_state_dict(self, state: Any) -> None:
        """Continue from a `state_dict`."""
        for name, (kind, _) in _COLUMNS.items():
            self._columns[name] = np.array(state[name], kind)

    def renumber(self, old: Rows) -> None:
        """Follow a table that was packed."""
        for name, (_, fresh) in _COLUMNS.items():
            self._columns[name] = carried(self._columns[name], old, fresh)


def are_idle(nodes: int, occupancy: Occupancy) -> bool:
    """Does no row hold a GPU of these nodes, as far as they are in service?"""
    nodes &= occupancy.open_nodes
    return occupancy.free_in(nodes) == occupancy.capacity_in(nodes)


def after(now: float, step: float) -> float:
    """The first multiple of `step` after now."""
    return (math.floor(now / step) + 1) * step
