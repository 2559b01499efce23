"""HiGHS as policies use it: one thread and no randomness, so equal programs have equal answers."""

from __future__ import annotations

import functools
import math
import os
import threading
from dataclasses import dataclass

import highspy
import numpy as np

from dlsched.core.arrays import Floats

_FEASIBLE = 2  # HiGHS' number for a solution that keeps all bounds
_STDOUT = 1
_first = threading.Lock()  # only one thread makes the first solver


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
    with _first:
        _print_banner_nowhere()
    solver = highspy.Highs()  # type: ignore[no-untyped-call]  # not annotated there
    if math.isfinite(seconds):
        options["time_limit"] = max(seconds, 0.01)
    for name, value in {"output_flag": False, "threads": 1, "random_seed": 0, **options}.items():
        solver.setOptionValue(name, value)
    return solver


@functools.cache
def _print_banner_nowhere() -> None:
    """Make the first solver of the process while standard output leads nowhere.

    HiGHS prints its version when a process makes its first solver, before any option can be set.
    That would stand between the lines of a command's own output.
    """
    try:
        output = os.dup(_STDOUT)
    except OSError:  # closed: HiGHS can't print there either
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, _STDOUT)
        highspy.Highs()  # type: ignore[no-untyped-call]  # not annotated there
    finally:
        os.dup2(output, _STDOUT)
        os.close(output)
        os.close(nowhere)


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


class MixedProgram:
    """The columns and rows of one mixed-integer program, passed to HiGHS at once."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.cost: list[float] = []
        self.low: list[float] = []
        self.high: list[float] = []
        self.whole: list[bool] = []
        self.rows: list[tuple[float, float, list[int], list[float]]] = []

    def column(self, cost: float, low: float, high: float, *, whole: bool = False) -> int:
        """Add a variable within bounds; returns its number."""
        self.cost.append(cost)
        self.low.append(low)
        self.high.append(high)
        self.whole.append(whole)
        return len(self.cost) - 1

    def row(self, low: float, high: float, entries: dict[int, float]) -> None:
        """Add bounds for a sum of variables, by number each with its factor."""
        self.rows.append((low, high, list(entries), list(entries.values())))

    def solve(self, limits: Limits, start: Floats | None) -> tuple[Floats, float, float] | None:
        """Maximise; returns x, objective and gap, or None when no solution was found."""
        solver = new_solver(
            seconds=limits.seconds,
            mip_rel_gap=limits.gap,
            mip_abs_gap=0.0,  # weights span many orders of magnitude
            mip_max_nodes=limits.nodes,
        )
        model = highspy.HighsLp()
        model.num_col_, model.num_row_ = len(self.cost), len(self.rows)
        model.sense_ = highspy.ObjSense.kMaximize
        model.col_cost_ = np.array(self.cost)
        model.col_lower_, model.col_upper_ = np.array(self.low), np.array(self.high)
        model.row_lower_ = np.array([low for low, *_ in self.rows])
        model.row_upper_ = np.array([high for _, high, *_ in self.rows])
        counts = [len(index) for *_, index, _ in self.rows]
        matrix = model.a_matrix_
        matrix.format_ = highspy.MatrixFormat.kRowwise
        matrix.start_ = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        matrix.index_ = np.array([i for *_, index, _ in self.rows for i in index], np.int32)
        matrix.value_ = np.array([v for *_, values in self.rows for v in values])
        kinds = highspy.HighsVarType
        model.integrality_ = [kinds.kInteger if each else kinds.kContinuous for each in self.whole]
        x = best_found(solver, model, start)
        if x is None:
            return None
        info = solver.getInfo()
        gap = float(info.mip_gap) if math.isfinite(info.mip_gap) else 0.0
        return x, float(info.objective_function_value), gap
