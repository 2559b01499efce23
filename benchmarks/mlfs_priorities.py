"""CPU time of MLFS' priorities: `python benchmarks/mlfs_priorities.py [--check]`.

10,000 tasks without dependents, and as many in jobs of ten that wait for each other in a random
graph. The reference is the same formulas task by task in plain Python, with remembered values, as
one would write them from the paper.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

if __package__ in (None, ""):  # run as a script: the project's own folder comes first
    sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.measure import heading
from dlsched.policies.scheduling.mlfs.priorities import LEAST_MIN, Tasks, Weights, priorities

TASKS, OF_A_JOB = 10_000, 10
TIMES = 20
LEAST_FACTOR = 3.0  # that plain Python must take longer without dependents


def tasks_of(rng: np.random.Generator) -> Tasks:
    """Tasks with random features."""
    return Tasks(
        urgency=rng.integers(1, 5, TASKS).astype(np.float64),
        iteration=rng.integers(1, 1000, TASKS).astype(np.float64),
        learnt=rng.random(TASKS),
        size=rng.random(TASKS),
        due_min=rng.uniform(1, 1000, TASKS),
        left_min=rng.uniform(1, 1000, TASKS),
        waited_min=rng.uniform(0, 100, TASKS),
    )


def graph(rng: np.random.Generator) -> list[list[int]]:
    """Direct dependents: in each job a later task waits for an earlier one with chance 0.3."""
    return [
        [
            other
            for other in range(task + 1, (task // OF_A_JOB + 1) * OF_A_JOB)
            if rng.random() < 0.3
        ]
        for task in range(TASKS)
    ]


def one_by_one(tasks: Tasks, children: list[list[int]], weights: Weights) -> list[float]:
    """The priorities, task by task; dependents have larger numbers."""
    columns = [each.tolist() for each in tasks]
    learning, times = [0.0] * TASKS, [0.0] * TASKS
    for task in reversed(range(TASKS)):
        urgency, iteration, learnt, size, due, left, waited = (each[task] for each in columns)
        learning[task] = urgency * (1 / iteration) * learnt * size
        times[task] = (
            weights.deadline / max(due, LEAST_MIN)
            + weights.remaining / max(left, LEAST_MIN)
            + weights.waited * waited
        )
        for child in children[task] if children else ():
            learning[task] += weights.gamma * learning[child]
            times[task] += weights.gamma * times[child]
    alpha = weights.alpha
    return [alpha * ml + (1 - alpha) * c for ml, c in zip(learning, times, strict=True)]


def cpu_ms(work: Callable[[], Any]) -> float:
    """Milliseconds of CPU that some work takes, on average of several times."""
    start = time.process_time()
    for _ in range(TIMES):
        work()
    return (time.process_time() - start) / TIMES * 1e3


def main() -> int:
    """Measure, print, and check where asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="exit 1 below three times as fast")
    check = parser.parse_args().check
    rng = np.random.default_rng(0)
    tasks, weights, fine = tasks_of(rng), Weights(), True
    heading()
    for name, children in (("no dependents", []), ("graphs of ten", graph(rng))):
        ours = priorities(tasks, children, weights).total.tolist()
        assert np.allclose(ours, one_by_one(tasks, children, weights), rtol=1e-12)
        mine = cpu_ms(partial(priorities, tasks, children, weights))
        plain = cpu_ms(partial(one_by_one, tasks, children, weights))
        print(f"{TASKS} tasks, {name}: {mine:.2f} ms, plain Python {plain:.2f} ms")
        fine &= bool(children) or plain >= LEAST_FACTOR * mine
    return int(check and not fine)


if __name__ == "__main__":
    sys.exit(main())
