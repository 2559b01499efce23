"""AlloX' matching exactly as the published simulators find it, including ties.

Every place of every GPU is a column with cost k · n_i / T_ij + t_i. The term t_i does not change
which matchings are cheapest, but it changes which of them is found. GPUs of a type are alike, so
there are very many cheapest matchings, and the order of jobs depends on the chosen one. The
published simulators use scipy's.

A job whose X is 1 keeps it. A gang of s has X = 1/s, as in Shockwave's artifact, and does not.
"""

from __future__ import annotations

import numpy as np

from dlsched.core.arrays import Floats, Rows
from dlsched.policies.blas import one_thread
from dlsched.policies.scheduling.gavel.problem import Problem, Shares, no_pairs

MOST = 20_000_000  # numbers in the cost table; half a second, 160 MB
NOWHERE = 1e-10  # steps/s of a job that does not run on a type


def match_as_published(problem: Problem, alpha: float = 1.0) -> Shares | None:
    """X for the jobs that have it already and for the first jobs of each queue.

    `home` is 1 where a job runs already; `alpha` is the part of the waiting jobs that is
    considered.

    Returns:
        X, or None where the cost table would be too large.
    """
    problem.require_remaining()
    x: Floats = np.where(problem.home >= 1.0, problem.home, 0.0)
    free = np.floor(problem.workers - (problem.scale[:, None] * x).sum(axis=0) + 0.5)
    waiting = np.flatnonzero(~x.any(axis=1))
    waiting = waiting[np.argsort(-problem.elapsed[waiting], kind="stable")]
    waiting = waiting[: max(int(alpha * len(waiting)), int(free.sum()))]
    count, gpus = len(waiting), int(free.sum())
    if count * count * gpus > MOST:
        return None
    if count and gpus:
        gpu_type = np.repeat(np.arange(len(free)), free.astype(np.int64))
        speed = problem.throughput[waiting][:, gpu_type]
        time = problem.remaining[waiting, None] / np.where(speed == 0, NOWHERE, speed)
        depth = np.arange(1.0, count + 1)[:, None]
        cost = problem.elapsed[waiting, None, None] + depth * time[:, None, :]
        job, place = _matched(cost.reshape(count, -1))
        first = {gpu: j for j, gpu in zip(job, place % gpus, strict=True)}  # the deepest come last
        for gpu, j in first.items():
            x[waiting[j], gpu_type[gpu]] = 1.0 / problem.scale[waiting[j]]
    return Shares(x, no_pairs(problem))


def _matched(cost: Floats) -> tuple[Rows, Rows]:
    """Rows and columns of a cheapest matching, in order of columns."""
    # scipy takes long to import, and few replays need it
    with one_thread():
        from scipy.optimize import linear_sum_assignment  # noqa: PLC0415

    rows, columns = linear_sum_assignment(cost)
    order = np.argsort(columns, kind="stable")
    return rows[order], columns[order]
