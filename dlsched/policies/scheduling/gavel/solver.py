"""The solver: a problem in, an allocation X out, and the memory between solves.

It knows nothing of rounds. The mechanism that turns X into leases calls it after changes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dlsched.core.arrays import Floats
from dlsched.core.errors import BadInput
from dlsched.policies.scheduling.gavel.objectives.allox import match_to_places
from dlsched.policies.scheduling.gavel.objectives.by_name import CENTRED, OPTIMISED, reference_only
from dlsched.policies.scheduling.gavel.objectives.formulas import IsolatedTime
from dlsched.policies.scheduling.gavel.objectives.gandiva_packing import pack_by_chance
from dlsched.policies.scheduling.gavel.objectives.queueing import (
    in_order,
    in_order_indifferent,
    in_order_packed,
    shortest_first,
)
from dlsched.policies.scheduling.gavel.problem import Problem, Shares, no_pairs
from dlsched.policies.scheduling.gavel.solvers.linear_program import (
    NO_DEADLINE,
    Deadline,
    OutOfTime,
)

IN_TURN: Mapping[str, Callable[[Problem], Shares]] = {
    "fifo": in_order,
    "fifo-packed": in_order_packed,
    "sjf": shortest_first,
}
BY_CHANCE = ("fifo-agnostic", "gandiva")
OBJECTIVES = (*OPTIMISED, *IN_TURN, "allox", *BY_CHANCE)
REFERENCE_ONLY = {"ftf-agnostic", "makespan-agnostic"}  # know throughputs on one type only


@dataclass(frozen=True, slots=True)
class Solution:
    """X by job id.

    Attributes:
        problem: the problem that was solved, in the order of X's rows.
        shares: X.
        late: the time limit was reached, and X is the previous one.
    """

    problem: Problem
    shares: Shares
    late: bool = False


class Solver:
    """Solves one objective again and again.

    It remembers the last X (ties are broken towards it, and it is kept when a solve takes too
    long), the work that isolated shares would have done for each job, and the pairs of jobs.

    Attributes:
        clock: measures the time of a solve; None for no limit.
    """

    def __init__(
        self,
        objective: str,
        *,
        reference: str = "v100",
        alpha: float = 1.0,
        centred: bool = False,
        limit_s: float = math.inf,
        clock: Callable[[], float] | None = None,
    ) -> None:
        """Choose the objective.

        Args:
            objective: one of `OBJECTIVES`.
            reference: the GPU type whose throughputs an agnostic objective knows.
            alpha: the part of the waiting jobs that AlloX considers.
            centred: of several optima take the middle (see `CENTRED`).
            limit_s: seconds of `clock` that a solve may take.
            clock: without one there is no limit.
        """
        if objective not in OBJECTIVES:
            raise BadInput(f"objective must be one of {', '.join(OBJECTIVES)}, not {objective!r}")
        self.objective = objective
        self._reference, self._alpha = reference, alpha
        self._centred = centred
        self._limit_s, self.clock = limit_s, clock
        self._last: dict[int, Floats] = {}
        self._last_pairs: dict[tuple[int, int], Floats] = {}
        self._isolated = IsolatedTime()
        self._partners: dict[int, int] = {}

    def solve(self, problem: Problem, rng: np.random.Generator) -> Solution:
        """X for these jobs now; `home` and `isolated_s` of the problem are filled in from memory.

        Raises:
            BadInput: one line that names the job.
        """
        if not problem.size:
            self._forget()
            return Solution(problem, _nothing(problem))
        problem = replace(problem, home=self._home(problem))
        if self.objective.startswith("ftf"):
            problem.require_remaining()
            c = self._isolated.at(problem.ids, problem.remaining)
            problem = replace(problem, isolated_s=c)
        seen = problem
        if self.objective in REFERENCE_ONLY:
            seen = reference_only(problem, self._reference_type(problem))
        try:
            shares, late = self._shares(seen, rng), False
        except OutOfTime:
            shares, late = self._stay(problem), True
        if self.objective.startswith("ftf"):
            self._isolated.remember(seen)
        self._remember(problem, shares)
        return Solution(problem, shares, late)

    def _shares(self, problem: Problem, rng: np.random.Generator) -> Shares:
        if self.objective in OPTIMISED:
            clock = self.clock
            deadline = NO_DEADLINE if clock is None else Deadline(self._limit_s, clock)
            return self._optimum(problem, deadline)
        if self.objective in IN_TURN:
            return IN_TURN[self.objective](problem)
        if self.objective == "allox":
            return self._matched(problem)
        if self.objective == "fifo-agnostic":
            return in_order_indifferent(problem, rng)
        shares, self._partners = pack_by_chance(problem, self._partners, rng)
        return shares

    def _optimum(self, problem: Problem, deadline: Deadline) -> Shares:
        centred = CENTRED.get(self.objective) if self._centred else None
        return (centred or OPTIMISED[self.objective])(problem, deadline)

    def _matched(self, problem: Problem) -> Shares:
        return match_to_places(problem, self._alpha)

    def _reference_type(self, problem: Problem) -> int:
        if self._reference not in problem.types:
            raise BadInput(
                f"{self.objective} uses the speeds on {self._reference} only, but the cluster has "
                f"{', '.join(problem.types)}; choose another type with reference"
            )
        return problem.types.index(self._reference)

    def _home(self, problem: Problem) -> Floats:
        none = np.zeros(len(problem.workers))
        home = np.array([self._last.get(job, none) for job in problem.ids.tolist()])
        return (
            home if home.shape == problem.throughput.shape else np.zeros(problem.throughput.shape)
        )

    def _stay(self, problem: Problem) -> Shares:
        """The last X, for the jobs that still exist."""
        shares = _nothing(problem)
        shares.x[:] = problem.home
        if problem.pairs is not None:
            for pair, (one, other) in enumerate(_named_pairs(problem)):
                if (one, other) in self._last_pairs:
                    shares.pair_x[pair] = self._last_pairs[one, other]
        return shares

    def _remember(self, problem: Problem, shares: Shares) -> None:
        self._last = dict(zip(problem.ids.tolist(), shares.x, strict=True))
        self._last_pairs = {}
        if problem.pairs is not None and shares.pair_x.any():
            names = _named_pairs(problem)
            for pair in np.flatnonzero(shares.pair_x.any(axis=1)).tolist():
                self._last_pairs[names[pair]] = shares.pair_x[pair]

    def _forget(self) -> None:
        self._last, self._last_pairs, self._partners = {}, {}, {}
        self._isolated = IsolatedTime()

    def rename(self, place: Mapping[int, int]) -> None:
        """Follow new job ids: `place` is the new id by the old one; other jobs are forgotten."""
        self._last = {place[job]: x for job, x in self._last.items() if job in place}
        self._last_pairs = {
            (min(place[one], place[other]), max(place[one], place[other])): x
            for (one, other), x in self._last_pairs.items()
            if one in place and other in place
        }
        before = self._isolated.before
        self._isolated.before = {place[job]: known for job, known in before.items() if job in place}
        self._partners = {
            place[one]: place[other]
            for one, other in self._partners.items()
            if one in place and other in place
        }

    def state_dict(self) -> dict[str, Any]:
        """The memory as plain values."""
        return {
            "last": [[job, x.tolist()] for job, x in self._last.items()],
            "last_pairs": [[*pair, x.tolist()] for pair, x in self._last_pairs.items()],
            "isolated": [[job, *values] for job, values in self._isolated.before.items()],
            "partners": [[one, other] for one, other in self._partners.items()],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict`."""
        self._last = {int(job): np.array(x) for job, x in state["last"]}
        self._last_pairs = {(int(a), int(b)): np.array(x) for a, b, x in state["last_pairs"]}
        self._isolated = IsolatedTime()
        self._isolated.before = {
            int(job): (float(c), float(n), float(i)) for job, c, n, i in state["isolated"]
        }
        self._partners = {int(one): int(other) for one, other in state["partners"]}


def _named_pairs(problem: Problem) -> list[tuple[int, int]]:
    """The pairs by the ids of their jobs."""
    pairs = problem.pairs
    if pairs is None:
        return []
    first, second = problem.ids[pairs.first].tolist(), problem.ids[pairs.second].tolist()
    return list(zip(first, second, strict=True))


def _nothing(problem: Problem) -> Shares:
    return Shares(np.zeros(problem.throughput.shape), no_pairs(problem))
