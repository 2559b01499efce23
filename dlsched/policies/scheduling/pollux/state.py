"""A state that is changed row by row, with the free GPUs and the job that spans each node."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dlsched.core.arrays import Bools, Floats, Ints
from dlsched.policies.scheduling.pollux.choices import Choices, Menu
from dlsched.policies.scheduling.pollux.problem import Problem

ONE_NODE, SEVERAL, STAY = 0, 1, 2
NO_JOB = -1


class Offers(NamedTuple):
    """The best row that each job could have in this state, if it alone moved.

    Attributes:
        value: gain less price.
        kind: on one node, on several, or the present row.
        replicas: number of replicas.
    """

    value: Floats
    kind: Ints
    replicas: Ints


class State:
    """Rows of all jobs.

    Attributes:
        rows: [job, node] replicas.
        free: [node] free GPUs.
        owner: [node] the job that spans nodes and uses this one, if any.
        gain: [job] gain of its row.
        replicas: [job].
    """

    __slots__ = (
        "_by_type", "_choices", "_everywhere", "_spans", "free", "gain", "owner", "problem",
        "replicas", "rows",
    )  # fmt: skip

    def __init__(self, problem: Problem, choices: Choices, rows: Ints) -> None:
        """A feasible state; `rows` has the replicas, [job, node]."""
        self.problem = problem
        self._choices = choices
        self._everywhere = bool(problem.allowed.all())
        types = problem.gpu_type
        self._by_type = [] if types is None else [types == k for k in np.unique(types).tolist()]
        self._spans: Bools = (problem.base > 0).sum(axis=1) > 1
        self.rows = rows.copy()
        self.free: Ints = problem.capacity - rows.sum(axis=0)
        self.owner: Ints = np.full(problem.nodes, NO_JOB)
        spanning = (rows > 0).sum(axis=1) > 1
        for job in np.flatnonzero(spanning).tolist() if problem.apart else ():
            self.owner[rows[job] > 0] = job
        self.replicas: Ints = rows.sum(axis=1)
        changed = choices.changed[np.arange(problem.jobs), spanning.astype(int), self.replicas]
        stays = (rows == problem.base).all(axis=1)
        self.gain: Floats = np.where(stays, choices.stay, changed)

    def copy(self) -> State:
        """A copy."""
        twin = object.__new__(State)
        twin.problem, twin._choices = self.problem, self._choices
        twin._everywhere, twin._spans = self._everywhere, self._spans
        twin._by_type = self._by_type
        twin.rows, twin.free = self.rows.copy(), self.free.copy()
        twin.owner, twin.gain = self.owner.copy(), self.gain.copy()
        twin.replicas = self.replicas.copy()
        return twin

    @property
    def total(self) -> float:
        """The sum of gains."""
        return float(self.gain.sum())

    def give(self, job: int, row: Ints, gain: float) -> None:
        """Replace the row of a job."""
        old = self.rows[job]
        self.free += old
        self.free -= row
        if self.problem.apart:
            self.owner[self.owner == job] = NO_JOB
            if np.count_nonzero(row) > 1:
                self.owner[row > 0] = job
        self.rows[job] = row
        self.gain[job] = gain
        self.replicas[job] = row.sum()

    def clear(self, job: int) -> None:
        """Remove all replicas of a job."""
        self.give(job, np.zeros_like(self.free), float(self._choices.changed[job, ONE_NODE, 0]))

    def offers(self, jobs: Ints, menu: Menu) -> Offers:
        """The best row that each of these jobs could have, if it alone moved."""
        room, barred, on_one, on_several = self._rooms(jobs)
        tables = menu.value.shape[2] - 1
        on_one, on_several = np.minimum(on_one, tables), np.minimum(on_several, tables)
        one = menu.value[jobs, ONE_NODE, on_one]
        several = menu.value[jobs, SEVERAL, on_several]
        stays = self._may_stay(jobs, room, barred)
        stay = np.where(stays, menu.stay[jobs], -np.inf)
        kind = (several > one).astype(np.int64)
        value = np.maximum(one, several)
        kind[stay >= value] = STAY
        replicas = menu.replicas[jobs, np.minimum(kind, 1), np.where(kind, on_several, on_one)]
        return Offers(np.maximum(value, stay), kind, replicas)

    def fits(self, job: int, kind: int, replicas: int) -> bool:
        """Whether there is room for a job to have such a row."""
        jobs = np.array([job])
        room, barred, on_one, on_several = self._rooms(jobs)
        if kind == STAY:
            return bool(self._may_stay(jobs, room, barred)[0])
        return replicas <= int((on_several if kind == SEVERAL else on_one)[0])

    def _rooms(self, jobs: Ints) -> tuple[Ints, Bools | None, Ints, Ints]:
        """The room for each of these jobs, if it alone moved.

        Returns:
            GPUs [job, node]; nodes barred by other jobs that span nodes, None for none; the most
            GPUs on one node; the most on several nodes, 0 where there are not several.
        """
        problem = self.problem
        room = self.rows[jobs] + self.free
        if not self._everywhere:
            room *= problem.allowed[jobs]
        barred = None
        apart = room
        if problem.apart:
            barred = (self.owner != NO_JOB) & (self.owner != jobs[:, None])
            apart = np.where(barred, 0, room)
        if self._by_type:
            each = [self._widest_sum(np.where(k, apart, 0), jobs) for k in self._by_type]
            on_several: Ints = np.max(each, axis=0)
        else:
            on_several = self._widest_sum(apart, jobs)
        return room, barred, room.max(axis=1), on_several

    def _may_stay(self, jobs: Ints, room: Ints, barred: Bools | None) -> Bools:
        """Whether jobs could have their present rows of the problem."""
        base = self.problem.base[jobs]
        stays: Bools = np.asarray((base <= room).all(axis=1))
        if barred is not None:
            meets = (barred & (base > 0)).any(axis=1) & self._spans[jobs]
            stays = np.asarray(stays & ~meets)
        return stays

    def _widest_sum(self, room: Ints, jobs: Ints) -> Ints:
        """Replicas that fit on as many nodes as a job may span; 0 where that is one node."""
        widest = self.problem.widest
        used = (room > 0).sum(axis=1)
        total = room.sum(axis=1)
        cut = (used > widest) & (self.problem.most[jobs] > widest)
        if cut.any():
            total[cut] = -np.partition(-room[cut], widest - 1, axis=1)[:, :widest].sum(axis=1)
        return np.where((used > 1) & (widest > 1), total, 0)

    def take(self, job: int, kind: int, replicas: int) -> None:
        """Give a job the offered row, on the nodes where it leaves the least room unused."""
        if kind == STAY:
            self.give(job, self.problem.base[job], float(self._choices.stay[job]))
            return
        row = np.zeros_like(self.free)
        if replicas:
            room = self.rows[job] + self.free
            if not self._everywhere:
                room *= self.problem.allowed[job]
            if kind == ONE_NODE:
                # of equals, avoid nodes without a spanning job: other spanning jobs may need them
                crowding = room * 2 + (self.owner == NO_JOB)
                crowding[room < replicas] = np.iinfo(np.int64).max
                row[crowding.argmin()] = replicas
            else:
                if self.problem.apart:
                    room[(self.owner != NO_JOB) & (self.owner != job)] = 0
                if self._by_type:
                    jobs = np.array([job])
                    each = [np.where(own, room, 0) for own in self._by_type]
                    room = max(each, key=lambda one: int(self._widest_sum(one[None], jobs)[0]))
                _spread(row, room, replicas)
        same = bool((row == self.problem.base[job]).all())
        gain = self._choices.stay[job] if same else self._choices.changed[job, kind, replicas]
        self.give(job, row, float(gain))


def _spread(row: Ints, room: Ints, replicas: int) -> None:
    """Fill the nodes with most room, and choose the last one with the least room left."""
    order = np.argsort(-room, kind="stable")
    left = replicas
    for number, node in enumerate(order.tolist()):
        here = min(int(room[node]), left)
        if number == 0 and here == left:
            here -= 1  # the row must span nodes
        if here == left:
            rest = [other for other in order[number:].tolist() if room[other] >= left]
            row[rest[-1]] = left
            return
        row[node] = here
        left -= here
