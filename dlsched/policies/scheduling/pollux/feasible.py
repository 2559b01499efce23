"""Which states may be, and how one that may not is made so.

A job has at most `most` replicas, on at most `widest` nodes of one GPU type, and none at all below
its least; a node is not filled over its GPUs; no two jobs that span nodes meet on one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dlsched.core.arrays import Bools, Ints
from dlsched.policies.scheduling.pollux.problem import Problem

__all__ = ["is_feasible", "repaired"]


def repaired(problem: Problem, states: NDArray[np.integer], rng: np.random.Generator) -> Ints:
    """States […, job, node] cut until they may be; jobs that come first keep what they have.

    In this order: pinned rows are as now; of several GPU types one stays; of jobs that span nodes
    and meet, the first stays; what is over a job's largest number goes, from nodes in random order;
    so do nodes over the widest span; then what is over a node's GPUs; then rows below their least.
    """
    cut = np.where(problem.pinned[:, None], problem.base, states).astype(np.int64)
    cut[~np.broadcast_to(problem.allowed | problem.pinned[:, None], cut.shape)] = 0
    if problem.kind is not None:
        # the type with the most stays, of equally many the first
        by_kind = np.stack([(cut * (problem.kind == k)).sum(-1) for k in _kinds(problem)])
        of_kind = np.stack([problem.kind == k for k in _kinds(problem)])
        cut[~(of_kind[by_kind.argmax(axis=0)] | problem.pinned[:, None])] = 0
    if problem.apart:
        present = cut > 0
        spanning = present & (present.sum(axis=-1) > 1)[..., None]
        late = spanning & (np.cumsum(spanning, axis=-2) > 1) & ~problem.pinned[:, None]
        cut[late] = 0
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
    """Which of the states […, job, node] may be."""
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
    if problem.kind is not None:
        kinds = sum(present[..., problem.kind == k].any(axis=-1) for k in _kinds(problem))
        good &= ((kinds <= 1) | problem.pinned).all(axis=-1)
    if problem.apart:
        spanning = present & (nodes > 1)[..., None]
        good &= (spanning.sum(axis=-2) <= 1).all(axis=-1)
    return np.asarray(good)


def _kinds(problem: Problem) -> list[int]:
    """GPU types of the nodes."""
    return [] if problem.kind is None else sorted(set(problem.kind.tolist()))
