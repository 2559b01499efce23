"""The problem of one round: permitted replicas of jobs on nodes, and the value of a state.

Pollux (Qiao et al., OSDI 2021) describes a decision by a matrix of jobs × nodes, the replicas of
each job on each node. A replica is one GPU. The value of a row depends only on its number of
replicas, on whether they are on several nodes, and on whether it is the present row of the job. So
the problem is a few small tables beside the present matrix.

The value of a state is the power mean of the jobs' scaled speedups:

    x_j     = speedup_j · share_j · nodes · (restart factor, if the row changes)
    fitness = (mean of (x_j + 0.001)^p)^(1/p)        p = -1 by default; p → 0: the geometric mean
    utility = Σ_j speedup_j / GPUs of the nodes in use

The fitness is an increasing function of a sum over jobs, and `gains` are the terms of this sum. So
a search may consider single jobs.

A feasible state has, for each job, at most `most` replicas on at most `widest` nodes of one GPU
type, and no replicas below the job's least; no node is used beyond its GPUs; and no two jobs that
span nodes share a node.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dlsched.core.arrays import Bools, Floats, Ints

FLOOR = 1e-3  # value of a job without replicas, so that means of negative power exist


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One round's problem. Jobs are in order of precedence, nodes in the order of their use.

    Attributes:
        speedup: [job, on several nodes?, replicas]: goodput over that of a fair share (or of one
            GPU, as the fitness wants it); 0 replicas: 0.
        weight: [job] factor of the speedup: the dominant share of one replica times the number of
            nodes.
        factor: [job] the part of it that is left if the row changes, in [0, 1].
        base: [job, node] replicas now.
        capacity: [node] GPUs.
        allowed: [job, node] whether the job may use the node.
        least: [job] replicas below which it cannot run.
        most: [job] replicas that it may have at most.
        pinned: [job] whether its row must stay.
        exponent: p of the power mean; None: the plain sum (the library's).
        apart: whether jobs that span nodes may not share a node (interference avoidance).
        widest: most nodes of a job.
        gpu_type: [node] its GPU type, if there are several; a job uses only one.
    """

    speedup: Floats
    weight: Floats
    factor: Floats
    base: Ints
    capacity: Ints
    allowed: Bools
    least: Ints
    most: Ints
    pinned: Bools
    exponent: float | None = -1.0
    apart: bool = True
    widest: int = 16
    gpu_type: Ints | None = None

    @property
    def jobs(self) -> int:
        """How many jobs."""
        return int(self.base.shape[0])

    @property
    def nodes(self) -> int:
        """How many nodes."""
        return int(self.base.shape[1])

    @property
    def largest(self) -> int:
        """The largest number of replicas that the tables know."""
        return int(self.speedup.shape[2]) - 1

    @property
    def may_run(self) -> Bools:
        """[job] Whether it would have its least replicas if all GPUs were free."""
        types = self.gpu_type if self.gpu_type is not None else np.zeros(self.nodes, np.int64)
        room = np.where(self.allowed, self.capacity, 0)
        widest = [
            np.sort(room[:, types == gpu_type], axis=1)[:, -self.widest :].sum(axis=1)
            for gpu_type in sorted(set(types.tolist()))
        ]
        return np.asarray(np.max(widest, axis=0) >= self.least)

    def first_nodes(self, count: int) -> Problem:
        """The same problem for the first so many nodes, or with additional empty nodes.

        An additional node has as many GPUs as the largest node, and all jobs may use it. Jobs lose
        their replicas on nodes that are left out.
        """
        kept = min(count, self.nodes)
        more = count - kept
        return replace(
            self,
            base=np.pad(self.base[:, :kept], ((0, 0), (0, more))),
            capacity=np.pad(
                self.capacity[:kept], (0, more), constant_values=int(self.capacity.max(initial=0))
            ),
            allowed=np.pad(self.allowed[:, :kept], ((0, 0), (0, more)), constant_values=True),
            gpu_type=None
            if self.gpu_type is None
            else np.pad(self.gpu_type[:kept], (0, more), mode="edge"),
        )

    def speedups(self, states: NDArray[np.integer]) -> Floats:
        """The speedups, […, job], of states […, job, node]."""
        replicas = np.minimum(states.sum(axis=-1), self.largest)
        several = ((states > 0).sum(axis=-1) > 1).astype(np.int64)
        return np.asarray(self.speedup[np.arange(self.jobs), several, replicas])

    def worths(self, states: NDArray[np.integer]) -> Floats:
        """The values of rows, […, job]: scaled speedups, reduced where a row has changed."""
        changed = (states != self.base).any(axis=-1)
        return self.speedups(states) * self.weight * np.where(changed, self.factor, 1.0)


