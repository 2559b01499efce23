"""How many nodes the cluster should have, so that its GPUs are neither idle nor inefficient.

The utility of a cluster is the jobs' speedups over one GPU, per GPU. It falls as the cluster grows,
because jobs do not scale perfectly. Outside a band, the policy requests
the size at which the utility would be nearest to the middle of the band.

    rolling      by the mean of some rounds, which are then forgotten
    every-round  by this round alone, as in the library; of equally near sizes the larger
"""

from __future__ import annotations

import numpy as np

from dlsched.core.arrays import Ints
from dlsched.core.memory import Remembering, kept
from dlsched.core.sums import ordered_sum
from dlsched.policies.scheduling.pollux.blocks import find
from dlsched.policies.scheduling.pollux.options import PolluxOptions
from dlsched.policies.scheduling.pollux.problem import Problem
from dlsched.policies.scheduling.pollux.problem_of_round import RoundProblem

SIZES = 24  # most sizes that are tried in one round


class ClusterSize(Remembering):
    """The utilities of the last rounds, and the requested cluster size."""

    _utilities: list[float] = kept(list)

    def __init__(self, options: PolluxOptions) -> None:
        self._options = options

    def wanted(self, current: RoundProblem, rows: Ints, rng: np.random.Generator) -> int:
        """Nodes to request; `rows` is the state found for the present cluster."""
        options, present = self._options, len(current.nodes)
        now = _utility(current, current.problem, rows)
        low, high = options.low_utility, options.high_utility
        least = min(options.least_nodes, present)
        most = max(options.most_nodes or 2 * present, least)
        if options.autoscale == "every-round":
            if low <= now <= high:
                return present
            return self._nearest_of_all(current, least, most, rng)
        self._utilities = [*self._utilities, now][-options.window :]
        mean = ordered_sum(self._utilities) / len(self._utilities)
        grows, shrinks = mean > high and present < most, mean < low and present > least
        if len(self._utilities) < options.window or not (grows or shrinks):
            return present
        self._utilities = []
        return self._nearest_by_halving(current, least, most, rng)

    def _at(self, current: RoundProblem, nodes: int, rng: np.random.Generator) -> float:
        """The utility with so many nodes."""
        problem = current.problem.first_nodes(nodes)
        return _utility(current, problem, find(problem, rng, effort=0).rows)

    def _nearest_by_halving(
        self, current: RoundProblem, least: int, most: int, rng: np.random.Generator
    ) -> int:
        middle = 0.5 * (self._options.low_utility + self._options.high_utility)
        tried: dict[int, float] = {}
        low, high = least, most
        while low <= high:
            size = (low + high) // 2
            tried[size] = self._at(current, size, rng)
            if tried[size] > middle:
                low = size + 1
            else:
                high = size - 1
        return min(tried, key=lambda size: (abs(tried[size] - middle), size), default=least)

    def _nearest_of_all(
        self, current: RoundProblem, least: int, most: int, rng: np.random.Generator
    ) -> int:
        options = self._options
        middle = 0.5 * (options.low_utility + options.high_utility)
        spaced = np.rint(np.geomspace(least, most, SIZES)).astype(np.int64)
        sizes: list[int] = sorted(set(spaced.tolist()))
        utility = {size: self._at(current, size, rng) for size in sizes}
        good = [size for size in sizes if utility[size] >= options.low_utility]
        if not good:
            return least
        return min(good, key=lambda size: (abs(utility[size] - middle), -size))


def _utility(current: RoundProblem, problem: Problem, rows: Ints) -> float:
    """Sum of speedups over one GPU, divided by the GPUs of all nodes, used or not."""
    jobs = np.arange(problem.jobs)
    several = ((rows > 0).sum(axis=1) > 1).astype(np.int64)
    replicas = np.minimum(rows.sum(axis=1), current.single.shape[2] - 1)
    return float(current.single[jobs, several, replicas].sum() / problem.capacity.sum())
