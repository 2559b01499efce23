"""HiGHS as policies use it: one thread and no randomness, so equal programs have equal answers."""

from __future__ import annotations

import math
from dataclasses import dataclass

import highspy
import numpy as np

from dlsched.core.arrays import Floats

_FEASIBLE = 2  # HiGHS' number for a solution that keeps all bounds


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When the search for a solution stops.

    Attributes:
        gap: distance from the optimum, relative to the objective.
        nodes: most nodes of the branch-and-bound tree.
        seconds: time limit; infinite in a replay, which must not depend on the machine.
    """

    gap: float = 1e-4
    nodes: int = 20_000
    seconds: float = math.inf


def new_solver(*, seconds: float = math.inf, **options: float | str) -> highspy.Highs:
    """A solver without output, with a time limit and further options of HiGHS by name."""
    solver = highspy.Highs()  # type: ignore[no-untyped-call]  # not annotated there
    if math.isfinite(seconds):
        options["time_limit"] = max(seconds, 0.01)
    for name, value in {"output_flag": False, "threads": 1, "random_seed": 0, **options}.items():
        solver.setOptionValue(name, value)
    return solver


def best_found(
    solver: highspy.Highs, model: highspy.HighsLp, guess: Floats | None = None
) -> Floats | None:
    """Search, from a guess if there is one; None if nothing is found within the limits."""
    solver.passModel(model)
    if guess is not None:
        start = highspy.HighsSolution()
        start.col_value = guess.tolist()
        solver.setSolution(start)
    solver.run()
    if solver.getInfo().primal_solution_status != _FEASIBLE:
        return None
    return np.array(solver.getSolution().col_value)
