"""Kinds of deadlines, and deadlines of falling value: meeting a later one is worth less."""

from __future__ import annotations

import math

from dlsched.jobs.fields import DEADLINE_KINDS

STRICT, SOFT, BEST_EFFORT = map(float, range(len(DEADLINE_KINDS)))  # in the column `deadline_kind`

WORTH = 1.0  # of meeting a deadline, where nothing is said
STEPS_FORM = "TIME:VALUE TIME:VALUE …, times [s after the submit] rising, values not"


def deadline_steps(text: str) -> tuple[tuple[float, float], ...]:
    """Deadlines [s after the submit], each with what meeting it is worth, as `STEPS_FORM` says.

    Raises:
        ValueError: the text is not of that form.
    """
    steps = []
    for one in text.split():
        time, colon, value = one.partition(":")
        steps.append((float(time), float(value)))
        if not colon or not math.isfinite(steps[-1][0]) or not steps[-1][1] >= 0:
            raise ValueError(one)
    times, values = [time for time, _ in steps], [value for _, value in steps]
    if not steps or times[0] <= 0 or sorted(set(times)) != times:
        raise ValueError(text)
    if sorted(values, reverse=True) != values:
        raise ValueError(text)
    return tuple(steps)
