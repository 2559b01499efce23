"""What jobs get, and yardsticks of fairness: what they would get from an equal split.

Source: Gavel (OSDI 2020), section 4.1; formulas as its artifact computes them.
"""

from __future__ import annotations

import numpy as np

from dlsched.core.arrays import Floats
from dlsched.policies.scheduling.gavel.problem import Problem, Shares

__all__ = ["isolated_rate", "isolated_share", "no_pairs", "proportional_rate", "rates"]


def proportional_rate(problem: Problem) -> Floats:
    """Throughput of each job under an equal split of its time, P_i = Σ_j T_ij N_j / Σ_j N_j.

    Steps/s. The scale factor does not enter, and the split always fills the job's whole time.
    """
    workers = problem.workers
    rate: Floats = (problem.throughput * workers).sum(axis=1) / workers.sum()
    return rate


def isolated_share(problem: Problem) -> Floats:
    """Time on each type if the cluster were cut into equal slices, x_ij = N_j / (m s_i).

    Rows that would add up to more than 1 are scaled down to 1.
    """
    x = problem.workers / (max(problem.size, 1) * problem.scale[:, None])
    share: Floats = x / np.maximum(x.sum(axis=1, keepdims=True), 1.0)
    return share


def isolated_rate(problem: Problem) -> Floats:
    """Throughput under the isolated share, I_i = Σ_j T_ij x_ij, in steps/s."""
    rate: Floats = (problem.throughput * isolated_share(problem)).sum(axis=1)
    return rate


def rates(problem: Problem, shares: Shares) -> Floats:
    """Throughput of each job under X, alone and in pairs, in steps/s."""
    rate: Floats = (problem.throughput * shares.x).sum(axis=1)
    if problem.pairs is not None and shares.pair_x.any():
        steps = problem.pairs.throughput * shares.pair_x[:, :, None]
        np.add.at(rate, problem.pairs.first, steps[:, :, 0].sum(axis=1))
        np.add.at(rate, problem.pairs.second, steps[:, :, 1].sum(axis=1))
    return rate


def no_pairs(problem: Problem) -> Floats:
    """No time in any pair, [pair, type]."""
    count = 0 if problem.pairs is None else len(problem.pairs)
    return np.zeros((count, len(problem.workers)))
