"""What a policy sees in a round: the snapshot, and nothing else.

A policy sees columns, the cluster's occupancy, what changed since the last decision, and a
generator of its own. No clock, no file, no network: the same context gives the same answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from dlsched.core.arrays import Bools, Floats, Rows
from dlsched.core.cluster.calendar import Calendar
from dlsched.core.cluster.pools import Pools
from dlsched.core.cluster.reservations import Reserved
from dlsched.core.semantics import Semantics
from dlsched.core.speed.belief import NOTHING_KNOWN, Belief
from dlsched.core.units import RUNNING, WAITING, Units, UnitTable
from dlsched.core.whole_rounds import NO_ROUNDS, WholeRounds

if TYPE_CHECKING:
    from dlsched.core.cluster.occupancy import Occupancy
    from dlsched.core.forecast import Forecaster

Mode = Literal["full", "fill"]


class Change(NamedTuple):
    """Something that happened since the last decision, in order."""

    kind: Literal["arrive", "finish", "node-up", "node-down", "node-drain", "retype", "adapt"]
    time: float
    subject: int  # a unit's row, or a node; -1: what is not in the tables any more


@dataclass(slots=True, kw_only=True)
class RoundContext:
    """One decision's snapshot.

    Attributes:
        now: seconds.
        number: the round's number, from 0.
        mode: `full`, or `fill`: running rows are frozen and only idle GPUs are given.
        table: all units.
        active: rows admitted and not ended, in order of admission.
        occupancy: the GPUs that each row holds.
        pools: which nodes each unit may use.
        semantics: the profile of the run.
        changes: what happened since the last decision, in order.
        finished: rows that have completed so far, in order of completion.
        calendar: bookings of the future.
        forecast: runs the present state on; None where the world offers none.
        restart_overhead: seconds without progress after a start.
        min_run: a row is not preempted before it has run so long.
        joined_at: of rows that are seen as the only holders of their GPUs, when the last row that
            shares them began; a row is not preempted before that one has run so long.
        seed: the run's seed.
        perf: what is believed of how fast units run.
        since_decision: rounds of whole steps that have ended since the last decision.
        may_share: may several rows hold the same GPUs in this world?
        reserved: nodes that are kept for some rows, or for maintenance; None: none are.
        cpu_clock: seconds of CPU that a part may measure itself by, where it has a time limit; None
            in a replay, whose outcome must not depend on the machine.
    """

    now: float
    number: int
    mode: Mode
    table: UnitTable
    active: Rows
    occupancy: Occupancy
    pools: Pools
    semantics: Semantics
    changes: list[Change]
    finished: list[int]
    calendar: Calendar
    forecast: Forecaster | None = None
    restart_overhead: float = 0.0
    min_run: float = 0.0
    joined_at: dict[int, float] = field(default_factory=dict)
    seed: int = 0
    perf: Belief = NOTHING_KNOWN
    since_decision: WholeRounds = NO_ROUNDS
    may_share: bool = False
    reserved: Reserved | None = None
    cpu_clock: Callable[[], float] | None = None

    @property
    def units(self) -> Units:
        """All active units."""
        return Units(self.table, self.active, self.now)

    @property
    def waiting(self) -> Units:
        """Active units that hold no GPUs, in order of admission."""
        rows = self.active[self.table.status[self.active] == WAITING]
        return Units(self.table, rows, self.now, running=np.zeros(len(rows), np.bool_))

    @property
    def running(self) -> Units:
        """Active units that hold GPUs, in order of admission."""
        rows = self.active[self.table.status[self.active] == RUNNING]
        return Units(self.table, rows, self.now, running=np.ones(len(rows), np.bool_))

    @property
    def free_gpus(self) -> int:
        """Free GPUs on nodes that may get new work."""
        if self.occupancy.draining:
            return self.occupancy.free_in(self.occupancy.open_nodes)
        return self.occupancy.free_total

    @property
    def gpus_are_alike(self) -> bool:
        """Is it no matter to any unit which GPUs of its pool it gets, and no GPU kept back?"""
        table, occupancy = self.table, self.occupancy
        return not (
            table.shapes
            or table.whole_nodes
            or table.homes
            or occupancy.draining
            or occupancy.reserved
            or not self.pools.disjoint
        )

    @property
    def round_length(self) -> float:
        """Seconds between decisions; 0 when every change is one."""
        return self.semantics.round_length

    @property
    def rng(self) -> np.random.Generator:
        """A generator of this round's own, the same for the same seed and round."""
        return np.random.default_rng((self.seed, self.number))

    def protected(self, units: Units) -> Bools:
        """Running rows that have not yet run the minimum time."""
        if self.min_run <= 0:
            return np.zeros(len(units), np.bool_)
        return units.running & (self.now - self.kept_since(units.rows) < self.min_run)

    def kept_since(self, rows: Rows) -> Floats:
        """Since when running rows have had their GPUs, or those that share these, in seconds."""
        since: Floats = self.table.since[rows]
        if self.joined_at:
            joined = [self.joined_at.get(row, -np.inf) for row in rows.tolist()]
            since = np.maximum(since, joined)
        return since
