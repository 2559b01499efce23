"""Successive halving: which jobs of a sweep are stopped early, as a pure function of values.

The rule is the asynchronous one of Li et al., "A System for Massively Parallel Hyperparameter
Tuning" (MLSys 2020), in the form that stops jobs instead of promoting paused ones; the rungs are
those of Jamieson & Talwalkar, "Non-stochastic Best Arm Identification and Hyperparameter
Optimization" (AISTATS 2016).

Each job has one value at each rung that it has reached, which never changes. A job is compared at
the farthest rung that it has reached, with all jobs that have reached it, whether they still run or
not. It is stopped when more than the best `1/eta` of these, rounded up, are better. Jobs with equal
values have the same rank. Until `eta` jobs have reached a rung, none is stopped there.

The result depends on the values alone, not on the order in which they came. Which values there are
when it is asked does depend on it: a job that is stopped early might have stayed among the best
`1/eta` of more jobs. When all jobs have reached a rung before any is judged, the survivors are
those of the synchronous rule. The best job of a rung is never stopped there.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from dlsched.jobs.sweep import Halving

J = TypeVar("J")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Why a job is stopped: its rank among the jobs that have reached a rung."""

    rung: int
    value: float
    rank: int
    among: int

    def text(self, metric: str) -> str:
        """The reason in words."""
        return (
            f"stopped by successive halving at step {self.rung}: {metric} {self.value:.4g}, "
            f"rank {self.rank} of {self.among}"
        )


def to_stop(
    rule: Halving, reached: Mapping[J, Mapping[int, float]], running: Iterable[J]
) -> dict[J, Verdict]:
    """The jobs that the rule stops now.

    Args:
        rule: of the sweep.
        reached: by job and rung, its value there; NaN is the worst.
        running: the jobs that can be stopped.
    """
    scores: dict[int, list[float]] = {}
    for values in reached.values():
        for rung, value in values.items():
            scores.setdefault(rung, []).append(_score(rule, value))
    for some in scores.values():
        some.sort()
    found: dict[J, Verdict] = {}
    for job in running:
        if not reached.get(job):
            continue
        rung = max(reached[job])
        value, there = reached[job][rung], scores[rung]
        rank = 1 + bisect_left(there, _score(rule, value))
        if len(there) >= rule.eta and rank > -(-len(there) // rule.eta):
            found[job] = Verdict(rung=rung, value=value, rank=rank, among=len(there))
    return found


def _score(rule: Halving, value: float) -> float:
    """Smaller is better; NaN and infinite values are the worst."""
    if not math.isfinite(value):
        return math.inf
    return -value if rule.mode == "max" else value
