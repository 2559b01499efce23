"""What is to run: jobs of stages of tasks, and copies of tasks on servers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from dlsched.core.arrays import Floats
from dlsched.core.graphs import ways_to_the_end


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Tasks of one kind in a job.

    Attributes:
        name: within the job.
        tasks: how many.
        runtime: seconds, the mean of them.
        spread: of the logarithm of their run times; 0: all are equal.
        expected: seconds, as the user says before any has finished.
        cores: of each task.
        memory: of each task.
        parents: stages that must be over first.
    """

    name: str
    tasks: int
    runtime: float
    spread: float
    expected: float
    cores: float
    memory: float
    parents: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job: its stages, when it comes, and how many tokens it has (None: as the cluster gives)."""

    id: str
    arrival: float
    stages: tuple[Stage, ...]
    tokens: int | None = None


@dataclass(slots=True, eq=False)
class Task:
    """One task.

    Attributes:
        job: its number.
        stage: number within the job.
        priority: a smaller number goes first.
        runtime: seconds, in truth.
        home: the server that has its inputs.
        copies: of it that wait or run.
        is_done: whether a copy of it has ended well.
        copied: a second copy was made.
    """

    number: int
    job: int
    stage: int
    priority: float
    runtime: float
    home: int
    copies: list[Copy] = field(default_factory=list)
    is_done: bool = False
    copied: bool = False


@dataclass(slots=True, eq=False)
class Copy:
    """A task on a server.

    Attributes:
        server: its number.
        cores: of the task.
        memory: of the task.
        seconds: that it holds the server, in truth: fetching and running.
        expected: the same, as its scheduler believes.
        regular: whether it holds a token.
        sent_at: when.
        told_wait: what was expected then.
        started_at: None: it waits.
    """

    task: Task
    server: int
    cores: float
    memory: float
    seconds: float
    expected: float
    regular: bool
    sent_at: float
    told_wait: float
    started_at: float | None = None


def longest_paths(stages: Sequence[Stage]) -> dict[str, float]:
    """Seconds from the start of each stage to the end of the job, along the longest path."""
    return ways_to_the_end(
        {stage.name: stage.expected for stage in stages},
        {stage.name: stage.parents for stage in stages},
    )


def run_times(stage: Stage, random: np.random.Generator) -> Floats:
    """Run times of the tasks of a stage in truth, the longest first as its inputs are."""
    shape = -0.5 * stage.spread**2  # of a log-normal distribution with the mean 1
    drawn = random.lognormal(shape, stage.spread, stage.tasks) if stage.spread else 1.0
    found: Floats = -np.sort(-stage.runtime * np.broadcast_to(drawn, stage.tasks))
    return found
