"""The policy `gavel` with the solver and the rounds of its published simulator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from dlsched.core.options import option
from dlsched.policies.heterogeneous.time_shares import Source
from dlsched.policies.scheduling.gavel.objectives.allox import match_to_places
from dlsched.policies.scheduling.gavel.options import GavelOptions
from dlsched.policies.scheduling.gavel.policy import ISOLATED, PLUS, Gavel, Rounds
from dlsched.policies.scheduling.gavel.problem import Problem, Shares
from dlsched.policies.scheduling.gavel.problem_of_round import packs
from dlsched.policies.scheduling.gavel.solver import Solver
from dlsched.policies.scheduling.gavel.solvers.linear_program import Deadline
from simulate.published.gavel.allox_matching import match_as_published
from simulate.published.gavel.interior_point import Unsolved
from simulate.published.gavel.programs import AS_PUBLISHED
from simulate.published.gavel.rounds import PublishedRounds


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedGavelOptions(GavelOptions):
    """Gavel, where time passes as in its simulator."""

    mechanism: Literal["corrected", "published", "plain"] = option(  # type: ignore[assignment]  # one word more
        "corrected",
        "how the allocation X becomes leases: our rounds, those of Gavel's simulator, or Sia's",
    )
    queue: Literal["by-type", "one"] = option(
        "by-type", "one queue for each GPU type, or one queue for all of them (published)"
    )
    settle: Literal["leximin", "centre", "published"] = option(  # type: ignore[assignment]  # one word more
        "leximin",
        "which of several optimal allocations: leximin with few changes, the middle of all, or the "
        "one that the published solver finds",
    )


class PublishedSolver(Solver):
    """Takes, of several optima, the one of the published solver."""

    def _optimum(self, problem: Problem, deadline: Deadline) -> Shares:
        published = AS_PUBLISHED.get(self.objective)
        if published is not None:
            try:
                return published(problem, deadline)
            except Unsolved:
                pass  # the other solvers may still find an optimum
        return super()._optimum(problem, deadline)

    def _matched(self, problem: Problem) -> Shares:
        found = match_as_published(problem, self._alpha)
        return match_to_places(problem, self._alpha) if found is None else found


class PublishedGavel(Gavel):
    """Gavel with the mechanism and the optima of its simulator, unless options say otherwise."""

    Options: ClassVar[type[PublishedGavelOptions]] = PublishedGavelOptions
    options: PublishedGavelOptions

    @property
    def gives_to_large_gangs(self) -> bool:
        """The published program gives a gang time on types that have fewer GPUs than it."""
        return self.options.mechanism == "published"

    def _solver(self) -> Solver:
        options = self.options
        if options.settle != "published":
            return super()._solver()
        return PublishedSolver(
            options.objective,
            reference=options.reference,
            alpha=options.alpha,
            centred=True,
            limit_s=options.solve_limit_s,
        )

    def _mechanism(self, source: Source) -> Rounds:
        options, objective = self.options, self.options.objective
        if options.mechanism != "published":
            return super()._mechanism(source)
        return PublishedRounds(
            source,
            resolve_s=options.resolve_s,
            shuffles=objective in ISOLATED or objective.endswith("-agnostic"),
            only_entitled=objective.startswith("fifo"),
            packs=packs(objective),
            one_queue=options.queue == "one",
            strict_order=objective == PLUS,
            seed=options.seed,
        )
