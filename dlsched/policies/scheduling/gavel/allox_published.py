"""AlloX' matching as the published simulators find it, ties included.

Every place of every GPU is a column, k · n_i / T_ij + t_i its cost: t_i changes nothing about which
matchings are cheapest, but which of them is found. GPUs of a type are alike, so there are very many
cheapest matchings, and which job goes first depends on the one. The published one is scipy's.

A job whose X is 1 keeps it. A gang of s has X = 1/s, as in Shockwave's artifact, and does not.
"""

from __future__ import annotations

import numpy as np

from dlsched.core.arrays import Floats, Rows
from dlsched.policies.scheduling.gavel.measures import no_pairs
from dlsched.policies.scheduling.gavel.problem import Problem, Shares

__all__ = ["match_as_published"]

MOST = 20_000_000  # numbers in the table; half a second, 160 MB
NOWHERE = 1e-10  # steps/s of a job that does not run on a type


def match_as_published(problem: Problem, alpha: float = 1.0) -> Shares | None:
    """X for those that hold it already and those that are first in their queue.

    Args:
        problem: `home` says who holds what.
        alpha: the part of the waiting jobs that is looked at.

    Returns:
        None where there would be too many places to write them all down.
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
        kind = np.repeat(np.arange(len(free)), free.astype(np.int64))
        speed = problem.throughput[waiting][:, kind]
        time = problem.remaining[waiting, None] / np.where(speed == 0, NOWHERE, speed)
        depth = np.arange(1.0, count + 1)[:, None]
        cost = problem.elapsed[waiting, None, None] + depth * time[:, None, :]
        job, place = _matched(cost.reshape(count, -1))
        first = {gpu: j for j, gpu in zip(job, place % gpus, strict=True)}  # the deepest come last
        for gpu, j in first.items():
            x[waiting[j], kind[gpu]] = 1.0 / problem.scale[waiting[j]]
    return Shares(x, no_pairs(problem))


def _matched(cost: Floats) -> tuple[Rows, Rows]:
    """Rows and columns of a cheapest matching, in order of columns."""
    # it takes long to load, and few replays need it
    from scipy.optimize import linear_sum_assignment  # noqa: PLC0415

    rows, columns = linear_sum_assignment(cost)
    order = np.argsort(columns, kind="stable")
    return rows[order], columns[order]
