"""Which deadlines were met, by how much the others were missed, and what that was worth.

A job meets its deadline when it ends by its first one. Its value is that of the first deadline
that it kept: of several deadlines (`deadline_steps`) later ones are worth less; 1 where the trace
gives no value, and 0 for a job that kept none, was refused or did not end.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlsched.core.arrays import Bools, Floats
from dlsched.core.deadlines import WORTH, deadline_steps
from dlsched.core.units import UnitTable


def deadline_columns(units: UnitTable) -> dict[str, NDArray[Any]]:
    """Columns of the jobs; none where no job has a deadline.

    `deadline` [s after the submit], `late` [s; negative: before its deadline; NaN: not ended],
    `value_earned`, `value_possible` (NaN for jobs without deadline).
    """
    has = np.isfinite(units.deadline)
    if not has.any():
        return {}
    took: Floats = units.finish - units.submit_time
    possible = np.where(has, np.nan_to_num(units.deadline_value, nan=WORTH), math.nan)
    earned = np.where(has, np.where(took <= units.deadline, possible, 0.0), math.nan)
    steps = units.extra.get("deadline_steps", np.full(len(took), "", object))
    for row in np.flatnonzero(has & (steps != "")).tolist():
        kept = [value for due, value in deadline_steps(steps[row]) if took[row] <= due]
        earned[row] = max(kept, default=0.0)
    return {
        "deadline": np.where(has, units.deadline, math.nan),
        "late": np.where(has, took - units.deadline, math.nan),
        "value_earned": earned,
        "value_possible": possible,
    }


def deadline_figures(
    columns: Mapping[str, NDArray[Any]], jct: Floats, counted: Bools
) -> dict[str, Any] | None:
    """The figures of `--summary-out`; None where no job has a deadline.

    Args:
        columns: as `deadline_columns` gives them.
        jct: of all jobs; NaN for those that did not end.
        counted: jobs that the figures are about.
    """
    if not columns:
        return None
    with_deadline = counted & np.isfinite(columns["deadline"])
    late: Floats = columns["late"][with_deadline]
    missed = late[late > 0]
    count = int(with_deadline.sum())
    met = int((late <= 0).sum())
    earned = float(columns["value_earned"][with_deadline].sum())
    possible = float(columns["value_possible"][with_deadline].sum())
    free = jct[counted & ~np.isfinite(columns["deadline"]) & np.isfinite(jct)]
    return {
        "jobs": count,
        "met": met,
        "met_share": met / count if count else None,
        "avg_late": float(missed.mean()) if missed.size else None,
        "max_late": float(missed.max()) if missed.size else None,
        "value": earned,
        "value_share": earned / possible if possible else None,
        "best_effort_avg_jct": float(free.mean()) if free.size else None,
    }
