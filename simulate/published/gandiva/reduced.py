"""Gandiva as Tiresias' simulator reduces it: sets of nodes for each gang size, and time slices.

A set serves jobs of one gang size; more jobs than fit take turns. The steps of its loop, in their
order and with their oddities (loads that are never lessened, a strict comparison, a loop variable
that is used twice, a list that changes while it is walked), are those of the published program.

Source: SymbioticLab/Tiresias, the scheme and the schedule "gandiva".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

SIZES = (1, 2, 4, 8, 12, 16, 24, 32, 64)  # GPUs of a gang that it knows
SLICE_S = 60  # jobs take turns at multiples of it
TICK_S = 10.0  # the loop steps, unless an arrival comes before


@dataclass(slots=True)
class NodeSet:
    """Nodes that serve jobs of one gang size.

    Attributes:
        nodes: their numbers, in the order in which they were taken.
        capacity: gangs that fit.
        jobs: in the order in which they have their turns.
        load: jobs that have come; those that end are not taken off.
    """

    nodes: list[int]
    capacity: int
    jobs: list[int] = field(default_factory=list)
    load: int = 0

    @property
    def turn(self) -> int:
        """How many of its jobs run, from the first."""
        return max(min(self.capacity, len(self.jobs)), 1)


class Tick(NamedTuple):
    """What the published program notes down in each step of its loop."""

    time: float
    idle_nodes: int
    idle_gpus: int  # of nodes in use
    busy_gpus: int
    pending: int
    running: int  # jobs in sets, whether or not it is their turn
    completed: int
    sets: tuple[int, ...]  # by `SIZES`


class ReducedGandiva:
    """The loop's state; `step` is one pass through it.

    Attributes:
        nodes: how many there are.
        size: GPUs of each.
        free: nodes in no set, in the order in which they are taken.
        sets: by gang size, the least loaded first as far as they are sorted.
        pending: jobs that are in no set, in order of arrival.
        placed: the jobs that have got a set in the last step.
        last: what the last step has noted.
    """

    def __init__(self, nodes: int, gpus_per_node: int) -> None:
        """Begin with an empty cluster of equal nodes."""
        self.nodes, self.size = nodes, gpus_per_node
        self.free = list(range(nodes))
        self.sets: dict[int, list[NodeSet]] = {gang: [] for gang in SIZES}
        self.pending: list[tuple[int, int]] = []  # job and gang
        self.placed: list[int] = []
        self.last: Tick | None = None
        self._executed: dict[int, float] = {}
        self._completed = 0
        self._time = -1.0

    def step(
        self, now: float, arrived: Sequence[tuple[int, int]], needs: Callable[[int], float]
    ) -> list[int]:
        """Go on to a moment.

        Args:
            now: seconds; at most a tick after the last step.
            arrived: jobs with their gangs, in order.
            needs: the seconds that a job has to execute.

        Returns:
            the jobs that end now.
        """
        passed = 0.0 if self._time < 0 else now - self._time
        self._time, self.placed = now, []
        self._adjust()
        ended, released = self._execute(now, passed, needs)
        for job, gang in arrived:
            if not self._place(job, gang):
                self.pending.append((job, gang))
        if released:
            place = 0
            while place < len(self.pending):  # the one behind each that is placed is passed over
                if self._place(*self.pending[place]):
                    del self.pending[place]
                place += 1
        return ended

    def turns(self) -> list[tuple[list[int], list[int], int]]:
        """The jobs whose turn it is, with the nodes and the gang of their sets."""
        return [
            (each.jobs[: each.turn], each.nodes, gang)
            for gang, sets in self.sets.items()
            for each in sets
        ]

    def forget(self, job: int) -> None:
        """A job has left without ending."""
        self._executed.pop(job, None)
        self.pending = [each for each in self.pending if each[0] != job]
        for sets in self.sets.values():
            for each in sets:
                if job in each.jobs:
                    each.jobs.remove(job)

    @property
    def jobs(self) -> set[int]:
        """All jobs that it knows."""
        placed = {job for sets in self.sets.values() for each in sets for job in each.jobs}
        return placed | {job for job, _ in self.pending}

    # -- the parts of a step ----------------------------------------------------------------------

    def _nodes_of(self, gang: int) -> int:
        return -(-gang // self.size)

    def _new_set(self, gang: int) -> NodeSet:
        count = self._nodes_of(gang)
        nodes, self.free = self.free[:count], self.free[count:]
        return NodeSet(nodes, count * self.size // gang)

    @staticmethod
    def _deal(jobs: Sequence[int], sets: list[NodeSet]) -> None:
        """Give jobs one after the other to the least loaded set."""
        for job in jobs:
            sets[0].jobs.append(job)
            sets[0].load += 1
            sets.sort(key=lambda each: each.load)

    def _adjust(self) -> None:
        """Give each gang size sets in proportion to the GPUs that its jobs demand."""
        demand = {g: g * sum(len(each.jobs) for each in sets) for g, sets in self.sets.items()}
        held = {g: self.size * sum(len(e.nodes) for e in sets) for g, sets in self.sets.items()}
        total = sum(demand.values())
        for gang in SIZES:
            if not demand[gang]:
                continue
            plan = int(demand[gang] / total * (self.nodes * self.size))
            more = min(plan, demand[gang]) - held[gang]
            if more > 0:
                self._expand(gang, -(-more // gang))
            elif more < 0:
                self._shrink(gang, -(more // gang))

    def _expand(self, gang: int, rounds: int) -> None:
        sets, value = self.sets[gang], 0
        for number in range(1, rounds + 1):
            value = number
            if self._nodes_of(gang) <= len(self.free):
                sets.append(self._new_set(gang))
                value = self._nodes_of(gang) - 1
        if value > 0:
            jobs = [job for each in sets for job in each.jobs]
            for each in sets:
                each.jobs, each.load = [], 0
            self._deal(jobs, sets)

    def _shrink(self, gang: int, rounds: int) -> None:
        sets, jobs = self.sets[gang], list[int]()
        for _ in range(min(rounds, len(sets) - 1)):
            gone = sets.pop(0)
            jobs += gone.jobs
            self.free += gone.nodes
        self._deal(jobs, sets)

    def _execute(
        self, now: float, passed: float, needs: Callable[[int], float]
    ) -> tuple[list[int], bool]:
        """Credit the time since the last step to the jobs whose turn it is; let others have it."""
        ended: list[int] = []
        released, busy = False, 0
        for gang, sets in self.sets.items():
            emptied: list[NodeSet] = []
            for each in sets:
                asked = len(each.jobs) * gang
                used = gang if asked > self.size else asked
                busy += used
                done = []
                for job in each.jobs[: each.turn]:
                    self._executed[job] += passed
                    if self._executed[job] >= needs(job):
                        done.append(job)
                if now % SLICE_S == 0 and len(each.jobs) > each.capacity:
                    each.jobs = each.jobs[each.turn :] + each.jobs[: each.turn]
                for job in done:
                    each.jobs.remove(job)
                    del self._executed[job]
                ended += done
                if not each.jobs:
                    self.free += each.nodes
                    emptied.append(each)
                    busy -= used
                    released = True
            self.sets[gang] = [each for each in sets if each not in emptied]
        self._completed += len(ended)
        self.last = Tick(
            now,
            len(self.free),
            (self.nodes - len(self.free)) * self.size - busy,
            busy,
            len(self.pending),
            sum(len(each.jobs) for sets in self.sets.values() for each in sets),
            self._completed,
            tuple(len(self.sets[gang]) for gang in SIZES),
        )
        return ended, released

    def _place(self, job: int, gang: int) -> bool:
        """Find a set for a job: one with room, a new one, or one that is full; or none."""
        sets = self.sets[gang]
        if sets:
            first = sets.pop(0)
            sets.append(first)
            if first.load + 1 < first.capacity:
                return self._join(job, first, sets)
        if self._nodes_of(gang) <= len(self.free):
            fresh = self._new_set(gang)
            sets.append(fresh)
            return self._join(job, fresh, sets)
        if not sets:
            return False
        first = sets.pop(0)
        sets.append(first)
        return self._join(job, first, sets)

    def _join(self, job: int, into: NodeSet, sets: list[NodeSet]) -> bool:
        into.jobs.append(job)
        into.load += 1
        sets.sort(key=lambda each: each.load)
        self._executed[job] = 0.0
        self.placed.append(job)
        return True

    # -- state ------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Sets, queue and clocks, as plain values."""
        return {
            "free": list(self.free),
            "sets": [
                [gang, [[e.nodes[:], e.capacity, e.jobs[:], e.load] for e in sets]]
                for gang, sets in self.sets.items()
            ],
            "pending": [list(each) for each in self.pending],
            "executed": sorted(self._executed.items()),
            "completed": self._completed,
            "time": self._time,
        }

    def load_state_dict(self, state: Any) -> None:
        """Go on from a `state_dict`."""
        self.free = [int(node) for node in state["free"]]
        self.sets = {
            int(gang): [NodeSet(list(n), int(c), list(jobs), int(load)) for n, c, jobs, load in of]
            for gang, of in state["sets"]
        }
        self.pending = [(int(job), int(gang)) for job, gang in state["pending"]]
        self._executed = {int(job): float(done) for job, done in state["executed"]}
        self._completed, self._time = int(state["completed"]), float(state["time"])

    def rename(self, place: dict[int, int]) -> None:
        """Jobs have other numbers from now on; those without one are gone."""
        for sets in self.sets.values():
            for each in sets:
                each.jobs = [place[job] for job in each.jobs if job in place]
        self.pending = [(place[job], gang) for job, gang in self.pending if job in place]
        self._executed = {place[j]: done for j, done in self._executed.items() if j in place}
