"""The teacher: dominant resource fairness, which with GPUs alone is equal numbers of GPUs."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush

import numpy as np

from dlsched.core.arrays import Ints


def equal_shares(
    least: Ints, most: Ints, gpus: int, on_grant: Callable[[int], None] = lambda job: None
) -> Ints:
    """GPUs of each job: the next one goes to the job with the fewest, of equal ones the first.

    Args:
        least: GPUs of a job's first grant; a job for which they are not left gets none.
        most: GPUs that a job may have.
        gpus: to divide.
        on_grant: called with the job before each GPU after its first grant.
    """
    sizes = np.zeros(len(least), np.int64)
    heap = []
    for job, (first, bound) in enumerate(zip(least.tolist(), most.tolist(), strict=True)):
        if first <= min(gpus, bound):
            sizes[job] = first
            gpus -= first
            if first < bound:
                heap.append((first, job))
    heapify(heap)
    while gpus > 0 and heap:
        size, job = heappop(heap)
        on_grant(job)
        sizes[job] = size + 1
        gpus -= 1
        if size + 1 < most[job]:
            heappush(heap, (size + 1, job))
    return sizes
