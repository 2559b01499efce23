"""The division of GPUs: the fewest that keep a deadline, the rest by queues, and what is left.

1. Jobs with deadlines, the earliest first, get the fewest GPUs with which they are done in time.
   One that cannot be done in time, or does not fit, is demoted: it counts as best effort.
2. The others get what they ask for, by queue and then by arrival; one that does not fit is passed.
3. GPUs that are left make admitted jobs faster, in the order of their deadlines.

A job that keeps its number of GPUs pays nothing; one that starts or changes pays a restart, so that
it changes only where this keeps its deadline, or gains more than it costs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dlsched.core.arrays import Bools, Floats, Ints, Rows


class Division(NamedTuple):
    """GPUs of each job, which jobs were demoted, and how many GPUs are idle."""

    sizes: Ints
    demoted: Bools
    free: int


def divide(
    gpus: int,
    *,
    due_in: Floats,
    seconds: Floats,
    gang: Ints,
    queue: Ints,
    present: Ints | None = None,
    restart_s: float = 0.0,
    work_conserving: bool = True,
) -> Division:
    """Divide GPUs among jobs, which are in the order of their arrival.

    Args:
        gpus: that can be divided.
        due_in: seconds until each deadline; infinite for best effort.
        seconds: until each job would be done on 1, 2, … GPUs, [job, GPUs - 1]; infinite where it
            cannot run on so many.
        gang: GPUs that each job asks for.
        queue: of each job, as best effort.
        present: GPUs that each job holds now.
        restart_s: seconds that a start or another number of GPUs costs.
        work_conserving: give what is left to admitted jobs.
    """
    jobs, width = seconds.shape
    held = np.zeros(jobs, np.int64) if present is None else present
    takes = np.where(np.arange(1, width + 1) == held[:, None], seconds, seconds + restart_s)
    sizes, demoted, free = np.zeros(jobs, np.int64), np.zeros(jobs, np.bool_), gpus
    with_deadline = np.flatnonzero(due_in < np.inf)
    admitted: list[int] = []
    in_time = takes <= due_in[:, None]
    for job in with_deadline[np.argsort(due_in[with_deadline], kind="stable")].tolist():
        fewest = int(in_time[job].argmax()) + 1
        if due_in[job] > 0 and in_time[job].any() and fewest <= free:
            sizes[job] = fewest
            free -= fewest
            admitted.append(job)
        else:
            demoted[job] = True
    others: Rows = np.flatnonzero(demoted | (due_in == np.inf))
    for job in others[np.argsort(queue[others], kind="stable")].tolist():
        if gang[job] <= free:
            sizes[job] = gang[job]
            free -= gang.item(job)
    if work_conserving:
        for job in admitted:
            best = fewest = sizes.item(job)
            for size in range(fewest + 1, min(fewest + free, width) + 1):
                if takes[job, size - 1] < takes[job, best - 1]:
                    best = size
            sizes[job] = best
            free -= best - fewest
    return Division(sizes, demoted, free)
