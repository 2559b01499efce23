"""The clocks of many units that leave GPUs or get some at once, as columns of the table.

What `World` does for one unit after the other: where a round moves many, a few operations on whole
columns cost less than as many on each row.
"""

from __future__ import annotations

import numpy as np

from dlsched.core.arrays import Floats, Rows
from dlsched.core.units import RUNNING, WAITING, UnitTable

__all__ = ["begin", "leave"]


def leave(table: UnitTable, rows: Rows, now: float, worked: Floats, stepped: Floats) -> None:
    """Running units leave their GPUs and wait, with all their work.

    Args:
        table: all units.
        rows: who leaves.
        now: seconds.
        worked: seconds of work since `progress_from`, by unit that leaves.
        stepped: seconds of work that were entered before.
    """
    held = now - table.since[rows]
    table.held_s[rows] += held
    table.attained[rows] += held * table.gpus_now[rows]
    table.overhead_s[rows] += held - worked - stepped
    table.executed[rows] += worked * table.rate[rows]
    table.saved[rows] = table.executed[rows]
    table.since[rows] = now
    table.gpus_now[rows] = 0
    table.status[rows] = WAITING


def begin(
    table: UnitTable, rows: Rows, now: float, overhead: Floats, rate: Floats, gpus: Rows
) -> None:
    """Waiting units begin on GPUs.

    Args:
        table: all units.
        rows: who begins.
        now: seconds.
        overhead: seconds until each makes progress.
        rate: work per second, by unit that begins.
        gpus: how many GPUs each got.
    """
    table.status[rows] = RUNNING
    table.starts[rows] += 1
    table.since[rows] = now
    table.progress_from[rows] = now + overhead
    table.rate[rows] = rate
    table.gpus_now[rows] = gpus
    table.largest_scale[rows] = np.maximum(table.largest_scale[rows], gpus)
    table.saved[rows] = table.executed[rows]
