"""Gandiva's packing as in Gavel's code: random pairs of jobs, kept while they perform well.

If there is room for all jobs, every job gets an isolated share. Else jobs are paired at random with
others of their size; a pair stays while both jobs exist and their normalised throughputs, summed
over the types, reach 1. Every single job and every pair gets an equal share, N_j / (m s).

Source: Xiao et al., "Gandiva", OSDI 2018, through Gavel (OSDI 2020), section 7.
"""

from __future__ import annotations

import numpy as np

from dlsched.core.arrays import Floats
from dlsched.policies.scheduling.gavel.problem import Problem, Shares, isolated_share, no_pairs

DOES_WELL = 1.0  # least sum of normalised throughputs of a pair that stays

Partners = dict[int, int]  # job id -> the other's id, both ways


def pack_by_chance(
    problem: Problem, partners: Partners, rng: np.random.Generator
) -> tuple[Shares, Partners]:
    """X, and the partners of jobs from now on.

    `partners` are the previous ones, by job id.
    """
    pairs = problem.pairs
    if pairs is None or problem.scale.sum() <= problem.workers.sum():
        return Shares(isolated_share(problem), no_pairs(problem)), partners
    place = {job: position for position, job in enumerate(problem.ids.tolist())}
    number = {
        pair: position
        for position, pair in enumerate(
            zip(pairs.first.tolist(), pairs.second.tolist(), strict=True)
        )
    }
    worth = _worth(problem)
    kept: Partners = {}
    for one, other in partners.items():
        if one in place and other in place:
            pair = number.get(tuple(sorted((place[one], place[other]))))  # type: ignore[arg-type]
            if pair is not None and worth[pair] >= DOES_WELL:
                kept[one] = other
    for _ in range(problem.size):
        alone = [job for job in place if job not in kept]
        if len(alone) < 2:
            break
        one, other = (alone[k] for k in rng.choice(len(alone), size=2, replace=False).tolist())
        if tuple(sorted((place[one], place[other]))) in number:
            kept[one], kept[other] = other, one
    together = [
        number[place[one], place[other]] for one, other in kept.items() if place[one] < place[other]
    ]
    alone_x, pair_x = np.zeros(problem.throughput.shape), no_pairs(problem)
    singles = [place[job] for job in place if job not in kept]
    share = problem.workers / (len(singles) + len(together))
    alone_x[singles] = share / problem.scale[singles, None]
    pair_x[together] = share / problem.scale[pairs.first[together], None]
    return Shares(_at_most_all_the_time(alone_x), _at_most_all_the_time(pair_x)), kept


def _at_most_all_the_time(x: Floats) -> Floats:
    cut: Floats = x / np.maximum(x.sum(axis=1, keepdims=True), 1.0)
    return cut


def _worth(problem: Problem) -> Floats:
    """Normalised throughput of each pair, both jobs, summed over the types."""
    pairs = problem.pairs
    assert pairs is not None
    worth = np.zeros(len(pairs))
    for half, jobs in enumerate((pairs.first, pairs.second)):
        alone = problem.throughput[jobs]
        worth += np.divide(
            pairs.throughput[:, :, half], alone, out=np.zeros(alone.shape), where=alone > 0
        ).sum(axis=1)
    return worth
