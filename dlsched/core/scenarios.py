"""How uncertain a prediction is: the same future with all durations shorter, as predicted, longer.

Each scenario multiplies the time that every job has left, and has a weight. A prediction is that of
the first scenario; its interval and the chance to meet a deadline come from all of them.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from dlsched.core.arrays import Floats

SCENARIOS = ((1.0, 0.5), (0.5, 0.25), (1.5, 0.25))  # factor and weight
WEIGHTS = np.array([weight for _, weight in SCENARIOS])
INTERVAL = (0.1, 0.9)  # the quantiles that bound a prediction's interval
SURE, EVEN = 0.9, 0.5  # chances from which on a deadline is `ok`, and at risk
Verdict = Literal["ok", "at-risk", "unlikely"]


def weighted_quantile(values: Floats, q: float) -> Floats:
    """The lowest value whose scenarios weigh `q` together with all lower ones.

    `values` are [scenario, job]; NaN is later than all, and is returned where the quantile is that.
    """
    known = np.where(np.isnan(values), np.inf, values)
    order = np.argsort(known, axis=0, kind="stable")
    weight = np.cumsum(WEIGHTS[order], axis=0)
    first = np.argmax(weight >= q - 1e-9, axis=0)
    found = np.take_along_axis(np.take_along_axis(known, order, 0), first[None, :], 0)[0]
    return np.where(np.isinf(found), np.nan, found)


def chance_by(ends: Floats, deadlines: Floats) -> Floats:
    """The chance of each job to end at its deadline or before; NaN for a job without one.

    `ends` are [scenario, job]; NaN is later than all.
    """
    chance: Floats = (WEIGHTS[:, None] * (ends <= deadlines[None, :])).sum(axis=0)
    return np.where(np.isnan(deadlines), np.nan, chance)


def verdict_of(chance: float) -> Verdict:
    """What a chance to meet a deadline is called."""
    return "ok" if chance >= SURE else "at-risk" if chance >= EVEN else "unlikely"
