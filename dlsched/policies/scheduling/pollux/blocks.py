"""Large clusters in blocks of nodes, so that the time of a decision grows linearly with them.

The clearing price tells which jobs should stay and how many GPUs the others want. Jobs that stay
belong to the block of their nodes, the others to the block with most room for them. Then each block
is searched by itself. The result comes with the bound for the whole cluster, and is never worse
than the present state.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dlsched.core.arrays import Bools, Ints
from dlsched.policies.scheduling.pollux.choices import Choices, choices_of
from dlsched.policies.scheduling.pollux.problem import Problem, fitness, is_feasible, mean_of_gains
from dlsched.policies.scheduling.pollux.search import Found, search

MOST_NODES = 96  # nodes that are searched without blocks
BLOCK = 64  # nodes of a block


def find(problem: Problem, rng: np.random.Generator, *, effort: int = 50) -> Found:
    """The best state found, in blocks where there are many nodes; `effort` is for each block."""
    if problem.nodes <= MOST_NODES:
        return search(problem, rng, effort=effort)
    choices = choices_of(problem)
    price, bound = choices.clearing_price(int(problem.capacity.sum()))
    block = _blocks_of_nodes(problem)
    home = _homes(problem, choices, block, price)
    rows = np.zeros_like(problem.base)
    for number in range(int(block.max()) + 1):
        jobs, nodes = np.flatnonzero(home == number), np.flatnonzero(block == number)
        if len(jobs):
            part = _part(problem, jobs, nodes)
            rows[np.ix_(jobs, nodes)] = search(part, rng, effort=effort).rows
    found = float(fitness(problem, rows))
    limit = max(float(mean_of_gains(bound, problem.jobs, problem.exponent)), found)
    now = float(fitness(problem, problem.base))
    if now >= found and bool(is_feasible(problem, problem.base)):
        return Found(problem.base, now, max(limit, now))
    return Found(rows, found, limit)


def _blocks_of_nodes(problem: Problem) -> Ints:
    """The block of each node; nodes of one job are in one block."""
    head = np.arange(problem.nodes)
    for row in problem.base[(problem.base > 0).sum(axis=1) > 1]:
        joined = np.unique(head[row > 0])
        head[np.isin(head, joined[1:])] = joined[0]
    block = np.zeros(problem.nodes, np.int64)
    number, size = 0, 0
    for first in np.unique(head).tolist():
        together = head == first
        count = int(together.sum())
        if size and size + count > BLOCK:
            number, size = number + 1, 0
        block[together] = number
        size += count
    return block


def _homes(problem: Problem, choices: Choices, block: Ints, price: float) -> Ints:
    """The block of each job: its present one if it stays, else the one with most room for it."""
    wanted, _ = choices.wanted(price)
    stays = choices.stays(price) & problem.base.any(axis=1) | problem.pinned
    home = np.full(problem.jobs, -1)
    home[stays] = block[(problem.base[stays] > 0).argmax(axis=1)]
    count = int(block.max()) + 1
    left = np.bincount(block, problem.capacity, minlength=count)
    left -= np.bincount(home[stays], choices.held[stays], minlength=count)
    own = np.where(problem.base.any(axis=1), block[(problem.base > 0).argmax(axis=1)], -1)
    everywhere = bool(problem.allowed.all())
    for job in sorted(np.flatnonzero(~stays).tolist(), key=lambda job: (-wanted[job], job)):
        room = left if everywhere else np.where(_has(problem, job, block, count), left, -np.inf)
        best = int(room.argmax())
        mine = int(own[job])
        if mine >= 0 and room[mine] >= wanted[job]:
            best = mine
        home[job] = best
        left[best] -= max(int(wanted[job]), 1)
    return home


def _has(problem: Problem, job: int, block: Ints, count: int) -> Bools:
    """Which of the blocks have nodes that a job may use."""
    return np.bincount(block[problem.allowed[job]], minlength=count) > 0


def _part(problem: Problem, jobs: Ints, nodes: Ints) -> Problem:
    """The problem of some jobs on some nodes."""
    where = np.ix_(jobs, nodes)
    return replace(
        problem,
        speedup=problem.speedup[jobs],
        weight=problem.weight[jobs],
        factor=problem.factor[jobs],
        base=problem.base[where],
        capacity=problem.capacity[nodes],
        allowed=problem.allowed[where],
        least=problem.least[jobs],
        most=problem.most[jobs],
        pinned=problem.pinned[jobs],
        gpu_type=None if problem.gpu_type is None else problem.gpu_type[nodes],
    )
