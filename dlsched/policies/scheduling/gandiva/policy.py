"""The policy `gandiva`: jobs start at once, take turns where GPUs are short, and are looked after.

Reactive: a job that comes or goes finds servers by affinity; where none has room, a server of its
affinity is oversubscribed and its jobs take turns. Introspective: on an overloaded cluster two jobs
share GPUs for a trial, and stay together only as long as both do more so; jobs move to empty
servers and away from nearly empty ones; growable jobs use what is idle. Paper: see the package,
sections 3 and 4. Inputs: progress of jobs, their use of the GPU (`gpu_util`, percent) and memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dlsched.core.allocation import Refused
from dlsched.core.arrays import Rows
from dlsched.core.context import RoundContext
from dlsched.core.scheduling import SchedulingPolicy
from dlsched.core.units import Units
from dlsched.core.walk.walk import Walk
from dlsched.policies.scheduling.gandiva.options import GandivaOptions
from dlsched.policies.scheduling.gandiva.real_rounds import NOT_ITS_TURN, GandivaRounds


class Gandiva(SchedulingPolicy[GandivaOptions]):
    """Turns, packs and moves; the rounds do them."""

    name = "gandiva"
    summary = "time slices on shared servers, packing that is tried and measured, migration"
    preemptive = True
    rests = False  # turns, trials and moves

    def __init__(self, options: GandivaOptions) -> None:
        super().__init__(options)
        self.rounds = GandivaRounds(options)

    @property
    def pairs_units(self) -> bool:
        """It puts jobs together itself."""
        return True

    def allocate(self, units: Units, ctx: RoundContext, walk: Walk) -> None:
        """Decide; between rounds only start what fits."""
        if ctx.mode == "fill":
            for row in units.rows.tolist():
                placed = walk.place(row)
                if isinstance(placed, Refused):
                    walk.refuse(row, NOT_ITS_TURN if row in self.rounds.servers.of else placed)
        else:
            self.rounds.allocate(units, ctx, walk)

    def state_dict(self) -> dict[str, Any]:
        """Servers, turns, packs."""
        return {"rounds": self.rounds.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict`."""
        self.rounds.load_state_dict(state["rounds"])

    def renumber(self, old: Rows, finished_gone: int) -> None:
        """Follow a table that was packed."""
        before = np.flatnonzero(old >= 0)
        place = dict(zip(old[before].tolist(), before.tolist(), strict=True))
        self.rounds.renumber(place)
