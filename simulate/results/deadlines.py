"""Which deadlines were met, by how much the others were missed, and what that was worth.

A job meets its deadline when it ends by its first one. Its value is that of its reward curve
(`sla`), else that of the first deadline that it kept: of several deadlines (`deadline_steps`) later
ones are worth less; 1 where the trace gives no value. A job that kept none, was refused or did not
end has earned nothing, or the penalty of its curve.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlsched.core.arrays import Bools, Floats
from dlsched.core.deadlines import BEST_EFFORT, STRICT, WORTH
from dlsched.core.job_rewards import reward_curve
from dlsched.core.units import UnitTable
from dlsched.jobs.fields import DEADLINE_KINDS


def deadline_columns(units: UnitTable) -> dict[str, NDArray[Any]]:
    """Columns of the jobs; none where no job has a deadline or a reward curve.

    `deadline` [s after the submit], `deadline_kind` (as `DEADLINE_KINDS`), `late` [s; negative:
    before its deadline; NaN: not ended], `value_earned`, `value_possible` (NaN for jobs without, or
    with a wish only).
    """
    has, none = np.isfinite(units.deadline), np.full(units.count, "", object)
    curves = units.extra.get("sla", none)
    if not (has.any() or (curves != "").any()):
        return {}
    took: Floats = units.finish - units.submit_time
    planned = has & (units.deadline_kind != BEST_EFFORT)
    possible = np.where(planned, np.nan_to_num(units.deadline_value, nan=WORTH), math.nan)
    earned = np.where(planned, np.where(took <= units.deadline, possible, 0.0), math.nan)
    steps = units.extra.get("deadline_steps", none)
    for row in np.flatnonzero((curves != "") | (planned & (steps != ""))).tolist():
        curve = reward_curve(units, row)
        assert curve is not None
        possible[row], earned[row] = curve.worth, curve.earned(took.item(row))
    return {
        "deadline": np.where(has, units.deadline, math.nan),
        "deadline_kind": _kinds(units, has),
        "late": np.where(has, took - units.deadline, math.nan),
        "value_earned": earned,
        "value_possible": possible,
    }


def _kinds(units: UnitTable, has: Bools) -> NDArray[Any]:
    """The kind of each deadline as a word; "" for jobs without one."""
    kind = np.nan_to_num(units.deadline_kind, nan=STRICT).astype(np.int64)
    return np.where(has, np.array(DEADLINE_KINDS, object)[kind], "")


def deadline_figures(
    columns: Mapping[str, NDArray[Any]], jct: Floats, counted: Bools
) -> dict[str, Any] | None:
    """The figures of `--summary-out`; None where no job has a deadline.

    Best-effort deadlines are a wish: they only count under `by_kind`, and their jobs among those
    without deadline.

    Args:
        columns: as `deadline_columns` gives them.
        jct: of all jobs; NaN for those that did not end.
        counted: jobs that the figures are about.
    """
    if not columns:
        return None
    kinds = columns["deadline_kind"]
    planned = (kinds != "") & (kinds != DEADLINE_KINDS[int(BEST_EFFORT)])
    worth = counted & np.isfinite(columns["value_possible"])
    earned = float(columns["value_earned"][worth].sum())
    possible = float(columns["value_possible"][worth].sum())
    free = jct[counted & ~planned & np.isfinite(jct)]
    late = _lateness(columns["late"], counted & planned)
    return {
        **late,
        "value": earned,
        "value_share": earned / possible if possible else None,
        "best_effort_avg_jct": float(free.mean()) if free.size else None,
        "by_kind": {
            kind: _lateness(columns["late"], counted & (kinds == kind))
            for kind in DEADLINE_KINDS
            if (counted & (kinds == kind)).any()
        },
    }


def _lateness(column: Floats, of: Bools) -> dict[str, Any]:
    """How many of some jobs met their deadlines, and how late the others were [s]."""
    late: Floats = column[of]
    missed = late[late > 0]
    count, met = int(of.sum()), int((late <= 0).sum())
    return {
        "jobs": count,
        "met": met,
        "met_share": met / count if count else None,
        "avg_late": float(missed.mean()) if missed.size else None,
        "max_late": float(missed.max()) if missed.size else None,
    }
