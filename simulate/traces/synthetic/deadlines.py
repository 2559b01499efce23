"""Deadlines for a part of the jobs of a generated trace."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from dlsched.core.errors import BadInput
from simulate.traces.trace import Trace

SLACK = (1.5, 6.0)
STREAM = 0x0D0E  # random numbers of their own: the jobs are the same with and without deadlines


def with_deadlines(
    trace: Trace, *, share: float, slack: tuple[float, float] = SLACK, seed: int
) -> Trace:
    """Give jobs a deadline at random, a uniform multiple of their duration after the submit.

    Args:
        trace: the jobs.
        share: of the jobs that get one, 0 to 1.
        slack: the smallest and the largest multiple.
        seed: of the randomness.

    Raises:
        BadInput: a share outside 0 to 1, or multiples that are not 1 or more, and in order.
    """
    low, high = slack
    if not 0 <= share <= 1:
        raise BadInput(f"the share of jobs with deadlines must be between 0 and 1, not {share:g}")
    if not (1 <= low <= high and math.isfinite(high)):
        raise BadInput(f"the slack must be LOW:HIGH with 1 <= LOW <= HIGH, not {low:g}:{high:g}")
    rng = np.random.default_rng([seed, STREAM])
    chosen = rng.random(len(trace)) < share
    deadline = np.ceil(trace.duration * rng.uniform(low, high, len(trace)))
    deadline[~chosen] = math.nan
    return replace(trace, columns={**trace.columns, "deadline": deadline})
