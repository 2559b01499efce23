"""Max-min fairness over normalised throughputs: flat, water-filled, hierarchical.

Gavel, sections 4.1 and 4.3. y_i = Σ_j T_ij x_ij / P_i is job i's throughput against an equal split.

- flat:         max_X min_i  s_i y_i / w_i
- hierarchical: entities of weight W_e share by weight; inside one, jobs share by weight or come
                in turn. ω_i = W_e w_i / Σ w of the entity's jobs that can still rise, or W_e for
                the first that can.

Both are solved by water filling: the worst-off are raised as far as they go, then the next. For
the flat one this is one of many optima, the leximin one. Heterogeneity-agnostic is the same with
all T_ij = 1.
"""

from __future__ import annotations

import numpy as np

from dlsched.core.arrays import Floats
from dlsched.policies.scheduling.gavel.measures import proportional_rate
from dlsched.policies.scheduling.gavel.problem import Problem
from dlsched.policies.scheduling.gavel.rising import EntityLine, Line

__all__ = ["entity_line", "fair_line", "fairness_value", "indifferent"]


def indifferent(problem: Problem) -> Problem:
    """The problem as a policy sees it that takes all GPU types for equal."""
    return problem.with_throughput((problem.throughput > 0).astype(np.float64))


def fair_line(problem: Problem) -> Line:
    """At level c, y_i = c w_i / s_i, so the pace is c w_i P_i / (s_i max_j T_ij)."""
    slope = problem.weight * proportional_rate(problem) / (problem.scale * problem.best)
    return Line(np.zeros(problem.size), slope)


def entity_line(problem: Problem) -> EntityLine:
    """At level c an entity's jobs have Σ_i s_i y_i = c W_e between them."""
    number = {job: n for n, entity in enumerate(problem.entities) for job in entity.jobs}
    return EntityLine(
        start=np.zeros(problem.size),
        need=problem.scale * problem.best / proportional_rate(problem),
        weight=problem.weight,
        entity=np.array([number[job] for job in problem.ids.tolist()], np.int64),
        entity_weight=np.array([float(entity.weight) for entity in problem.entities]),
        in_turn=np.array([entity.policy == "fifo" for entity in problem.entities]),
    )


def fairness_value(problem: Problem, rate: Floats) -> float:
    """min_i s_i y_i / w_i over jobs with a weight, for throughputs in steps/s."""
    entitled = problem.weight > 0
    level = (problem.scale * rate)[entitled] / (problem.weight * proportional_rate(problem))[
        entitled
    ]
    return float(level.min(initial=np.inf))
