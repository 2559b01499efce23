"""AlloX: the least average completion time as a matching of jobs to places in the GPUs' queues.

Le, Sun, Chowdhury, Liu, "AlloX: Compute Allocation in Hybrid Clusters", EuroSys 2020, as Gavel
compares with it. The job that is k-th from the last on a GPU delays k jobs (itself among them) by
its run time, so the k-th place from the end of type j costs job i

    k · n_i / T_ij

and a matching of least cost minimises the sum of completion times. GPUs of one type are alike, so
places are groups of N_j. Jobs are matched one after the other, each along the cheapest chain of
moves between groups (successive shortest paths), which keeps the matching optimal.

The published policy handles single-GPU jobs only. Here a gang of s fills s places, each at 1/s of
its cost. A chain may split a gang over several groups; the gang then queues in the group that holds
most of it.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from dlsched.core.arrays import Floats, Ints, Rows
from dlsched.policies.scheduling.gavel.problem import Problem, Shares, no_pairs


def match_to_places(problem: Problem, alpha: float = 1.0) -> Shares:
    """X = 1 for jobs that have it already and for the first jobs of each queue.

    `home` is 1 where a job runs already; `alpha` is the part of the waiting jobs that is
    considered, longest waiting first, at least as many as there are free GPUs.
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
    for job, gpu_type in _firsts(Places(time, scale, free.astype(np.int64)), free):
        x[waiting[job], gpu_type] = 1.0
    return Shares(x, no_pairs(problem))


def _firsts(places: Places, free: Floats) -> list[tuple[int, int]]:
    """The (job, type) that start now: from the front of each type's queue while there is room."""
    found = []
    room = free.tolist()
    gpu_type, depth = places.queue()
    for job in np.lexsort((np.arange(len(gpu_type)), -depth)).tolist():
        if room[gpu_type[job]] >= places.scale[job]:
            room[gpu_type[job]] -= places.scale[job]
            found.append((job, int(gpu_type[job])))
    return found


class Places:
    """A matching of jobs to groups of equal places.

    Attributes:
        scale: places that each job needs.
        held: places that each job has, [job, group].
    """

    def __init__(self, time: Floats, scale: Ints, free: Ints) -> None:
        self._rate = time / scale[:, None]  # cost of a place at depth 1, by type
        self.scale, self._free = scale, free
        self._gpu_type: list[int] = []
        self._depth: list[int] = []
        count = len(scale)
        self.held = np.zeros((count, 0), np.int64)
        self._cost = np.zeros((count, 0))
        self._room: list[int] = []
        self._move = np.zeros((0, 0))  # least cost of moving one job between groups
        self._mover = np.zeros((0, 0), np.int64)
        for gpu_type in np.flatnonzero(free > 0).tolist():
            self._deepen(gpu_type)
        for job in range(count):
            self._insert(job)

    def queue(self) -> tuple[Rows, Rows]:
        """GPU type and depth of each job: those of the group that holds most of it."""
        depth = np.array(self._depth, np.int64)
        key = self.held * (depth.max(initial=0) + 1) + depth
        group = key.argmax(axis=1) if key.size else np.zeros(len(self.scale), np.int64)
        return np.array(self._gpu_type, np.int64)[group], depth[group]

    def cost(self) -> float:
        """Sum of the completion times of the matching, in seconds."""
        return float((np.where(self.held > 0, self._cost, 0.0) * self.held).sum())

    def _deepen(self, gpu_type: int) -> None:
        """Add one group to a type, behind its other groups."""
        self._gpu_type.append(gpu_type)
        self._depth.append(1 + sum(k == gpu_type for k in self._gpu_type[:-1]))
        self._room.append(int(self._free[gpu_type]))
        self.held = np.pad(self.held, ((0, 0), (0, 1)))
        self._cost = np.column_stack([self._cost, self._depth[-1] * self._rate[:, gpu_type]])
        groups = len(self._gpu_type)
        grown = np.full((groups, groups), np.inf)
        grown[:-1, :-1] = self._move
        movers = np.zeros((groups, groups), np.int64)
        movers[:-1, :-1] = self._mover
        self._move, self._mover = grown, movers
        for group in range(groups - 1):
            self._weigh(group)

    def _weigh(self, group: int) -> None:
        """The least cost of moving a job from a group to each other one, and that job."""
        jobs = np.flatnonzero(self.held[:, group])
        if not len(jobs):
            self._move[group] = np.inf
            return
        extra = self._cost[jobs] - self._cost[jobs, group, None]
        best = extra.argmin(axis=0)
        self._move[group] = extra[best, np.arange(len(best))]
        self._mover[group] = jobs[best]

    def _insert(self, job: int) -> None:
        """Match all places of a job, each batch along the cheapest chain."""
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
            gpu_type = self._gpu_type[last]
            if self._depth[last] == sum(k == gpu_type for k in self._gpu_type):
                self._deepen(gpu_type)
            left -= batch

    def _cheapest_chain(self, job: int) -> list[int]:
        """Groups from the one that the job enters to one with room (Bellman-Ford)."""
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
