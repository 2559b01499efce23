"""What an end is worth, and when each alternative is predicted to end: a panel for each."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np

from dlsched.core.arrays import Floats
from dlsched.core.rewards import RewardCurve
from dlsched.core.scenarios import weighted_quantile
from simulate.report.charts import Curve, Curves, Figure, Reference
from simulate.report.scale import Axis, time_axis
from simulate.report.style import MOST_TABS
from simulate.report.wording import number_text

QUANTILES = ((0.1, "10 %"), (0.5, "50 %"), (0.9, "90 %"))
ROOM = 1.08  # of both axes, beyond the last point


def reward_figure(curve: RewardCurve, alternatives: Sequence[tuple[str, Floats, float]]) -> Figure:
    """The curve once for each alternative, with the times by which it has ended.

    Args:
        curve: of the job of interest.
        alternatives: label, ends in each scenario [s after the submit], and the expected reward.
    """
    known = [each for each in alternatives if np.isfinite(each[1]).all()][:MOST_TABS]
    if not known:
        return Figure(key="reward", title="Reward", absent="No end is predicted.")
    last = max(float(curve.points[-1][0]), *(float(ends.max()) for _, ends, _ in known)) * ROOM
    panels = [_panel(curve, ends, expected, last) for _, ends, expected in known]
    return Figure(
        key="reward",
        title="Reward",
        caption="What the job earns by the time since its submit. The dashed lines are the times "
        "by which it has ended in 10, 50 and 90 % of the cases.",
        panels=tuple(panels),
        choice=tuple(label for label, _, _ in known) if len(known) > 1 else (),
    )


def _panel(curve: RewardCurve, ends: Floats, expected: float, last: float) -> Curves:
    x = np.array([0.0, *(float(time) for time, _ in curve.points), last])
    values = [float(value) for _, value in curve.points]
    y = np.array([values[0], *values, values[-1]])
    marks = [(float(weighted_quantile(ends[:, None], q)[0]), word) for q, word in QUANTILES]
    low, high = min(y.min(), 0.0), max(y.max(), 0.0)
    pad = (high - low or 1.0) * (ROOM - 1)
    bottom = low - pad if low < 0 else low
    return Curves(
        title=f"expected {number_text(expected)}",
        x=time_axis("time since the submit", 0.0, last),
        y=Axis(label="reward", quantity="number", low=bottom, high=high + pad),
        curves=(Curve(label="reward", series=0, x=x, y=y),),
        references=tuple(
            Reference(at=at, text=", ".join(word for _, word in some))
            for at, some in groupby(marks, key=lambda mark: mark[0])
        ),
        wide=True,
    )
