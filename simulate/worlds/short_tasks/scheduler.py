"""One scheduler: its view of the servers, its jobs, and what it sends where.

It sees of a server only what that server has told it: at reports, and in answers to its own tasks.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from dlsched.core.arrays import Floats, Ints
from dlsched.policies.scheduling.apollo.completion import RunTimes, completion, success_rate
from dlsched.policies.scheduling.apollo.matching import (
    at_best,
    dispatch_order,
    first_batch,
    greedily,
    match,
)
from dlsched.policies.scheduling.apollo.tokens import by_tokens
from dlsched.policies.scheduling.apollo.waits import look_up
from simulate.worlds.short_tasks.options import Options
from simulate.worlds.short_tasks.work import Job, Stage, Task

Matcher = Callable[[Floats, Sequence[float], np.random.Generator], dict[int, int]]


def _at_random(
    costs: Floats, _priority: Sequence[float], random: np.random.Generator
) -> dict[int, int]:
    """Each task takes any server that it fits and that is left."""
    left = random.permutation(costs.shape[1]).tolist()
    node_of: dict[int, int] = {}
    for task in range(costs.shape[0]):
        fitting = [node for node in left if costs[task, node] < np.inf]
        if fitting:
            node_of[task] = fitting[0]
            left.remove(fitting[0])
    return node_of


MATCHERS: dict[str, Matcher] = {
    "stable": lambda costs, priority, _random: match(costs, priority).node_of,
    "greedy": lambda costs, priority, _random: greedily(costs, priority),
    "best": lambda costs, _priority, _random: at_best(costs),
    "random": _at_random,
}


@dataclass(slots=True, eq=False)
class JobState:
    """A job that has come.

    Attributes:
        ready: tasks that can be sent, as a heap.
        left: tasks of each stage that are not done.
        regular: copies that hold a token.
        opportunistic: copies that do not.
        waits: sum and number of the waits of started copies, by stage.
    """

    job: Job
    number: int
    tokens: int
    left: list[int]
    ready: list[tuple[float, int, Task]] = field(default_factory=list)
    regular: int = 0
    opportunistic: int = 0
    waits: dict[int, tuple[float, int]] = field(default_factory=dict)
    ended_at: float | None = None

    def add(self, task: Task) -> None:
        """Let a task be sent, or sent again."""
        heapq.heappush(self.ready, (task.priority, task.number, task))

    def stage_of(self, task: Task) -> Stage:
        """The stage of a task."""
        return self.job.stages[task.stage]

    def mean_wait(self, stage: int) -> float | None:
        """Of the tasks of a stage that have started; None: none has."""
        total, count = self.waits.get(stage, (0.0, 0))
        return total / count if count else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One task and the server it is sent to."""

    task: Task
    server: int
    regular: bool
    wait: float
    seconds: float  # of fetching and running, as is believed


class Scheduler:
    """One of several schedulers."""

    def __init__(
        self,
        number: int,
        servers: int,
        sizes: tuple[Sequence[float], Sequence[float]],
        matching: str,
        options: Options,
    ) -> None:
        """Know nothing of any server yet: no task waits there.

        Args:
            number: of this scheduler; its random numbers follow from it and the seed.
            servers: how many there are.
            sizes: of the rows and columns of wait-time matrices.
            matching: how a batch is matched.
            options: of the run.
        """
        self.jobs: list[JobState] = []
        self.times = RunTimes()
        self._sizes, self._options = sizes, options
        self._match = MATCHERS[matching]
        self._matrices: Floats = np.zeros((servers, len(sizes[0]), len(sizes[1])))
        self._told_at: Floats = np.zeros(servers)
        self._random = np.random.default_rng((options.seed, 1, number))

    def told(self, server: int, matrix: Floats, now: float) -> None:
        """Take what a server says of its waits."""
        self._matrices[server] = matrix
        self._told_at[server] = now

    def estimate(self, state: JobState, task: Task) -> float:
        """Seconds that a task is believed to run."""
        stage = state.stage_of(task)
        return self.times.estimate((state.number, task.stage), stage.expected)

    def costs(
        self,
        state: JobState,
        tasks: Sequence[Task],
        tried: tuple[Ints, Ints],
        now: float,
        *,
        alike: bool = False,
    ) -> tuple[Floats, Floats, Floats]:
        """Completion, wait and seconds on each server, [task, server].

        Args:
            state: of their job.
            tasks: of it.
            tried: how many tasks have succeeded on each server, and how many were tried.
            now: the time.
            alike: leave the random part out.
        """
        options = self._options
        age = now - self._told_at
        waits: dict[int, Floats] = {}
        for task in tasks:
            if task.stage not in waits:
                stage = state.stage_of(task)
                size = (stage.cores, stage.memory)
                waits[task.stage] = look_up(
                    self._matrices, *self._sizes, size, age > options.stale_s
                )
        wait = np.array([waits[task.stage] for task in tasks])
        init = np.full(wait.shape, options.fetch_s)
        init[np.arange(len(tasks)), [task.home for task in tasks]] = 0.0
        run = np.array([self.estimate(state, task) for task in tasks])[:, None]
        found = completion(init, wait, run, success_rate(*tried), options.penalty)
        if options.spread and not alike:
            found = found + self._random.uniform(0.0, 1.0, len(age)) * options.spread * age
        return found, wait, init + run

    def choose(self, state: JobState, tried: tuple[Ints, Ints], now: float) -> list[Choice]:
        """Match one batch of a job; what is not sent stays ready."""
        options = self._options
        free = state.tokens - state.regular
        room = state.tokens - state.opportunistic if options.opportunistic else 0
        if not state.ready or (free <= 0 and room <= 0):
            return []
        most = min(len(self._told_at), options.batch)
        popped = [heapq.heappop(state.ready) for _ in range(min(most, len(state.ready)))]
        places = first_batch([task.priority for *_, task in popped], most)
        batch = [popped[place][2] for place in places]
        costs, wait, seconds = self.costs(state, batch, tried, now)
        node_of = self._match(costs, [task.priority for task in batch], self._random)
        sent = by_tokens(dispatch_order(node_of, costs, wait), free, room)
        found = [
            _choice(batch[place], node_of[place], wait[place], seconds[place], regular=regular)
            for regular, places in ((True, sent.regular), (False, sent.opportunistic))
            for place in places
        ]
        gone = {id(choice.task) for choice in found}
        for each in popped:
            if id(each[2]) not in gone:
                heapq.heappush(state.ready, each)
        return found

    def better(
        self, state: JobState, task: Task, left: float, tried: tuple[Ints, Ints], now: float
    ) -> Choice | None:
        """Where a second copy of a task would be done before the first; None: nowhere.

        Args:
            state: of its job.
            task: that waits or runs.
            left: seconds until its copy is done.
            tried: as in `costs`.
            now: the time.
        """
        costs, wait, seconds = self.costs(state, [task], tried, now, alike=True)
        here = [copy.server for copy in task.copies]
        costs[0, here] = np.inf
        best = int(costs[0].argmin())
        found = _choice(task, best, wait[0], seconds[0], regular=True)
        return found if costs[0, best] < np.inf and found.wait + found.seconds < left else None


def _choice(task: Task, server: int, wait: Floats, seconds: Floats, *, regular: bool) -> Choice:
    return Choice(
        task=task,
        server=server,
        regular=regular,
        wait=float(wait[server]),
        seconds=float(seconds[server]),
    )
