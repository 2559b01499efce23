"""A server: what it runs, its queue, opportunistic tasks, and what it tells of its waits.

Regular tasks start in the order of the queue, later ones where an earlier one does not fit.
Opportunistic tasks use what regular ones cannot; they are ended, the newest first, as soon as a
regular task could start in their place. So regular tasks start as if there were no others.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlsched.core.arrays import Floats
from dlsched.core.sums import ordered_sum
from dlsched.policies.scheduling.apollo.waits import Held, moments, queue_waits, wait_matrix
from simulate.worlds.short_tasks.work import Copy

ROUNDING = 1e-9  # of cores and memory


class Server:
    """One server.

    Attributes:
        cores: that it has.
        memory: that it has.
        success: the probability that a task does not fail here.
        running: copies that run, regular or not.
        queue: regular copies that wait.
        opportunistic: other copies that wait.
    """

    def __init__(self, cores: float, memory: float, success: float, seed: Sequence[int]) -> None:
        """Have no task yet; the seed is for the choice among opportunistic tasks."""
        self.cores, self.memory, self.success = cores, memory, success
        self.running: list[Copy] = []
        self.queue: list[Copy] = []
        self.opportunistic: list[Copy] = []
        self._random = np.random.default_rng(seed)

    def _free(self, *, for_regular: bool) -> tuple[float, float]:
        """Cores and memory that are free, or that regular tasks leave."""
        held = [copy for copy in self.running if copy.regular or not for_regular]
        cores = self.cores - ordered_sum(copy.cores for copy in held)
        return cores, self.memory - ordered_sum(copy.memory for copy in held)

    def start(self, now: float) -> tuple[list[Copy], list[Copy]]:
        """Start what can start; returns the copies that have started and those that were ended."""
        started, ended = [], []
        cores, memory = self._free(for_regular=True)
        left: list[Copy] = []
        for copy in self.queue:
            if _fits(copy, cores, memory):
                cores, memory = cores - copy.cores, memory - copy.memory
                started.append(copy)
            else:
                left.append(copy)
        self.queue = left
        for copy in started:
            while not _fits(copy, *self._free(for_regular=False)):
                last = max(
                    (each for each in self.running if not each.regular),
                    key=lambda each: (each.started_at, each.task.number),
                )
                self.running.remove(last)
                ended.append(last)
            self._run(copy, now)
        while True:
            free = self._free(for_regular=False)
            fitting = [copy for copy in self.opportunistic if _fits(copy, *free)]
            if not fitting:
                return started, ended
            chosen = fitting[int(self._random.integers(len(fitting)))]
            self.opportunistic.remove(chosen)
            self._run(chosen, now)
            started.append(chosen)

    def _run(self, copy: Copy, now: float) -> None:
        copy.started_at = now
        self.running.append(copy)

    def remove(self, copy: Copy) -> None:
        """Take a copy off, whether it waits or runs."""
        for of in (self.running, self.queue, self.opportunistic):
            if copy in of:
                of.remove(copy)

    def upgrade(self, copy: Copy) -> None:
        """Make an opportunistic copy a regular one; a waiting one goes to the end of the queue."""
        copy.regular = True
        if copy in self.opportunistic:
            self.opportunistic.remove(copy)
            self.queue.append(copy)

    # -- what it tells -------------------------------------------------------------------------

    def _held(self, now: float) -> list[Held]:
        """Regular copies that run, with the seconds that they still need as was expected.

        One that has run longer than that is expected to be late by twice as much.
        """
        return [
            Held(abs(copy.started_at + copy.expected - now), copy.cores, copy.memory)
            for copy in self.running
            if copy.regular and copy.started_at is not None
        ]

    def _queued(self) -> list[Held]:
        return [Held(copy.expected, copy.cores, copy.memory) for copy in self.queue]

    def matrix(self, now: float, cores: Sequence[float], memory: Sequence[float]) -> Floats:
        """How long a regular task of each size would wait, [cores, memory]."""
        future = moments(self.cores, self.memory, self._held(now), self._queued())
        return wait_matrix(future, cores, memory)

    def waits(self, now: float) -> list[float]:
        """How long each copy of the queue still waits."""
        future = moments(self.cores, self.memory, self._held(now), self._queued())
        return queue_waits(future, len(self.queue))


def _fits(copy: Copy, cores: float, memory: float) -> bool:
    return copy.cores <= cores + ROUNDING and copy.memory <= memory + ROUNDING
