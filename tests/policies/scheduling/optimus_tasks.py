"""Optimus as published: parameter servers and workers, their speed models and their greedy.

synchronous    f(p, w) = 1 / (a·M/w + b + c·w/p + d·w + e·p)        M: the global batch
asynchronous   f(p, w) = w / (a + b·w/p + c·w + d·p)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import numpy as np

from dlsched.core.arrays import Floats, Ints
from dlsched.core.nonnegative import nonnegative_fit

Training = Literal["sync", "async"]


def _terms(training: Training, servers: Floats, workers: Floats, batch: float) -> Floats:
    """The factors of the coefficients, [sample, coefficient]; their products add up to seconds."""
    if training == "sync":
        columns = [batch / workers, np.ones_like(workers), workers / servers, workers, servers]
    else:
        columns = [
            1 / workers,
            1 / servers,
            np.ones_like(workers),
            servers / workers,
        ]
    return np.stack(columns, axis=1)


def speed(
    training: Training, coefficients: Floats, servers: Ints, workers: Ints, *, batch: float = 1.0
) -> Floats:
    """Steps per second by number of servers and workers; `batch` is M."""
    terms = _terms(training, np.asarray(servers, float), np.asarray(workers, float), batch)
    rates: Floats = 1.0 / (terms @ coefficients)
    return rates


def fit_speed(
    training: Training, servers: Ints, workers: Ints, rates: Floats, *, batch: float = 1.0
) -> Floats:
    """Coefficients from samples.

    Args:
        training: how updates are exchanged, `sync` or `async`.
        servers: parameter servers of each sample.
        workers: workers of each sample.
        rates: steps per second that were measured.
        batch: M, for synchronous training.
    """
    terms = _terms(training, np.asarray(servers, float), np.asarray(workers, float), batch)
    coefficients, _ = nonnegative_fit(terms * rates[:, None], np.ones(len(rates)))
    return coefficients


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
