"""The program where little is left to decide: a table over what is free of each type.

The best gain of the first i jobs with so many GPUs of each type, from that of the first i − 1
(a knapsack with one dimension a type). A few dozen choices in a cluster of 64 GPUs take less than
setting up a solver does.
"""

from __future__ import annotations

import numpy as np

from dlsched.core.arrays import Floats, Ints
from dlsched.policies.scheduling.sia.configurations import NONE

__all__ = ["best_of_table", "table_size"]


def table_size(room: Ints, choices: int) -> int:
    """Steps that the table takes."""
    return int(np.prod(room + 1)) * choices


def best_of_table(job: Ints, kind: Ints, gpus: Ints, gain: Floats, room: Ints) -> Ints:
    """Which choice each job gets: a position among the choices, NONE for nothing; by job.

    Args:
        job: of each choice, 0, 1, … in order.
        kind: its type.
        gpus: how many of it.
        gain: what it is worth.
        room: GPUs of each type.
    """
    jobs = int(job[-1]) + 1 if len(job) else 0
    shape = tuple((room + 1).tolist())
    value = np.zeros(shape)
    chosen = np.full((jobs, *shape), NONE, np.int32)
    axes = len(shape)
    for at, (which, where, need, worth) in enumerate(
        zip(job.tolist(), kind.tolist(), gpus.tolist(), gain.tolist(), strict=True)
    ):
        if at == 0 or which != job[at - 1]:
            before = value
            value = before.copy()
        if need > room[where]:
            continue
        after = tuple(slice(need, None) if axis == where else slice(None) for axis in range(axes))
        ahead = tuple(
            slice(None, shape[where] - need) if axis == where else slice(None)
            for axis in range(axes)
        )
        offer = before[ahead] + worth
        better = offer > value[after]
        np.copyto(value[after], offer, where=better)
        chosen[which][after][better] = at
    left = room.copy()
    answer = np.full(jobs, NONE, np.int64)
    for which in range(jobs - 1, -1, -1):
        at = int(chosen[(which, *left.tolist())])
        answer[which] = at
        if at != NONE:
            left[kind[at]] -= gpus[at]
    return answer
