"""When users let their trainings end before all iterations are done."""

from __future__ import annotations

import math

import numpy as np

from dlsched.core.arrays import Rows
from dlsched.core.units import UnitTable
from dlsched.jobs.fields import STOPS, STOPS_UNDER_LOAD


def may_end_early(table: UnitTable, rows: Rows) -> bool:
    """Does any of these rows allow it, at least while GPUs are short?"""
    said = ~np.isnan(table.stop_under_load[rows]) | (table.stop_when[rows] > 0)
    return bool(said.any())


def allowed_ends(table: UnitTable, row: int, *, overloaded: bool) -> set[str]:
    """What may end a row's training now: `target`, `best`, both or nothing of it."""
    own, loosened = table.stop_when.item(row), table.stop_under_load.item(row)
    found = set() if math.isnan(own) else {STOPS[int(own)]}
    if overloaded and not math.isnan(loosened):
        found.add(STOPS_UNDER_LOAD[int(loosened)])
    return {"target", "best"} if "either" in found else found - {"end"}