def fair_replicas(gpus: int, jobs: int) -> int:
    """GPUs of a fair share, rounded up; the speedup of so many on one node is 1.

    The published scheduler measures them on one node even where no node has so many.
    """
    return -(-gpus // max(jobs, 1))


def restart_factor(age: Floats, restarts: Ints, delay: Floats | float) -> Floats:
    """(T − R·δ) / (T + δ), at least 0: the part of its value that a job keeps after a restart.

    `age` is seconds since its submission, `restarts` the starts after the first, and `delay` the
    seconds that a restart costs.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        left = np.maximum(age - restarts * delay, 0.0) / (age + delay)
    return np.where(age + delay > 0, np.nan_to_num(left), 1.0)


def gains(worths: Floats, exponent: float | None) -> Floats:
    """The terms of a sum that increases with the fitness; p None is for the plain sum."""
    if exponent is None:
        return worths
    if exponent == 0:
        return np.log(np.maximum(worths, FLOOR))
    powers = np.power(worths + FLOOR, exponent)
    return np.asarray(powers if exponent > 0 else -powers)


def mean_of_gains(total: Floats | float, jobs: int, exponent: float | None) -> Floats:
    """The fitness that belongs to a sum of gains."""
    total = np.asarray(total, np.float64)
    if exponent is None or jobs == 0:
        return total
    if exponent == 0:
        return np.asarray(np.exp(total / jobs))
    return np.asarray(np.power(np.abs(total) / jobs, 1.0 / exponent))


def fitness(problem: Problem, states: NDArray[np.integer]) -> Floats:
    """Of states […, job, node]."""
    terms = gains(problem.worths(states), problem.exponent)
    return mean_of_gains(terms.sum(axis=-1), problem.jobs, problem.exponent)


def repaired(problem: Problem, states: NDArray[np.integer], rng: np.random.Generator) -> Ints:
    """States […, job, node], reduced until they are feasible; earlier jobs keep their replicas.

    In this order: pinned rows become the present ones; of several GPU types only one stays; of jobs
    that span nodes and share a node, only a pinned one stays, or else the first; replicas above a
    job's most are removed, from nodes in random order, and so are nodes above the widest span; then
    replicas above a node's GPUs; then rows below their least.
    """
    cut = np.where(problem.pinned[:, None], problem.base, states).astype(np.int64)
    cut[~np.broadcast_to(problem.allowed | problem.pinned[:, None], cut.shape)] = 0
    if problem.gpu_type is not None:
        # the type with the most replicas stays, of equals the first
        by_type = np.stack([(cut * (problem.gpu_type == k)).sum(-1) for k in _gpu_types(problem)])
        of_type = np.stack([problem.gpu_type == k for k in _gpu_types(problem)])
        cut[~(of_type[by_type.argmax(axis=0)] | problem.pinned[:, None])] = 0
    if problem.apart:
        present = cut > 0
        spanning = present & (present.sum(axis=-1) > 1)[..., None]
        kept = spanning & problem.pinned[:, None]
        late = (np.cumsum(spanning, axis=-2) > 1) | kept.any(axis=-2, keepdims=True)
        cut[spanning & late & ~kept] = 0
    # any order of the nodes: a rank of its own for each row
    order = np.argsort(rng.random(cut.shape), axis=-1)
    shuffled = np.take_along_axis(cut, order, axis=-1)
    free = ~problem.pinned[:, None]
    before = np.cumsum(shuffled, axis=-1) - shuffled
    left = np.clip(problem.most[:, None] - before, 0, shuffled)
    shuffled = np.where(free, left, shuffled)
    wide = np.cumsum(shuffled > 0, axis=-1) > problem.widest
    shuffled[wide & free] = 0
    np.put_along_axis(cut, order, shuffled, axis=-1)
    before = np.cumsum(cut, axis=-2) - cut
    cut = np.clip(problem.capacity - before, 0, cut)
    low = cut.sum(axis=-1) < problem.least
    cut[low] = 0
    return cut


def is_feasible(problem: Problem, states: NDArray[np.integer]) -> Bools:
    """Which of the states […, job, node] are feasible."""
    present = states > 0
    nodes = present.sum(axis=-1)
    replicas = states.sum(axis=-1)
    idle = replicas == 0
    in_bounds = (replicas <= problem.most) & (replicas >= problem.least) & (nodes <= problem.widest)
    stays = (states == problem.base).all(axis=-1)
    placed = (problem.allowed | ~present).all(axis=-1)
    good = np.where(problem.pinned, stays, idle | (in_bounds & placed)).all(axis=-1)
    good &= (states >= 0).all(axis=(-1, -2))
    good &= (states.sum(axis=-2) <= problem.capacity).all(axis=-1)
    if problem.gpu_type is not None:
        type_count = sum(
            present[..., problem.gpu_type == k].any(axis=-1) for k in _gpu_types(problem)
        )
        good &= ((type_count <= 1) | problem.pinned).all(axis=-1)
    if problem.apart:
        spanning = present & (nodes > 1)[..., None]
        good &= (spanning.sum(axis=-2) <= 1).all(axis=-1)
    return np.asarray(good)


def _gpu_types(problem: Problem) -> list[int]:
    """GPU types of the nodes."""
    return [] if problem.gpu_type is None else sorted(set(problem.gpu_type.tolist()))
