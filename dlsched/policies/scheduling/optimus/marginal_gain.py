"""Marginal gain: the next task goes to the job that saves most seconds by it.

`divide_tasks` is the published form, with parameter servers and workers. `divide_gpus` is the form
for all-reduce, where only the number of GPUs counts. Both start with one task (or one of each kind)
for every job in order, while there is room.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from dlsched.core.arrays import Floats

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


class TaskJob(NamedTuple):
    """A job of parameter servers and workers.

    Attributes:
        steps: steps left.
        speed: steps per second with so many servers and workers.
        server, worker: demand of one task of each kind, by resource.
    """

    steps: float
    speed: Callable[[int, int], float]
    server: Floats
    worker: Floats


class Added(NamedTuple):
    """One task that a job was given.

    Attributes:
        job: the position of the job.
        is_worker: whether it is a worker, not a parameter server.
        gain: seconds saved per unit of its dominant resource.
    """

    job: int
    is_worker: bool
    gain: float


def divide_tasks(
    jobs: Sequence[TaskJob], capacity: Floats
) -> tuple[list[tuple[int, int]], list[Added]]:
    """Parameter servers and workers of each job, and the tasks in the order of the grants.

    It ends at the first task that does not fit, even if others would. The jobs are in order of
    arrival; the capacity is by resource.
    """
    free = capacity.astype(float).copy()
    tasks = [(0, 0)] * len(jobs)
    for place, job in enumerate(jobs):
        if (job.server + job.worker <= free).all():
            free -= job.server + job.worker
            tasks[place] = (1, 1)
    order: list[Added] = []
    best = [_best(place, job, tasks[place], capacity) for place, job in enumerate(jobs)]
    while best:
        top = max(best, key=lambda added: added.gain)  # the first of equals
        job = jobs[top.job]
        needs = job.worker if top.is_worker else job.server
        if not top.gain > 0 or (needs > free).any():
            break
        free -= needs
        servers, workers = tasks[top.job]
        tasks[top.job] = (servers, workers + 1) if top.is_worker else (servers + 1, workers)
        order.append(top)
        best[top.job] = _best(top.job, job, tasks[top.job], capacity)
    return tasks, order


def _best(place: int, job: TaskJob, has: tuple[int, int], capacity: Floats) -> Added:
    """The better of one more server and one more worker; the server if they are equal."""
    servers, workers = has
    if not servers:
        return Added(place, False, -math.inf)
    now = job.steps / job.speed(servers, workers)
    gains = [
        (now - job.steps / job.speed(*more)) / needs[int((needs / capacity).argmax())]
        for more, needs in (
            ((servers + 1, workers), job.server),
            ((servers, workers + 1), job.worker),
        )
    ]
    is_worker = bool(gains[1] > gains[0])
    return Added(place, is_worker, gains[int(is_worker)])
