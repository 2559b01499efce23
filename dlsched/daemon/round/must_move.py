"""Which jobs ahead would have to move, so that a job keeps its deadline.

The jobs that are predicted to start before it are left out in the order of their starts, until it
is sure to be in time. How many that are is found by halving, as one more that is left out makes
the job no later under the usual policies; the number returned was tried in any case.
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from dlsched.core.arrays import Ints
from dlsched.core.scenarios import SCENARIOS, SURE
from dlsched.daemon.round.alternatives import Alternative, Question, row_of
from dlsched.daemon.round.forecasting import HORIZON_S, Outlook
from dlsched.daemon.round.prepared_round import prepare


def must_move(question: Question, alternative: Alternative, outlook: Outlook, until: float) -> Ints:
    """The jobs that would have to move.

    Args:
        question: what was asked.
        alternative: with the job of interest, as it is.
        outlook: what was predicted of it, in every scenario.
        until: by `time.monotonic`, when there is no time left.

    Returns:
        their ids, in the order of their starts; none where the job keeps its deadline or has none,
        where leaving all of them out does not help, and where there is no time to find out.
    """
    nothing = np.zeros(0, np.int64)
    mine = np.flatnonzero(outlook.jobs == alternative.job)
    if not mine.size or not outlook.pending[mine[0]]:
        return nothing
    if not outlook.chance_to_meet_deadlines()[mine[0]] < SURE:  # or there is no deadline
        return nothing
    starts = outlook.starts[0]
    own = starts[mine[0]]
    is_ahead = outlook.pending & (starts < (np.inf if np.isnan(own) else own))
    ahead = outlook.jobs[is_ahead][np.lexsort((outlook.jobs[is_ahead], starts[is_ahead]))]

    def keeps_without(count: int) -> bool:
        left_out = (*question.supposed, *ahead[:count].tolist())
        snapshot = replace(question, supposed=left_out).present(alternative)
        prepared, row = prepare(snapshot), row_of(snapshot, alternative.job)
        if prepared is None:
            return False
        found = Outlook(prepared)
        for factor, _ in SCENARIOS:
            if not found.look(factor, HORIZON_S, max(until - time.monotonic(), 0.0), only=row):
                return False
        chance = found.chance_to_meet_deadlines()[found.jobs == alternative.job]
        return bool((chance >= SURE).any())

    fewest, enough = 1, len(ahead)
    if not enough or not keeps_without(enough):
        return nothing
    while fewest < enough:
        middle = (fewest + enough) // 2
        if keeps_without(middle):
            enough = middle
        else:
            fewest = middle + 1
    found: Ints = ahead[:enough]
    return found
