"""Gavel's problems written out as the linear programs of the paper, to compare with.

Nothing here is clever: every constraint is a row, saturation is tested job by job, ρ is bisected.
It shares with the product only the solver underneath.
"""

from __future__ import annotations

from collections.abc import Callable

import highspy
import numpy as np

from dlsched.core.arrays import Bools, Floats
from dlsched.policies.scheduling.gavel import Problem
from dlsched.policies.scheduling.gavel.problem import isolated_rate, proportional_rate

__all__ = [
    "Programs",
    "largest_earning",
    "least_makespan",
    "least_rho",
    "levels_by_water_filling",
    "maximise",
]

RELAXED = 1e-9  # levels reached before may be missed by so much, or rounding makes them infeasible
SATURATED = 2e-6  # what cannot be raised by more than this is


def maximise(worth: Floats, rows: Floats, low: Floats, high: Floats) -> tuple[float, Floats] | None:
    """Maximise worth · x with low ≤ rows · x ≤ high, x ≥ 0; None when it cannot be done."""
    count = len(worth)
    solver = highspy.Highs()
    tight = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    for name, value in {"output_flag": False, "threads": 1, **tight}.items():
        solver.setOptionValue(name, value)
    solver.addCols(
        count,
        -worth,
        np.zeros(count),
        np.full(count, np.inf),
        0,
        np.zeros(count, np.int32),
        np.zeros(0, np.int32),
        np.zeros(0),
    )
    columns = np.tile(np.arange(count, dtype=np.int32), len(rows))
    starts = np.arange(0, rows.size, count, dtype=np.int32)
    solver.addRows(len(rows), low, high, rows.size, starts, columns, rows.ravel())
    solver.run()
    if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        return None
    return -solver.getInfo().objective_function_value, np.array(solver.getSolution().col_value)


class Programs:
    """The constraints B over jobs alone and, if the problem has pairs, over pairs."""

    def __init__(self, problem: Problem, *, packed: bool = False) -> None:
        count, kinds = problem.throughput.shape
        pairs = problem.pairs if packed else None
        wide = count + (0 if pairs is None else len(pairs))
        self.rate = np.zeros((count, wide * kinds))  # steps/s of each job per unit of x
        time = np.zeros((count, wide * kinds))
        use = np.zeros((kinds, wide * kinds))
        for job in range(count):
            for kind in range(kinds):
                column = job * kinds + kind
                self.rate[job, column] = problem.throughput[job, kind]
                time[job, column] = 1.0
                use[kind, column] = problem.scale[job]
        if pairs is not None:
            for pair, (one, other) in enumerate(zip(pairs.first, pairs.second, strict=True)):
                for kind in range(kinds):
                    column = (count + pair) * kinds + kind
                    self.rate[one, column], self.rate[other, column] = pairs.throughput[pair, kind]
                    time[[one, other], column] = 1.0
                    use[kind, column] = problem.scale[one]
        self.rows = np.concatenate([time, use])
        self.high = np.concatenate([np.ones(count), problem.workers])
        self.low = np.full(len(self.high), -np.inf)
        self.count = count

    def best(self, worth: Floats, least: Floats | None = None) -> tuple[float, Floats] | None:
        """Maximise worth · x, with at least so many steps/s for every job."""
        if least is None:
            return maximise(worth, self.rows, self.low, self.high)
        return maximise(
            worth,
            np.concatenate([self.rows, self.rate]),
            np.concatenate([self.low, least]),
            np.concatenate([self.high, np.full(self.count, np.inf)]),
        )

    def common(self, slope: Floats, start: Floats) -> float:
        """The largest c with rate_i ≥ start_i + slope_i c for all jobs."""
        rows = np.concatenate([self.rows, self.rate])
        last = np.concatenate([np.zeros(len(self.rows)), -slope])
        found = maximise(
            np.append(np.zeros(rows.shape[1]), 1.0),
            np.column_stack([rows, last]),
            np.concatenate([self.low, start]),
            np.concatenate([self.high, np.full(self.count, np.inf)]),
        )
        assert found is not None
        return found[0]


def levels_by_water_filling(
    problem: Problem, weights: Callable[[Bools], Floats], *, packed: bool = False
) -> Floats:
    """Normalised throughputs y of water filling (Gavel, section 4.3), saturation tested job by job.

    Args:
        problem: the jobs.
        weights: ω by job, given which jobs are saturated.
        packed: with pairs.
    """
    programs, unit = Programs(problem, packed=packed), proportional_rate(problem)
    y = np.zeros(problem.size)
    saturated = np.zeros(problem.size, np.bool_)
    for _ in range(4 * problem.size + 4):
        omega = np.where(saturated, 0.0, weights(saturated))
        if not (omega > 0).any():
            return y
        rise = programs.common(omega * unit / problem.scale, y * unit * (1 - RELAXED))
        y = y + omega * rise / problem.scale
        for job in np.flatnonzero(~saturated).tolist():
            found = programs.best(programs.rate[job], y * unit * (1 - RELAXED))
            assert found is not None
            saturated[job] = found[0] <= y[job] * unit[job] * (1 + SATURATED) + SATURATED
    raise AssertionError("water filling does not end")


def least_makespan(problem: Problem, *, packed: bool = False) -> float:
    """T* = 1 / max τ."""
    return 1 / Programs(problem, packed=packed).common(problem.remaining, np.zeros(problem.size))


def least_rho(problem: Problem, *, packed: bool = False) -> float:
    """min max ρ by bisection over feasibility."""
    programs = Programs(problem, packed=packed)
    allowed = problem.isolated_s + problem.remaining / isolated_rate(problem)
    low = float((problem.elapsed / allowed).max())
    high = max(2 * low, 1.0)

    def fits(rho: float) -> bool:
        time = rho * allowed - problem.elapsed
        if (time <= 0).any():
            return False
        nothing = np.zeros(programs.rate.shape[1])
        return programs.best(nothing, problem.remaining / time) is not None

    while not fits(high):
        high *= 2
    while high - low > 1e-8 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


def largest_earning(problem: Problem, worth: Floats, least: Floats | None = None) -> float | None:
    """max Σ worth · x; None when the least throughputs do not fit."""
    found = Programs(problem).best(worth.ravel(), least)
    return None if found is None else found[0]
