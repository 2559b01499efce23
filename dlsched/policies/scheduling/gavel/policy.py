"""The policy `gavel`: a solver that says who should have how much time where, and rounds of leases.

The two know nothing of each other. The solver turns a problem into X; the mechanism turns X into
GPUs, whoever made it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from dlsched.core.arrays import Rows
from dlsched.core.context import RoundContext
from dlsched.core.errors import BadInput
from dlsched.core.scheduling import SchedulingPolicy
from dlsched.core.units import Units
from dlsched.core.walk import Walk
from dlsched.policies.scheduling.gavel.options import GavelOptions
from dlsched.policies.scheduling.gavel.plain_rounds import PlainRounds
from dlsched.policies.scheduling.gavel.published_rounds import PublishedRounds
from dlsched.policies.scheduling.gavel.question import named_numbers, packs, problem_of
from dlsched.policies.scheduling.gavel.rounds import Rounds
from dlsched.policies.scheduling.gavel.solver import Solver
from dlsched.policies.scheduling.gavel.time_shares import Source, TimeShares

__all__ = ["Gavel"]

PLUS = "isolated-plus"
ISOLATED = ("isolated", PLUS)


class Gavel(SchedulingPolicy[GavelOptions]):
    """Fractions of time by optimisation, realised by rounds of leases.

    Attributes:
        solver: makes X.
        rounds: makes leases of it.
        late: how often the last X stayed, because a solve took too long.
    """

    name = "gavel"
    summary = "time on each GPU type by optimisation (fairness, makespan, cost, …), in rounds"
    Options: ClassVar[type[Any]] = GavelOptions
    preemptive = True
    rests = False

    def __init__(self, options: GavelOptions, source: Source | None = None) -> None:
        """Make solver and mechanism.

        Args:
            options: see `GavelOptions`.
            source: where X comes from; the solver when None.
        """
        super().__init__(options)
        named_numbers("prices", options.prices)
        named_numbers("entity_weights", options.entity_weights, may_be_nothing=True)
        objective = options.objective
        self.solver = Solver(
            objective,
            reference=options.reference,
            alpha=options.alpha,
            centred=options.settle == "centre",
            as_published=options.settle == "published",
            limit_s=options.solve_limit_s,
        )
        asked = self.shares if source is None else source
        self.late = 0
        self.rounds: PublishedRounds | PlainRounds | Rounds
        if options.mechanism == "published":
            self.rounds = PublishedRounds(
                asked,
                resolve_s=options.resolve_s,
                shuffles=objective in ISOLATED or objective.endswith("-agnostic"),
                only_entitled=objective.startswith("fifo"),
                packs=packs(objective),
                one_queue=options.queue == "one",
                nobody_overtakes=objective == PLUS,
                seed=options.seed,
            )
        elif objective == PLUS:
            raise BadInput(
                f"objective={PLUS} is one of the published rounds: -o semantics=shockwave, or gavel"
            )
        elif options.mechanism == "plain":
            if packs(objective):
                raise BadInput(f"mechanism=plain knows no pairs, which objective={objective} needs")
            self.rounds = PlainRounds(asked)
        else:
            self.rounds = Rounds(asked, resolve_s=options.resolve_s, window_s=options.window_s)

    @property
    def pairs_units(self) -> bool:
        """Objectives that pack do."""
        return packs(self.options.objective)

    def allocate(self, units: Units, ctx: RoundContext, walk: Walk) -> None:
        """One round."""
        self.rounds.decide(ctx.active, ctx, walk)

    def shares(self, rows: Rows, types: tuple[str, ...], ctx: RoundContext) -> TimeShares:
        """X by the solver; what a solve may cost is measured where the world lends a clock."""
        problem = problem_of(rows, types, ctx, self.options)
        self.solver.clock = ctx.cpu_clock
        solution = self.solver.solve(problem, ctx.rng)
        self.late += solution.late
        shares = solution.shares
        nobody = np.zeros(0, np.int64)
        pairs = problem.pairs
        return TimeShares(
            rows=problem.ids,
            x=shares.x,
            first=nobody if pairs is None else problem.ids[pairs.first],
            second=nobody if pairs is None else problem.ids[pairs.second],
            pair_x=shares.pair_x,
        )

    def state_dict(self) -> dict[str, Any]:
        """Of the solver and of the rounds."""
        return {"solver": self.solver.state_dict(), "rounds": self.rounds.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state_dict`."""
        self.solver.load_state_dict(state["solver"])
        self.rounds.load_state_dict(state["rounds"])

    def renumber(self, old: Rows, finished_gone: int) -> None:
        """Jobs have other row numbers now."""
        place = {int(before): row for row, before in enumerate(old.tolist()) if before >= 0}
        self.solver.rename(place)
        self.rounds.rename(place)
