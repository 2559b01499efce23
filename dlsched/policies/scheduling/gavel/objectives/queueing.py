"""Objectives that give whole GPUs to one job after the other: FIFO, packed FIFO, shortest first.

Gavel, section 4.2, as its code runs them: from the start at every solve, and the first job that
does not fit ends the scan. X is 0 or 1.
"""

from __future__ import annotations

import numpy as np

from dlsched.core.arrays import Floats, Rows
from dlsched.policies.scheduling.gavel.problem import Problem, Shares, no_pairs

WORTH_SHARING = 1.5  # two jobs share GPUs if a/T_i + b/T_k is above this


def in_order(problem: Problem, order: Rows | None = None) -> Shares:
    """In the given order (by id when None), each job gets the fastest type that has room."""
    x, _ = _served(problem, _by_id(problem) if order is None else order)
    return Shares(x, no_pairs(problem))


def shortest_first(problem: Problem) -> Shares:
    """In the order of n_i / max_j T_ij, then id."""
    problem.require_remaining()
    return in_order(problem, np.argsort(problem.remaining / problem.best, kind="stable"))


def in_order_indifferent(problem: Problem, rng: np.random.Generator) -> Shares:
    """Running jobs stay; the others, by id, take a random type that has room."""
    free = problem.workers.copy()
    x = np.where(problem.home >= 1.0, 1.0, 0.0)
    free -= (problem.scale[:, None] * x).sum(axis=0)
    for job in _by_id(problem).tolist():
        if x[job].any():
            continue
        roomy = np.flatnonzero((free >= problem.scale[job]) & (problem.throughput[job] > 0))
        if not len(roomy):
            break
        gpu_type = roomy[rng.integers(len(roomy))]
        x[job, gpu_type] = 1.0
        free[gpu_type] -= problem.scale[job]
    return Shares(x, no_pairs(problem))


def in_order_packed(problem: Problem) -> Shares:
    """FIFO; then waiting jobs, in order, share the GPUs of a running job while that pays."""
    x, waiting = _served(problem, _by_id(problem))
    pair_x = no_pairs(problem)
    pairs = problem.pairs
    if pairs is None:
        return Shares(x, pair_x)
    with np.errstate(divide="ignore", invalid="ignore"):
        together = (
            pairs.throughput[:, :, 0] / problem.throughput[pairs.first]
            + pairs.throughput[:, :, 1] / problem.throughput[pairs.second]
        )
    together = np.nan_to_num(together, nan=0.0, posinf=0.0)
    for job in waiting:
        here = np.flatnonzero((pairs.first == job) | (pairs.second == job))
        partner = pairs.first[here] + pairs.second[here] - job
        gain = np.where(x[partner] > 0, together[here], 0.0)
        if not gain.size or gain.max() <= WORTH_SHARING:
            break
        best, gpu_type = np.unravel_index(gain.argmax(), gain.shape)
        pair_x[here[best], gpu_type] = 1.0
        x[partner[best]] = 0.0
    return Shares(x, pair_x)


def _by_id(problem: Problem) -> Rows:
    return np.arange(problem.size)


def _served(problem: Problem, order: Rows) -> tuple[Floats, list[int]]:
    """X, and the jobs that still wait."""
    free = problem.workers.tolist()
    speeds, scales = problem.throughput.tolist(), problem.scale.tolist()
    x = np.zeros(problem.throughput.shape)
    jobs = order.tolist()
    for place, job in enumerate(jobs):
        roomy = [gpu_type for gpu_type, room in enumerate(free) if room >= scales[job]]
        if not roomy:
            return x, jobs[place:]
        gpu_type = max(roomy, key=lambda gpu_type: speeds[job][gpu_type])
        if speeds[job][gpu_type] <= 0:
            continue  # no type with room runs this job; the next ones go on
        x[job, gpu_type] = 1.0
        free[gpu_type] -= scales[job]
    return x, []
