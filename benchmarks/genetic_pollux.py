"""A plain genetic search over Pollux' states: what `pollux`'s own search is compared with.

It is built as the paper and the documentation of the published scheduler describe theirs: NSGA-II
on two objectives (fitness, utility), 100 states, 100 generations; children are made by a cut
between jobs and by three mutations (rows go back to the present ones, elements are cleared, nodes
with room get more of some job), and repaired. The best fitness of the last generation counts.

It is not part of the scheduler. Parents, mutations and repairs are numpy over whole generations, so
its time is a fair one for a method that evaluates 10,000 states.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dlsched.core.arrays import Bools, Floats, Ints
from dlsched.policies.scheduling.pollux.problem import Problem, fitness, repaired

__all__ = ["Evolved", "evolve"]

REFILLS = 100  # rounds of crossover until enough children differ from all states


class Evolved(NamedTuple):
    """Where it ended.

    Attributes:
        fitness: the best of the last generation.
        rows: that state.
        population: the last generation, for the next round's first.
    """

    fitness: float
    rows: Ints
    population: Ints


def utility(problem: Problem, states: NDArray[np.integer]) -> Floats:
    """Speedup for each GPU of the nodes in use; 0 where nothing runs."""
    in_use = (states.sum(axis=-2) > 0) @ problem.capacity
    speedups = problem.speedups(states).sum(axis=-1)
    return np.asarray(speedups / np.where(in_use > 0, in_use, np.inf))


def evolve(
    problem: Problem,
    rng: np.random.Generator,
    *,
    start: Ints | None = None,
    size: int = 100,
    generations: int = 100,
) -> Evolved:
    """Search from the present state, or from an earlier generation.

    Args:
        problem: the problem of a round.
        rng: for everything random.
        start: states to begin with, [state, job, node].
        size: states in a generation.
        generations: how many.
    """
    people = repaired(problem, problem.base[None] if start is None else start, rng)
    people = _distinct(people, people[:0])
    worth = _objectives(problem, people)
    for _ in range(generations - 1):
        rank, crowding = _sorted_out(worth)
        children = people[:0]
        for _ in range(REFILLS):
            missing = size - len(children)
            if missing <= 0:
                break
            parents = _chosen(rank, crowding, 2 * ((missing + 1) // 2), rng)
            made = repaired(problem, _mutated(problem, _crossed(people[parents], rng), rng), rng)
            fresh = _distinct(made, np.concatenate((people, children)))
            children = np.concatenate((children, fresh[:missing]))
        people = np.concatenate((people, children))
        worth = np.concatenate((worth, _objectives(problem, children)))
        rank, crowding = _sorted_out(worth)
        stay = np.lexsort((-crowding, rank))[:size]
        people, worth = people[stay], worth[stay]
    best = int(worth[:, 0].argmax())
    return Evolved(float(worth[best, 0]), people[best], people)


def _objectives(problem: Problem, states: Ints) -> Floats:
    """[state, objective], larger is better."""
    return np.stack((fitness(problem, states), utility(problem, states)), axis=1)


def _distinct(states: Ints, others: Ints) -> Ints:
    """Those that are neither among the others nor twice."""
    known = {state.tobytes() for state in others}
    found = []
    for number, state in enumerate(states):
        key = state.tobytes()
        if key not in known:
            known.add(key)
            found.append(number)
    return states[found]


def _sorted_out(worth: Floats) -> tuple[Ints, Floats]:
    """Front of each state (0: no state is better in both), and how alone it is in its front."""
    better = (worth[:, None] >= worth[None]).all(axis=2) & (worth[:, None] > worth[None]).any(
        axis=2
    )
    rank = np.zeros(len(worth), np.int64)
    crowding = np.zeros(len(worth))
    left: Bools = np.ones(len(worth), np.bool_)
    front = 0
    while left.any():
        mine = left & ~(better & left[:, None]).any(axis=0)
        rank[mine] = front
        crowding[mine] = _crowding(worth[mine])
        left &= ~mine
        front += 1
    return rank, crowding


def _crowding(worth: Floats) -> Floats:
    """Distance between each state's neighbours in its front."""
    alone = np.zeros(len(worth))
    for column in worth.T:
        order = column.argsort(kind="stable")
        span = column[order[-1]] - column[order[0]]
        alone[order[[0, -1]]] = np.inf
        if span > 0:
            alone[order[1:-1]] += (column[order[2:]] - column[order[:-2]]) / span
    return alone


def _chosen(rank: Ints, crowding: Floats, count: int, rng: np.random.Generator) -> Ints:
    """Winners of tournaments between two."""
    one, other = rng.integers(0, len(rank), (2, count))
    first = (rank[one] < rank[other]) | (
        (rank[one] == rank[other]) & (crowding[one] >= crowding[other])
    )
    return np.asarray(np.where(first, one, other))


def _crossed(parents: Ints, rng: np.random.Generator) -> Ints:
    """Children of neighbours: the rows before a random job are swapped."""
    children = parents.copy()
    jobs = parents.shape[1]
    cut = rng.integers(0, jobs, len(parents) // 2)
    swap = (np.arange(jobs) < cut[:, None])[..., None]
    children[0::2] = np.where(swap, parents[1::2], parents[0::2])
    children[1::2] = np.where(swap, parents[0::2], parents[1::2])
    return children


def _mutated(problem: Problem, states: Ints, rng: np.random.Generator) -> Ints:
    """Some rows as now, some elements cleared, some grown where there is room."""
    states = np.where(rng.random(states.shape[:2])[..., None] < 0.1, problem.base, states)
    rows = rng.random(states.shape[:2])[..., None] < 0.1
    states[rows & (rng.random(states.shape) < 0.1)] = 0
    free = problem.capacity - states.sum(axis=1)
    eligible = np.broadcast_to((free > 0)[:, None], states.shape) & problem.allowed
    there = eligible & (states > 0)
    any_job = eligible / np.maximum(eligible.sum(axis=1, keepdims=True), 1)
    holders = there / np.maximum(there.sum(axis=1, keepdims=True), 1)
    grows = rng.random(states.shape) < any_job + holders - any_job * holders
    full = np.broadcast_to(np.maximum(problem.capacity, 1), states.shape)
    return np.where(grows, rng.integers(states, np.maximum(full, states) + 1), states)
