"""Priorities of tasks by features of learning and of time: equations 2 to 6 of the paper.

    P'ML = L · (1 / I) · (δl of the last iteration / Σ δl) · (S of the task / S of its job)
    P'C  = γd / (deadline − now) + γr / (time left) + γw · (time waited)
    PML  = P'ML + γ · Σ PML of the tasks that depend on it directly;  PC likewise
    P    = α · PML + (1 − α) · PC

Times are in minutes. The paper says nothing about the first iteration, a deadline that is over, or
a loss that has not fallen; there the last ratio is 1, times are at least `LEAST_MIN`, and the ratio
is 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dlsched.core.arrays import Floats
from dlsched.core.options import option
from dlsched.core.sums import ordered_sum

LEAST_MIN = 1e-3  # of the time until a deadline, and of the time left
Children = Sequence[Sequence[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """The weights of the terms."""

    alpha: float = option(
        0.3, "weight of the learning terms; those of time have the rest", low=0.0, high=1.0
    )
    gamma: float = option(0.8, "part of a task's priority that the tasks it waits for get", low=0.0)
    deadline: float = option(0.3, "weight of 1 / minutes until the deadline", low=0.0)
    remaining: float = option(0.3, "weight of 1 / minutes left", low=0.0)
    waited: float = option(0.35, "weight of each minute waited", low=0.0)


class Tasks(NamedTuple):
    """What is known of tasks, each column of shape (tasks,).

    Attributes:
        urgency: of their job, L.
        iteration: that their job is in, I, from 1.
        learnt: the loss that the last iteration took off, over all that was taken off so far.
        size: of the task over that of its job.
        due_min: minutes until its deadline; infinite without one.
        left_min: minutes that it still runs; infinite where unknown.
        waited_min: minutes that it has waited.
    """

    urgency: Floats
    iteration: Floats
    learnt: Floats
    size: Floats
    due_min: Floats
    left_min: Floats
    waited_min: Floats


class Priorities(NamedTuple):
    """Priorities of tasks, each of shape (tasks,); the larger, the earlier.

    Attributes:
        learning: PML.
        time: PC.
        total: P.
    """

    learning: Floats
    time: Floats
    total: Floats


def part_learnt(reductions: Sequence[float]) -> float:
    """The reduction of the loss in the last iteration over that in all of them.

    1 before the first iteration has ended, 0 where the loss has not fallen.
    """
    if not reductions:
        return 1.0
    fallen = ordered_sum(reductions)
    return reductions[-1] / fallen if fallen > 0 else 0.0


def learning_terms(tasks: Tasks) -> Floats:
    """P'ML, equation 2."""
    return tasks.urgency * (1.0 / tasks.iteration) * tasks.learnt * tasks.size


def time_terms(tasks: Tasks, weights: Weights) -> tuple[Floats, Floats, Floats]:
    """The three terms of P'C, equation 4: deadline, time left, time waited."""
    return (
        weights.deadline / np.maximum(tasks.due_min, LEAST_MIN),
        weights.remaining / np.maximum(tasks.left_min, LEAST_MIN),
        weights.waited * tasks.waited_min,
    )


def with_dependents(own: Floats, children: Children, order: Sequence[int], gamma: float) -> Floats:
    """Each task's own value and γ times those of its direct dependents, equations 3 and 5.

    Args:
        own: of each task.
        children: the positions of the direct dependents of each task; empty: no task has any.
        order: as `dependents_first` gives it.
        gamma: γ.
    """
    found: list[float] = own.tolist()
    for task in order:
        found[task] += gamma * ordered_sum([found[child] for child in children[task]])
    return np.array(found, np.float64)


def dependents_first(children: Children) -> list[int]:
    """The tasks with dependents, each after all of its own.

    Raises:
        ValueError: tasks depend on each other in a circle.
    """
    parents: dict[int, list[int]] = {}
    missing = {}  # dependents of a task that have not come yet
    for task, mine in enumerate(children):
        for child in mine:
            parents.setdefault(child, []).append(task)
        missing[task] = len(mine)
    order: list[int] = []
    ready = [task for task in range(len(children)) if not missing[task]]
    seen = len(ready)
    while ready:
        for parent in parents.get(ready.pop(), ()):
            missing[parent] -= 1
            if not missing[parent]:
                ready.append(parent)
                order.append(parent)
                seen += 1
    if seen < len(children):
        raise ValueError("tasks depend on each other in a circle")
    return order


def priorities(tasks: Tasks, children: Children, weights: Weights) -> Priorities:
    """Priorities of tasks, equation 6.

    Args:
        tasks: what is known of them.
        children: the positions of the direct dependents of each; empty: no task has any.
        weights: of the terms.

    Raises:
        ValueError: tasks depend on each other in a circle.
    """
    learning = learning_terms(tasks)
    deadline, left, waited = time_terms(tasks, weights)
    time = deadline + left + waited
    if children:
        order = dependents_first(children)
        learning = with_dependents(learning, children, order, weights.gamma)
        time = with_dependents(time, children, order, weights.gamma)
    total = weights.alpha * learning + (1.0 - weights.alpha) * time
    return Priorities(learning, time, total)
