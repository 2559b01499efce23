"""What an end is worth, and when each alternative is predicted to end: a panel for each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np

from dlsched.core.rewards import RewardCurve
from simulate.report.drawing.charts import Curve, Curves, Figure, Reference
from simulate.report.drawing.scale import Axis, time_axis
from simulate.report.drawing.style import MOST_TABS
from simulate.report.wording import number_text

WORDS = ("10 %", "predicted", "90 %")
ROOM = 1.08  # of both axes, beyond the last point


class Ending(NamedTuple):
    """When an alternative ends, in seconds after the submit, and what it is expected to earn."""

    label: str
    early: float
    predicted: float
    late: float
    reward: float


def reward_figure(curve: RewardCurve, alternatives: Sequence[Ending]) -> Figure:
    """The curve once for each alternative, with the times by which it has ended.

    Args:
        curve: of the job of interest.
        alternatives: those of which an end is not known are left out.
    """
    known = [each for each in alternatives if math.isfinite(each.early + each.late + each.reward)]
    if not known:
        return Figure(key="reward", title="Reward", absent="No end is predicted.")
    last = max(float(curve.points[-1][0]), *(each.late for each in known)) * ROOM
    return Figure(
        key="reward",
        title="Reward",
        caption="What the job earns by the time since its submit. The dashed lines are its "
        "predicted end, and the times by which it has ended in 10 and 90 % of the cases.",
        panels=tuple(_panel(curve, each, last) for each in known[:MOST_TABS]),
        choice=tuple(each.label for each in known[:MOST_TABS]) if len(known) > 1 else (),
    )


def _panel(curve: RewardCurve, end: Ending, last: float) -> Curves:
    x = np.array([0.0, *(float(time) for time, _ in curve.points), last])
    values = [float(value) for _, value in curve.points]
    y = np.array([values[0], *values, values[-1]])
    marks = sorted(zip((end.early, end.predicted, end.late), WORDS, strict=True))
    low, high = min(y.min(), 0.0), max(y.max(), 0.0)
    pad = (high - low or 1.0) * (ROOM - 1)
    bottom = low - pad if low < 0 else low
    return Curves(
        title=f"expected {number_text(end.reward)}",
        x=time_axis("time since the submit", 0.0, last),
        y=Axis(label="reward", quantity="number", low=bottom, high=high + pad),
        curves=(Curve(label="reward", series=0, x=x, y=y),),
        references=tuple(
            Reference(at=at, text=", ".join(word for _, word in some))
            for at, some in groupby(marks, key=lambda mark: mark[0])
        ),
        wide=True,
    )
