"""The policy `gavel`: a solver that divides time on GPU types, and a mechanism of rounds.

The solver turns a `Problem` into an allocation X; the mechanism turns X into leases on GPUs. They
know nothing of each other.

Paper, inputs and units: see the package. Throughputs are steps/s, times seconds, X fractions of
time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from dlsched.core.arrays import Rows
from dlsched.core.context import RoundContext
from dlsched.core.errors import BadInput
from dlsched.core.options import named_numbers
from dlsched.core.scheduling import SchedulingPolicy
from dlsched.core.units import Units
from dlsched.core.walk.walk import Walk
from dlsched.policies.heterogeneous.time_shares import Source, TimeShares
from dlsched.policies.scheduling.gavel.mechanisms.corrected_rounds import CorrectedRounds
from dlsched.policies.scheduling.gavel.mechanisms.plain_rounds import PlainRounds
from dlsched.policies.scheduling.gavel.options import GavelOptions
from dlsched.policies.scheduling.gavel.problem_of_round import packs, problem_of
from dlsched.policies.scheduling.gavel.solver import Solver

PLUS = "isolated-plus"
ISOLATED = ("isolated", PLUS)


class Rounds(Protocol):
    """A mechanism: it turns X into leases, and remembers what jobs received."""

    def decide(self, rows: Rows, ctx: RoundContext, walk: Walk) -> None:
        """One round of these rows."""
        ...

    def rename(self, place: Mapping[int, int]) -> None:
        """Follow new rows: `place` is the new row by the old one."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """The memory as plain values."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict`."""
        ...


class Gavel(SchedulingPolicy[GavelOptions]):
    """Fractions of time by optimisation, realised by rounds of leases.

    Attributes:
        solver: computes X.
        rounds: the mechanism, which turns X into leases.
        late: how often the last X was kept because a solve took too long.
    """

    weighs_types = True
    name = "gavel"
    summary = "time on each GPU type by optimisation (fairness, makespan, cost, …), in rounds"
    preemptive = True
    rests = False

    def __init__(self, options: GavelOptions, source: Source | None = None) -> None:
        """Make the mechanism, and the solver unless a source computes X."""
        super().__init__(options)
        named_numbers("prices", options.prices)
        named_numbers("entity_weights", options.entity_weights, may_be_zero=True)
        self.solver = self._solver()
        self.late = 0
        self.rounds = self._mechanism(self.shares if source is None else source)

    def _solver(self) -> Solver:
        options = self.options
        return Solver(
            options.objective,
            reference=options.reference,
            alpha=options.alpha,
            centred=options.settle == "centre",
            limit_s=options.solve_limit_s,
        )

    def _mechanism(self, source: Source) -> Rounds:
        options, objective = self.options, self.options.objective
        if objective == PLUS:
            raise BadInput(
                f"objective={PLUS} is for replays only, and needs -o semantics=shockwave or gavel"
            )
        if options.mechanism == "plain":
            if packs(objective):
                raise BadInput(f"objective={objective} shares GPUs, which mechanism=plain cannot")
            return PlainRounds(source)
        return CorrectedRounds(source, resolve_s=options.resolve_s, window_s=options.window_s)

    @property
    def gives_to_large_gangs(self) -> bool:
        """True where X has time for a gang on a type that has fewer GPUs than it."""
        return False

    @property
    def pairs_units(self) -> bool:
        """True for objectives that put two jobs on the same GPUs."""
        return packs(self.options.objective)

    @property
    def chooses_gpus(self) -> bool:
        """True but for the corrected rounds, as long as no jobs share GPUs."""
        return self.pairs_units or not isinstance(self.rounds, CorrectedRounds)

    def allocate(self, units: Units, ctx: RoundContext, walk: Walk) -> None:
        """One round."""
        self.rounds.decide(ctx.active, ctx, walk)

    def shares(self, rows: Rows, types: tuple[str, ...], ctx: RoundContext) -> TimeShares:
        """X by the solver; its time limit applies where the world provides a CPU clock."""
        problem = problem_of(
            rows, types, ctx, self.options, gives_to_large_gangs=self.gives_to_large_gangs
        )
        self.solver.clock = ctx.cpu_clock
        solution = self.solver.solve(problem, ctx.rng)
        self.late += solution.late
        shares = solution.shares
        no_jobs = np.zeros(0, np.int64)
        pairs = problem.pairs
        return TimeShares(
            rows=problem.ids,
            x=shares.x,
            first=no_jobs if pairs is None else problem.ids[pairs.first],
            second=no_jobs if pairs is None else problem.ids[pairs.second],
            pair_x=shares.pair_x,
        )

    def state_dict(self) -> dict[str, Any]:
        """The state of the solver and of the mechanism."""
        return {"solver": self.solver.state_dict(), "rounds": self.rounds.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict`."""
        self.solver.load_state_dict(state["solver"])
        self.rounds.load_state_dict(state["rounds"])

    def renumber(self, old: Rows, finished_gone: int) -> None:
        """Follow a table that was packed."""
        place = {int(before): row for row, before in enumerate(old.tolist()) if before >= 0}
        self.solver.rename(place)
        self.rounds.rename(place)
