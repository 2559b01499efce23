"""Checks every invariant of the world after every decision; for tests, and for those who doubt."""

from __future__ import annotations

import numpy as np

from dlsched.core.allocation import Allocation
from dlsched.core.errors import InvariantBroken
from dlsched.core.invariants import TOLERANCE_S, check_world
from simulate.engine import Engine

__all__ = ["check_after_each_decision", "check_conserved_work"]


def check_after_each_decision(engine: Engine) -> None:
    """Let the engine check itself from now on; an offence ends the run with `InvariantBroken`."""
    engine.observers.append(_check)


def _check(engine: Engine, allocation: Allocation) -> None:
    check_world(engine.world.table, engine.world.occupancy, engine.now)
    check_conserved_work(engine)


def check_conserved_work(engine: Engine) -> None:
    """Time on GPUs = work done + work lost + overhead, for every unit at its last stop.

    Raises:
        InvariantBroken: names the first unit for which it does not hold.
    """
    world, table = engine.world, engine.world.table
    if world.semantics.progress != "continuous" or (table.rate != 1.0).any():
        return
    held = table.executed + table.lost_s + table.overhead_s
    slack = TOLERANCE_S + 1e-9 * table.held_s
    if world.semantics.release == "tick":
        slack = slack + (world.semantics.grid or 0.0)  # GPUs are kept until the tick
    broken = np.flatnonzero(np.abs(table.held_s - held) > slack)
    if broken.size:
        row = int(broken[0])
        raise InvariantBroken(
            f"row {row} held GPUs for {table.held_s[row]} s but worked {table.executed[row]}, "
            f"lost {table.lost_s[row]} and restarted for {table.overhead_s[row]}"
        )
