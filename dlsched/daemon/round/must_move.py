"""Which jobs ahead would have to move, so that a live job keeps its deadline."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from dlsched.core.arrays import Ints
from dlsched.core.scenarios import SCENARIOS, SURE
from dlsched.daemon.round.forecasts.alternatives import Alternative, Question, row_of
from dlsched.daemon.round.forecasts.forecasting import HORIZON_S, Outlook
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

    def keeps_without(jobs: Ints) -> bool:
        left_out = (*question.supposed, *jobs.tolist())
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

    mine = np.flatnonzero(outlook.jobs == alternative.job)
    if not mine.size:
        return np.zeros(0, np.int64)
    return outlook.must_move(int(mine[0]), outlook.jobs, keeps_without)
