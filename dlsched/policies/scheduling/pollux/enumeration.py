"""All ways that could still be better, one after the other: exact where there are few.

At a price of GPUs, Σ of every job's best gain less price, plus the price of all GPUs, is more than
any state is worth. A state is worth less than that by what each of its jobs loses against its own
best choice, and by the price of what lies idle. So of each job only the choices count that lose
less than the bound leaves open above the best state known; and of their combinations those that do
so together. With few jobs these are a handful, each of which is laid on the nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dlsched.policies.scheduling.pollux.choices import Choices
from dlsched.policies.scheduling.pollux.problem import Problem
from dlsched.policies.scheduling.pollux.state import STAY, State

__all__ = ["Enumeration", "better_ways"]

MOST_WAYS = 10_000  # combinations, beyond which nothing is looked at


class Way(NamedTuple):
    """One job's choice: what it loses against its best, of which kind it is, how many replicas."""

    loss: float
    kind: int
    replicas: int


@dataclass(slots=True)
class Enumeration:
    """What came of it.

    Attributes:
        best: the best state.
        proven: all combinations were looked at, and whatever would have been better was laid out.
    """

    best: State
    proven: bool


def better_ways(
    problem: Problem,
    choices: Choices,
    price: float,
    best: State,
    *,
    layouts: int,
    eps: float,
) -> Enumeration:
    """Look at every combination of choices that could beat a state.

    Args:
        problem: the question.
        choices: gains.
        price: of a GPU; the clearing one leaves the least open.
        best: a state.
        layouts: combinations that are laid on the nodes, at most.
        eps: less is no improvement.
    """
    gpus = int(problem.capacity.sum())
    bound, ways = _ways(problem, choices, price, best.total)
    found = Enumeration(best, proven=True)
    if np.prod([float(len(each)) for each in ways]) > MOST_WAYS:
        return Enumeration(best, proven=False)
    order = sorted(range(problem.jobs), key=lambda job: len(ways[job]))
    left = layouts

    def descend(depth: int, loss: float, free: int, chosen: dict[int, Way]) -> None:
        nonlocal left
        for way in ways[order[depth]]:
            lost, rest = loss + way.loss, free - way.replicas
            if lost >= bound - found.best.total - eps:
                return  # the next ones lose more
            if rest < 0:
                continue
            chosen[order[depth]] = way
            if depth + 1 < len(order):
                descend(depth + 1, lost, rest, chosen)
            elif lost + price * rest < bound - found.best.total - eps:
                left -= 1
                state = _laid_out(problem, choices, chosen) if left >= 0 else None
                if state is None:
                    found.proven = False
                elif state.total > found.best.total + eps:
                    found.best = state

    if ways:
        descend(0, 0.0, gpus, {})
    return found


def _ways(
    problem: Problem, choices: Choices, price: float, known: float
) -> tuple[float, list[list[Way]]]:
    """The bound, and each job's choices that lose less than it leaves open, the best first."""
    stay = choices.stay - price * choices.held
    value = choices.changed - price * np.arange(choices.changed.shape[2])
    value[problem.pinned] = -np.inf
    top = np.maximum(stay, value.max(axis=(1, 2)))
    bound = float(top.sum()) + price * float(problem.capacity.sum())
    found = []
    for job in range(problem.jobs):
        kinds, counts = np.nonzero(top[job] - value[job] < bound - known)
        ways = [
            Way(float(top[job] - value[job, kind, count]), kind, count)
            for kind, count in zip(kinds.tolist(), counts.tolist(), strict=True)
        ]
        if top[job] - stay[job] < bound - known:
            ways.append(Way(float(top[job] - stay[job]), STAY, int(choices.held[job])))
        found.append(sorted(ways))
    return bound, found


def _laid_out(problem: Problem, choices: Choices, chosen: dict[int, Way]) -> State | None:
    """These choices on nodes, those who stay first, then the widest; None where it does not go."""
    state = State(problem, choices, np.zeros_like(problem.base))
    for job, way in sorted(chosen.items(), key=lambda each: (-each[1].kind, -each[1].replicas)):
        if not state.fits(job, way.kind, way.replicas):
            return None
        state.take(job, way.kind, way.replicas)
    return state
