"""The slot world: all jobs stop at the end of a slot and get workers and servers anew in the next.

In each slot a policy places workers and parameter servers, one by one or as bundles of both, on
nodes with processor and GPU slots. A request goes to the node with the fewest used slots and to no
other: where it does not fit there, it fails. Then every job with a worker and a server trains for
the slot, at the speed of its model with these numbers.

Peng, Bao, Chen, Wu, Meng, Lin, "DL2: A Deep Learning-driven Scheduler for Deep Learning Clusters",
IEEE TPDS 2021; details as in its published program.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from dlsched.core.arrays import Floats
from dlsched.core.errors import BadInput
from simulate.worlds.slots.jobs import SlotJobs
from simulate.worlds.slots.speeds import SpeedSurface

NODE_SLOTS = 8  # of processors, and of GPUs (two GPUs of four slots)
MOST_SLOTS = 100_000  # a run that lasts longer makes no progress
Demand = tuple[int, int]


class Role(IntEnum):
    """What is placed: the order is that of a learned policy's actions for a job."""

    WORKER = 0
    SERVER = 1
    BUNDLE = 2


class Conditions(NamedTuple):
    """The cluster and the length of slots.

    Attributes:
        nodes: all alike.
        slot_s: seconds.
        most: workers of a job at most, and servers.
    """

    nodes: int
    slot_s: float = 1200.0
    most: int = 16


class Nodes:
    """The nodes in one slot, by used slots; a request is tried on the emptiest alone."""

    def __init__(self, count: int) -> None:
        self.used = [(0, 0)] * count
        self._queue = [(0, node) for node in range(count)]

    def place(self, demand: Demand) -> bool:
        """Place on the node with the fewest used slots (of equal ones the first), if it fits."""
        _, node = self._queue[0]
        if not self.take(node, demand):
            return False
        heapq.heapreplace(self._queue, (sum(self.used[node]), node))
        return True

    def take(self, node: int, demand: Demand) -> bool:
        """Place on a node, if it fits; past the queue."""
        cpu, gpu = self.used[node]
        cpu, gpu = cpu + demand[0], gpu + demand[1]
        if cpu > NODE_SLOTS or gpu > NODE_SLOTS:
            return False
        self.used[node] = cpu, gpu
        return True


class SlotWorld:
    """One trace, slot by slot: `begin`, then a policy's `place`, then `end`.

    Attributes:
        jobs: of the trace.
        conditions: of the run.
        slot: the present one, from 0.
        there: jobs that have arrived and not ended, by arrival and number.
        workers: of each job in this slot.
        servers: of each job in this slot.
        progress: epochs done, by job.
        completion: slots from arrival to end, by job; NaN before the end.
        makespan: slots until the last end so far.
        nodes: of this slot.
    """

    def __init__(self, jobs: SlotJobs, speeds: SpeedSurface, conditions: Conditions) -> None:
        count = len(jobs)
        self.jobs, self.conditions = jobs, conditions
        self.slot, self.there = 0, list[int]()
        self.workers, self.servers = [0] * count, [0] * count
        self.progress = [0.0] * count
        self.completion: Floats = np.full(count, np.nan)
        self.makespan = 0.0
        self.nodes = Nodes(conditions.nodes)
        self.epochs: list[float] = jobs.epochs.tolist()
        self.arrival: list[int] = jobs.arrival.tolist()
        workers, servers = jobs.worker.tolist(), jobs.server.tolist()
        self.demands: list[tuple[Demand, Demand, Demand]] = [
            ((wc, wg), (sc, sg), (wc + sc, wg + sg))
            for (wc, wg), (sc, sg) in zip(workers, servers, strict=True)
        ]
        batches = jobs.batches.tolist()
        tables = {name: speeds.of(name) for name in dict.fromkeys(jobs.model)}
        self._rates: list[list[list[float]]] = [
            (tables[model] * conditions.slot_s / each).tolist()
            for model, each in zip(jobs.model, batches, strict=True)
        ]
        self._next = 0

    @property
    def is_over(self) -> bool:
        """Have all jobs ended?"""
        return self._next == len(self.jobs) and not self.there

    def epochs_per_slot(self, job: int, servers: int, workers: int) -> float:
        """Epochs that a job does in a slot."""
        return self._rates[job][servers][workers]

    def remaining(self, job: int) -> float:
        """The part of a job that is left, 0 to 1."""
        return 1.0 - self.progress[job] / self.epochs[job]

    def share(self, job: int) -> float:
        """The dominant share of a job: its larger part of all processor or all GPU slots."""
        (cpu, gpu), (server_cpu, server_gpu), _ = self.demands[job]
        workers, servers = self.workers[job], self.servers[job]
        used = max(workers * cpu + servers * server_cpu, workers * gpu + servers * server_gpu)
        return used / (self.conditions.nodes * NODE_SLOTS)

    def begin(self) -> None:
        """Begin a slot: nothing is placed, and jobs arrive."""
        for job in self.there:
            self.workers[job] = self.servers[job] = 0
        self.nodes = Nodes(self.conditions.nodes)
        while self._next < len(self.jobs) and self.arrival[self._next] <= self.slot:
            self.there.append(self._next)
            self._next += 1

    def place(self, job: int, role: Role) -> bool:
        """Place a worker, a server or one of each; False where it does not fit."""
        if not self.nodes.place(self.demands[job][role]):
            return False
        self.count(job, role)
        return True

    def count(self, job: int, role: Role) -> None:
        """Count what was placed for a job."""
        if role != Role.SERVER:
            self.workers[job] += 1
        if role != Role.WORKER:
            self.servers[job] += 1

    def end(self) -> float:
        """Let all jobs train, and end the slot; returns Σ of the parts of jobs that were done."""
        reward, still = 0.0, []
        for job in self.there:
            done = self._rates[job][self.servers[job]][self.workers[job]]
            whole, left = self.epochs[job], self.epochs[job] - self.progress[job]
            if done <= left:
                self.progress[job] += done
                reward += done / whole
                if self.progress[job] < whole:
                    still.append(job)
                    continue
                part = 1.0
            else:
                self.progress[job] = whole
                reward += left / whole
                part = left / done
            self.completion[job] = self.slot - self.arrival[job] + part
            self.makespan = max(self.makespan, self.slot + part)
        self.there = still
        self.slot += 1
        return reward


@dataclass(frozen=True, slots=True)
class SlotOutcome:
    """What came of one run.

    Attributes:
        completion: slots from arrival to end, by job.
        makespan: slots until the last end.
        rewards: of each slot.
    """

    completion: Floats
    makespan: float
    rewards: Floats


def run_slots(world: SlotWorld, divide: Callable[[SlotWorld], None]) -> SlotOutcome:
    """Run a world to its end; `divide` places workers and servers in each slot.

    Raises:
        BadInput: a job makes no progress, whatever it is given.
    """
    rewards = []
    while not world.is_over:
        world.begin()
        divide(world)
        rewards.append(world.end())
        if world.slot > MOST_SLOTS:
            job = world.jobs.number[world.there[0]] if world.there else world.jobs.number[-1]
            raise BadInput(f"job {job} has not ended after {MOST_SLOTS:,} slots")
    return SlotOutcome(world.completion, world.makespan, np.array(rewards))
