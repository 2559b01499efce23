"""All states that could still be better, one by one: exact where they are few.

At a price of a GPU, the sum of every job's best gain less price, plus the price of all GPUs, is an
upper bound of the value of any state. A state misses this bound by the loss of each job against its
own best choice, and by the price of idle GPUs. So only choices with a loss below the gap between
the bound and the best known state matter, and of their combinations those with a total loss below
the gap. With few jobs these are a handful; each is placed on the nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dlsched.policies.scheduling.pollux.choices import Choices
from dlsched.policies.scheduling.pollux.problem import Problem
from dlsched.policies.scheduling.pollux.state import STAY, State

MOST_WAYS = 10_000  # combinations, above which nothing is enumerated


class Way(NamedTuple):
    """One job's choice: its loss against the best one, its kind, and its number of replicas."""

    loss: float
    kind: int
    replicas: int


@dataclass(slots=True)
class Enumeration:
    """The result of an enumeration.

    Attributes:
        best: the best state.
        proven: whether no state is better: all combinations that could be better were placed.
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
    """Enumerate the combinations of choices that could be better than a state.

    Args:
        problem: the round's problem.
        choices: the gains.
        price: price of a GPU; the clearing price gives the smallest gap.
        best: the best known state.
        layouts: most combinations that are placed on nodes.
        eps: smaller gains are no improvement.
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
                return  # all further choices lose more
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
    """The bound, and each job's choices with a loss below the gap, the best first."""
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
    """A state with these choices, jobs that stay first, then the widest; None without room."""
    state = State(problem, choices, np.zeros_like(problem.base))
    for job, way in sorted(chosen.items(), key=lambda each: (-each[1].kind, -each[1].replicas)):
        if not state.fits(job, way.kind, way.replicas):
            return None
        state.take(job, way.kind, way.replicas)
    return state
