"""A cluster as one pool of resources, with the jobs in it and the tasks that run."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from dlsched.policies.scheduling.carbyne.plan import Room
from dlsched.policies.scheduling.carbyne.stages import Graph, Number, Vector
from simulate.worlds.dags.workload import Dag


@dataclass(frozen=True, slots=True, kw_only=True)
class Amounts:
    """How amounts of resources are added and compared.

    Attributes:
        room: makes an empty virtual machine of a size.
        counted: what every sum and difference counts as.
    """

    room: Callable[[Vector], Room]
    counted: Callable[[Number], Number]

    def plus(self, a: Vector, b: Vector) -> Vector:
        """The sum."""
        return tuple(self.counted(x + y) for x, y in zip(a, b, strict=True))

    def difference(self, a: Vector, b: Vector) -> Vector:
        """The difference, which may be below 0."""
        return tuple(self.counted(x - y) for x, y in zip(a, b, strict=True))

    def minus(self, a: Vector, b: Vector) -> Vector:
        """The difference, at least 0."""
        return tuple(max(0, part) for part in self.difference(a, b))


@dataclass(slots=True, kw_only=True)
class Live:
    """A job in the system.

    Attributes:
        dag: what was submitted.
        waiting: by stage, tasks that have not begun.
        unfinished: by stage, tasks that have not ended.
        ready: stages of which tasks may begin, in the order in which they became ready.
        held: resources of its running tasks.
    """

    dag: Dag
    waiting: list[int]
    unfinished: list[int]
    ready: list[int]
    held: Vector

    @property
    def graph(self) -> Graph:
        """Its stages."""
        return self.dag.graph

    @property
    def is_done(self) -> bool:
        """Whether all tasks have ended."""
        return not any(self.unfinished)

    def end_one(self, ended: int) -> list[int]:
        """A task of a stage has ended; returns the stages that are ready by it."""
        self.unfinished[ended] -= 1
        if self.unfinished[ended]:
            return []
        return [
            number
            for number, stage in enumerate(self.graph.stages)
            if ended in stage.parents and not any(self.unfinished[each] for each in stage.parents)
        ]


@dataclass(slots=True)
class Cluster:
    """What runs.

    Attributes:
        capacity: by resource.
        amounts: arithmetic.
        now: seconds.
        jobs: in the system, in order of arrival.
        used: by resource.
    """

    capacity: Vector
    amounts: Amounts
    now: Number = 0
    jobs: list[Live] = field(default_factory=list)
    used: Vector = ()
    _running: list[tuple[Number, int, Live, int]] = field(default_factory=list)
    _begun: int = 0

    def __post_init__(self) -> None:
        self.used = self._nothing

    @property
    def _nothing(self) -> Vector:
        return tuple(0 * part for part in self.capacity)

    @property
    def free(self) -> Vector:
        """Resources that no task holds."""
        return self.amounts.minus(self.capacity, self.used)

    @property
    def next_end(self) -> Number | None:
        """When the next task ends; None: none runs."""
        return self._running[0][0] if self._running else None

    def admit(self, dag: Dag) -> None:
        """A job arrives."""
        counts = [stage.tasks for stage in dag.graph.stages]
        roots = [number for number, stage in enumerate(dag.graph.stages) if not stage.parents]
        self.jobs.append(
            Live(dag=dag, waiting=counts, unfinished=[*counts], ready=roots, held=self._nothing)
        )

    def start(self, job: Live, number: int) -> bool:
        """Begin a task of a ready stage; returns whether the cluster had room."""
        stage = job.graph.stages[number]
        if any(part > free for part, free in zip(stage.demand, self.free, strict=True)):
            return False
        self.used = self.amounts.plus(self.used, stage.demand)
        job.held = self.amounts.plus(job.held, stage.demand)
        job.waiting[number] -= 1
        if not job.waiting[number]:
            job.ready.remove(number)
        self._begun += 1
        heapq.heappush(self._running, (self.now + stage.duration, self._begun, job, number))
        return True

    def end_tasks(self) -> list[Live]:
        """Tasks whose time is over end; returns their jobs in order of arrival."""
        freed: dict[str, list[int]] = defaultdict(list)
        while self._running and self._running[0][0] <= self.now:
            _, _, job, number = heapq.heappop(self._running)
            demand = job.graph.stages[number].demand
            self.used = self.amounts.minus(self.used, demand)
            job.held = self.amounts.minus(job.held, demand)
            freed[job.dag.id] += job.end_one(number)
        touched = [job for job in self.jobs if job.dag.id in freed]
        for job in touched:
            job.ready += sorted(freed[job.dag.id])
        self.jobs = [job for job in self.jobs if not job.is_done]
        return touched
