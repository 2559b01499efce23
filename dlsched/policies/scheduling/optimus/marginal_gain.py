"""Marginal gain: the next task goes to the job that saves most seconds by it.

This is the form for all-reduce, where only the number of GPUs counts. The published one divides
parameter servers and workers. It starts with the least GPUs of every job in order, while there is
room.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence

Step = Callable[[int, int], float]


def divide_gpus(
    least: Sequence[int], most: Sequence[int], left: Sequence[float], gpus: int, step: Step
) -> list[int]:
    """Divide GPUs; returns the GPUs of each job.

    A job grows while its next GPU saves time; GPUs beyond the next one are not considered.

    Args:
        least: GPUs of each job at first; a job for which too few are left gets none.
        most: the most GPUs that each job can use.
        left: steps left of each job.
        gpus: GPUs to divide.
        step: seconds of a step of a job (its place) on so many GPUs.
    """
    sizes: list[int] = []
    for few in least:
        sizes.append(few if few <= gpus else 0)
        gpus -= sizes[-1]
    gains: list[tuple[float, int]] = []
    for job, size in enumerate(sizes if gpus else []):
        if 0 < size < most[job]:
            gain = (step(job, size) - step(job, size + 1)) * left[job]
            if gain > 0:
                gains.append((-gain, job))
    heapq.heapify(gains)
    while gpus and gains:
        job = gains[0][1]
        sizes[job] = size = sizes[job] + 1
        gpus -= 1
        gain = 0.0
        if size < most[job]:
            gain = (step(job, size) - step(job, size + 1)) * left[job]
        if gain > 0:
            heapq.heapreplace(gains, (-gain, job))
        else:
            heapq.heappop(gains)
    return sizes
