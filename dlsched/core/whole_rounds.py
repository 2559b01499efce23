"""Rounds of whole steps that have ended: what a mechanism needs to credit time received."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dlsched.core.arrays import Floats, Rows


@dataclass(frozen=True, slots=True)
class WholeRounds:
    """The rounds since the last decision, in all of which the same rows ran.

    Attributes:
        rows: the rows that ran, ascending.
        stop: when each row stopped, [round, row].
        took: seconds that it was credited with, [round, row].
    """

    rows: Rows
    stop: Floats
    took: Floats


NO_ROUNDS = WholeRounds(np.zeros(0, np.int64), np.zeros((0, 0)), np.zeros((0, 0)))
