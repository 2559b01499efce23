"""The earliest deadline with which `--require-sla` takes a job in: later ones are tried.

What is named is a whole minute that was tried, and a minute more than is needed: the job is not
submitted again at once. Under a policy that plans for deadlines a job with a later one may end
later, so the predicted end says only where to begin.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from dlsched.core.errors import BadInput, PolicyFailed
from dlsched.core.scenarios import verdict_of
from dlsched.daemon.predictions import Predictions
from dlsched.db.records import JobSpec
from dlsched.system.clock import boottime

MINUTE_S = 60.0
LONGEST_S = 10.0  # that the search may cost
FURTHEST_S = 366 * 86400.0  # no later deadline is tried
EXACT = 0.02  # of the time until the deadline; this exact is enough


async def earliest_deadline(
    predictions: Predictions,
    specs: Sequence[JobSpec],
    mine: range,
    *,
    likely: float,
    now: float,
) -> float | None:
    """The earliest deadline that some jobs of a call are sure to keep, and cost no other job its.

    Args:
        predictions: of the cluster.
        specs: of all jobs of the call.
        mine: places of those in question, elements of one array, in `specs`.
        likely: what is tried first, seconds since the epoch; NaN: nothing is known.
        now: likewise.

    Returns:
        seconds since the epoch; None where none is found.
    """
    until = boottime() + LONGEST_S

    async def holds(deadline_at: float) -> bool:
        asked = list(specs)
        for place in mine:
            body = replace(asked[place].body, deadline_at=deadline_at)
            asked[place] = replace(asked[place], body=body)
        try:
            told, broken = await predictions.with_and_without(asked)
        except (BadInput, PolicyFailed):
            return False
        found = [told[place] for place in mine]
        return not broken and all(
            each is not None and verdict_of(each.on_time) == "ok" for each in found
        )

    low = max(specs[mine[0]].body.deadline_at or now, now)
    high = max(low + MINUTE_S, now if math.isnan(likely) else likely)
    while not await holds(_as_said(high) - MINUTE_S):
        low, high = high, now + 2 * (high - now)
        if high - now > FURTHEST_S or boottime() > until:
            return None
    while high - low > max(MINUTE_S, EXACT * (high - now)) and boottime() < until:
        middle = (low + high) / 2
        low, high = (low, middle) if await holds(_as_said(middle) - MINUTE_S) else (middle, high)
    return _as_said(high)


def _as_said(moment: float) -> float:
    """A whole minute, at least one later."""
    return math.ceil(moment / MINUTE_S + 1) * MINUTE_S
