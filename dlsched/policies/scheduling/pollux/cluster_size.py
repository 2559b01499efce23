"""How many nodes the cluster should have: GPUs are to be used well, and not to idle.

The utility of a cluster is the jobs' speedups over one GPU, per GPU. It falls as the cluster grows,
because jobs do not scale perfectly. Outside a band the size is sought at which it would be nearest
to the band's middle.

    rolling      the mean of some rounds decides; then they are forgotten
    every-round  this round decides, as in the library; of equally near sizes the larger
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dlsched.core.arrays import Ints
from dlsched.policies.scheduling.pollux.blocks import find
from dlsched.policies.scheduling.pollux.options import PolluxOptions
from dlsched.policies.scheduling.pollux.problem import Problem
from dlsched.policies.scheduling.pollux.question import Question

__all__ = ["ClusterSize"]

SIZES = 24  # that are tried at most in one round


class ClusterSize:
    """Utilities of the last rounds, and what follows from them."""

    def __init__(self, options: PolluxOptions) -> None:
        self._options = options
        self._utilities: list[float] = []

    def wanted(self, question: Question, rows: Ints, rng: np.random.Generator) -> int:
        """Nodes to ask for.

        Args:
            question: of this round.
            rows: what was found for the cluster as it is.
            rng: for the searches at other sizes.
        """
        options, present = self._options, len(question.nodes)
        now = _utility(question, question.problem, rows)
        low, high = options.low_utility, options.high_utility
        least = min(options.least_nodes, present)
        most = max(options.most_nodes or 2 * present, least)
        if options.autoscale == "every-round":
            if low <= now <= high:
                return present
            return self._nearest_of_all(question, least, most, rng)
        self._utilities = [*self._utilities, now][-options.window :]
        mean = sum(self._utilities) / len(self._utilities)
        grows, shrinks = mean > high and present < most, mean < low and present > least
        if len(self._utilities) < options.window or not (grows or shrinks):
            return present
        self._utilities = []
        return self._nearest_by_halving(question, least, most, rng)

    def _at(self, question: Question, nodes: int, rng: np.random.Generator) -> float:
        """Utility with so many nodes."""
        problem = question.problem.first_nodes(nodes)
        return _utility(question, problem, find(problem, rng, effort=0).rows)

    def _nearest_by_halving(
        self, question: Question, least: int, most: int, rng: np.random.Generator
    ) -> int:
        middle = 0.5 * (self._options.low_utility + self._options.high_utility)
        tried: dict[int, float] = {}
        low, high = least, most
        while low <= high:
            size = (low + high) // 2
            tried[size] = self._at(question, size, rng)
            if tried[size] > middle:
                low = size + 1
            else:
                high = size - 1
        return min(tried, key=lambda size: (abs(tried[size] - middle), size), default=least)

    def _nearest_of_all(
        self, question: Question, least: int, most: int, rng: np.random.Generator
    ) -> int:
        options = self._options
        middle = 0.5 * (options.low_utility + options.high_utility)
        spaced = np.rint(np.geomspace(least, most, SIZES)).astype(np.int64)
        sizes: list[int] = sorted(set(spaced.tolist()))
        utility = {size: self._at(question, size, rng) for size in sizes}
        good = [size for size in sizes if utility[size] >= options.low_utility]
        if not good:
            return least
        return min(good, key=lambda size: (abs(utility[size] - middle), -size))

    def state_dict(self) -> dict[str, Any]:
        """The utilities."""
        return {"utilities": list(self._utilities)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state_dict`."""
        self._utilities = [float(utility) for utility in state["utilities"]]


def _utility(question: Question, problem: Problem, rows: Ints) -> float:
    """Speedups over one GPU, per GPU of all nodes, used or not."""
    jobs = np.arange(problem.jobs)
    several = ((rows > 0).sum(axis=1) > 1).astype(np.int64)
    replicas = np.minimum(rows.sum(axis=1), question.single.shape[2] - 1)
    return float(question.single[jobs, several, replicas].sum() / problem.capacity.sum())
