"""AlloX: the least average completion time as a matching of jobs to places in the GPUs' queues.

Le, Sun, Chowdhury, Liu, "AlloX: Compute Allocation in Hybrid Clusters", EuroSys 2020, as Gavel
compares with it. The job that is k-th from the last on a GPU delays k jobs (itself among them) by
its run time, so the k-th place from the end of type j costs job i

    k · n_i / T_ij

and a matching of least cost minimises the sum of completion times. GPUs of one type are alike, so
places are groups of N_j. Jobs are matched one after the other, each along the cheapest chain of
moves between groups (successive shortest paths), which keeps the matching optimal.

The published policy takes single GPUs only. Here a gang of s fills s places, each at the s-th part
of its cost; a chain may split it over groups, and it then queues where most of it lies.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from dlsched.core.arrays import Floats, Ints, Rows
from dlsched.policies.scheduling.gavel.measures import no_pairs
from dlsched.policies.scheduling.gavel.problem import Problem, Shares

__all__ = ["match_to_places"]


def match_to_places(problem: Problem, alpha: float = 1.0) -> Shares:
    """X = 1 for jobs that hold it already and for those that are first in their queue.

    Args:
        problem: `home` says who holds what.
        alpha: the part of the waiting jobs, longest waiting first, that is looked at; always as
            many as there are free GPUs.
    """
    problem.require_remaining()
    x = np.where(problem.home >= 1.0, 1.0, 0.0)
    free = np.floor(problem.workers - (problem.scale[:, None] * x).sum(axis=0) + 0.5)
    waiting = np.flatnonzero(~x.any(axis=1))
    waiting = waiting[np.argsort(-problem.elapsed[waiting], kind="stable")]
    waiting = waiting[: max(int(alpha * len(waiting)), int(free.sum()))]
    with np.errstate(divide="ignore"):
        time = problem.remaining[waiting, None] / problem.throughput[waiting]
    scale = problem.scale[waiting].astype(np.int64)
    time[scale[:, None] > free] = np.inf
    able = np.isfinite(time).any(axis=1)
    waiting, time, scale = waiting[able], time[able], scale[able]
    for job, kind in _firsts(Places(time, scale, free.astype(np.int64)), free):
        x[waiting[job], kind] = 1.0
    return Shares(x, no_pairs(problem))


def _firsts(places: Places, free: Floats) -> list[tuple[int, int]]:
    """Who starts now: on each type from the front of the queue, as long as there is room."""
    found = []
    room = free.tolist()
    kind, depth = places.queue()
    for job in np.lexsort((np.arange(len(kind)), -depth)).tolist():
        if room[kind[job]] >= places.scale[job]:
            room[kind[job]] -= places.scale[job]
            found.append((job, int(kind[job])))
    return found


class Places:
    """Groups of equal places, and how many of each every job has.

    Attributes:
        scale: places that a job needs.
        held: places by [job, group].
    """

    def __init__(self, time: Floats, scale: Ints, free: Ints) -> None:
        self._rate = time / scale[:, None]  # cost of a place at depth 1, by type
        self.scale, self._free = scale, free
        self._kind: list[int] = []
        self._depth: list[int] = []
        count = len(scale)
        self.held = np.zeros((count, 0), np.int64)
        self._cost = np.zeros((count, 0))
        self._room: list[int] = []
        self._move = np.zeros(
            (0, 0)
        )  # the least that moving one place's job from group to group costs
        self._mover = np.zeros((0, 0), np.int64)
        for kind in np.flatnonzero(free > 0).tolist():
            self._deepen(kind)
        for job in range(count):
            self._insert(job)

    def queue(self) -> tuple[Rows, Rows]:
        """Type and depth of each job: of the group that most of it holds, the deepest of equals."""
        depth = np.array(self._depth, np.int64)
        key = self.held * (depth.max(initial=0) + 1) + depth
        group = key.argmax(axis=1) if key.size else np.zeros(len(self.scale), np.int64)
        return np.array(self._kind, np.int64)[group], depth[group]

    def cost(self) -> float:
        """Sum of the run times that jobs delay, in seconds."""
        return float((np.where(self.held > 0, self._cost, 0.0) * self.held).sum())

    def _deepen(self, kind: int) -> None:
        """One more group on a type, behind those that have been opened."""
        self._kind.append(kind)
        self._depth.append(1 + sum(k == kind for k in self._kind[:-1]))
        self._room.append(int(self._free[kind]))
        self.held = np.pad(self.held, ((0, 0), (0, 1)))
        self._cost = np.column_stack([self._cost, self._depth[-1] * self._rate[:, kind]])
        groups = len(self._kind)
        grown = np.full((groups, groups), np.inf)
        grown[:-1, :-1] = self._move
        movers = np.zeros((groups, groups), np.int64)
        movers[:-1, :-1] = self._mover
        self._move, self._mover = grown, movers
        for group in range(groups - 1):
            self._weigh(group)

    def _weigh(self, group: int) -> None:
        """What leaving a group for each other one costs at least, and who would."""
        jobs = np.flatnonzero(self.held[:, group])
        if not len(jobs):
            self._move[group] = np.inf
            return
        extra = self._cost[jobs] - self._cost[jobs, group, None]
        best = extra.argmin(axis=0)
        self._move[group] = extra[best, np.arange(len(best))]
        self._mover[group] = jobs[best]

    def _insert(self, job: int) -> None:
        """Bring in all places of a job, each batch along the cheapest chain."""
        left = int(self.scale[job])
        while left:
            chain = self._cheapest_chain(job)
            movers = [int(self._mover[a, b]) for a, b in pairwise(chain)]
            batch = min(left, self._room[chain[-1]])
            for mover, group in zip(movers, chain, strict=False):
                batch = min(batch, int(self.held[mover, group]))
            self.held[job, chain[0]] += batch
            for mover, (here, there) in zip(movers, pairwise(chain), strict=True):
                self.held[mover, here] -= batch
                self.held[mover, there] += batch
            last = chain[-1]
            self._room[last] -= batch
            for group in chain:
                self._weigh(group)
            kind = self._kind[last]
            if self._depth[last] == sum(k == kind for k in self._kind):
                self._deepen(kind)
            left -= batch

    def _cheapest_chain(self, job: int) -> list[int]:
        """Groups from where the job enters to one with room (Bellman-Ford, all groups at once)."""
        cost = self._cost[job].copy()
        before = np.full(len(cost), -1)
        for _ in range(len(cost)):
            through = cost[:, None] + self._move
            best = through.argmin(axis=0)
            cheaper = through[best, np.arange(len(cost))]
            better = cheaper < cost - 1e-9 * np.abs(np.where(np.isfinite(cost), cost, 1.0))
            if not better.any():
                break
            cost = np.where(better, cheaper, cost)
            before = np.where(better, best, before)
        roomy = np.array(self._room) > 0
        last = int(np.where(roomy, cost, np.inf).argmin())
        chain = [last]
        while before[chain[-1]] >= 0:
            chain.append(int(before[chain[-1]]))
        return chain[::-1]
