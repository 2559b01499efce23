"""A linear program in HiGHS that grows: rows first, then columns, solved again and again.

One thread, no presolve and no random start, so that the same program gives the same answer. After
columns were added the last basis is still feasible and the primal simplex goes on from it; after
row bounds were moved it is still dual feasible and the dual simplex does.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import highspy
import numpy as np

from dlsched.core.arrays import Floats, Ints
from dlsched.core.errors import PolicyFailed, Unavailable
from dlsched.policies.highs import new_solver

TOLERANCE = 1e-10  # the smallest that HiGHS accepts; levels are compared at 1e-9
DUAL, PRIMAL = 1, 4  # HiGHS' numbers for the two simplex methods
_NONE = np.zeros(0, np.int32)


class OutOfTime(Unavailable):
    """A solve reached its time limit; the previous allocation stays."""


class Deadline:
    """The time limit of a solve, in CPU seconds of this process.

    A policy has no clock, so the clock is passed in. Replays have no limit, since with one their
    results would depend on the machine.
    """

    def __init__(self, limit_s: float, clock: Callable[[], float]) -> None:
        self._limit_s = limit_s
        self._clock = clock
        self._until = clock() + limit_s

    def left(self) -> float:
        """Seconds left.

        Raises:
            OutOfTime: the limit is reached.
        """
        left = self._until - self._clock()
        if left <= 0:
            raise OutOfTime(f"no allocation within {self._limit_s:g} s")
        return left

    def check(self) -> None:
        """Raise OutOfTime if the limit is reached."""
        self.left()


def _stopped_clock() -> float:
    return 0.0


NO_DEADLINE = Deadline(math.inf, _stopped_clock)


class LinearProgram:
    """Minimise cost·x subject to low ≤ Ax ≤ high, x ≥ 0."""

    def __init__(self, low: Floats, high: Floats, deadline: Deadline) -> None:
        self._deadline = deadline
        self._rows = np.arange(len(low), dtype=np.int32)
        self._columns = 0
        self._solver = new_solver(
            presolve="off",
            primal_feasibility_tolerance=TOLERANCE,
            dual_feasibility_tolerance=TOLERANCE,
        )
        self._solver.addRows(len(low), low, high, 0, _NONE, _NONE, np.zeros(0))

    def add(self, cost: float, rows: Ints, values: Floats) -> None:
        """Add a column with values in these rows."""
        self._solver.addCol(cost, 0.0, np.inf, len(rows), rows.astype(np.int32), values)
        self._columns += 1

    def add_dense(self, cost: float, values: Floats) -> None:
        """Add a column with a value in every row."""
        self._solver.addCol(cost, 0.0, np.inf, len(values), self._rows, values)
        self._columns += 1

    def add_many(self, cost: Floats, rows: Ints, values: Floats) -> None:
        """Add columns with equally many entries each; `rows` and `values` are [column, entry]."""
        count, entries = rows.shape
        start = np.arange(0, count * entries, entries, dtype=np.int32)
        index = rows.astype(np.int32).ravel()
        self._solver.addCols(
            count,
            cost,
            np.zeros(count),
            np.full(count, np.inf),
            count * entries,
            start,
            index,
            values.ravel(),
        )
        self._columns += count

    def bound_rows(self, rows: Ints, low: Floats, high: Floats) -> None:
        """Change the bounds of some rows."""
        change = self._solver.changeRowsBounds  # type: ignore[attr-defined]  # not in its stubs
        change(len(rows), rows.astype(np.int32), low, high)

    def price_columns(self, cost: Floats) -> None:
        """Change the costs of all columns."""
        columns = np.arange(self._columns, dtype=np.int32)
        self._solver.changeColsCost(self._columns, columns, cost)

    def bound_column(self, column: int, low: float, high: float) -> None:
        """Change the bounds of one column."""
        self._solver.changeColBounds(column, low, high)

    def solve(self, method: int = PRIMAL) -> tuple[float, Floats, Floats]:
        """Solve it with one of the simplex methods.

        Returns:
            the least cost, x, and the dual value of each row (cost saved per unit of its bound).

        Raises:
            OutOfTime: the deadline has passed.
            PolicyFailed: there is no solution, or the solver gave up.
        """
        status = self._run(method)
        if status == highspy.HighsModelStatus.kUnknown:  # lost in rounding on the way from the
            self._solver.clearSolver()  # last basis: begin without one, by the other method
            status = self._run(DUAL if method == PRIMAL else PRIMAL)
        if status != highspy.HighsModelStatus.kOptimal:
            raise PolicyFailed(f"the linear program has no solution: {status.name}")
        solution = self._solver.getSolution()
        value = self._solver.getInfo().objective_function_value
        return float(value), np.array(solution.col_value), -np.array(solution.row_dual)

    def _run(self, method: int) -> highspy.HighsModelStatus:
        self._solver.setOptionValue("simplex_strategy", method)
        self._solver.setOptionValue("time_limit", self._solver.getRunTime() + self._deadline.left())
        self._solver.run()
        status = self._solver.getModelStatus()
        if status == highspy.HighsModelStatus.kTimeLimit:
            self._deadline.check()
        return status
