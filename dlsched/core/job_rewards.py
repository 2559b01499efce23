"""The reward curve of a job, from what it says of deadlines, values and curves."""

from __future__ import annotations

import math

from dlsched.core.deadlines import BEST_EFFORT, WORTH, deadline_steps
from dlsched.core.rewards import RewardCurve
from dlsched.core.units import UnitTable


def reward_curve(units: UnitTable, row: int) -> RewardCurve | None:
    """What it is worth to end a job when; None where it says nothing.

    Its own curve (`sla`), else its deadlines of falling value (`deadline_steps`), else its deadline
    and what that is worth; a best-effort deadline is worth nothing.
    """
    curve, steps = (units.extra.get(name) for name in ("sla", "deadline_steps"))
    if curve is not None and curve[row]:
        return RewardCurve.of_text(curve[row])
    due, worth = units.deadline.item(row), units.deadline_value.item(row)
    if math.isnan(due) or units.deadline_kind[row] == BEST_EFFORT:
        return None
    worth = WORTH if math.isnan(worth) else worth
    falling = ((due, worth),) if steps is None or not steps[row] else deadline_steps(steps[row])
    before = (0.0, *(time for time, _ in falling))
    stairs = [
        (at, v) for start, (end, v) in zip(before, falling, strict=False) for at in (start, end)
    ]
    return RewardCurve((*stairs, (falling[-1][0], 0.0)))
