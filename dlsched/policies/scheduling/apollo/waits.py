"""Wait-time matrices: how long a task of a given size would wait on a node.

A node has a capacity on two axes (GPUs or processors, and memory), tasks that run, and a queue. It
starts every task of the queue that fits, in the order of the queue; a later one may pass one that
does not fit. A probe at the end of the queue then starts at the first moment at which it fits. The
probe changes nothing for the others, so one pass through the node's future answers all sizes.

Paper: section 3.2 and the package; the order of events within a moment is ours. Times may be floats
or whole numbers, and come out as they came in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dlsched.core.arrays import Bools, Floats
from dlsched.core.sums import ordered_sum

NEVER = np.inf


class Held(NamedTuple):
    """A task on a node: seconds that it still needs, and what it holds or asks for."""

    seconds: float
    cores: float
    memory: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """What is free from some time on.

    Attributes:
        at: seconds from now.
        cores: free.
        memory: free.
        started: places in the queue of the tasks that start now.
    """

    at: float
    cores: float
    memory: float
    started: tuple[int, ...]


def moments(
    cores: float, memory: float, running: Sequence[Held], queue: Sequence[Held]
) -> Iterator[Moment]:
    """The future of a node, from now until its last task has ended.

    Args:
        cores: that the node has.
        memory: that it has.
        running: tasks that run now.
        queue: tasks that wait, in their order; one that is larger than the node never starts.
    """
    free_cores = cores - ordered_sum(task.cores for task in running)
    free_memory = memory - ordered_sum(task.memory for task in running)
    ends = sorted((task.seconds, task.cores, task.memory) for task in running)
    waiting = list(enumerate(queue))
    now: float = 0
    while True:
        started, left = [], []
        for place, task in waiting:
            if task.cores <= free_cores and task.memory <= free_memory:
                free_cores -= task.cores
                free_memory -= task.memory
                ends.append((now + task.seconds, task.cores, task.memory))
                started.append(place)
            else:
                left.append((place, task))
        waiting = left
        if started:
            ends.sort()
        yield Moment(at=now, cores=free_cores, memory=free_memory, started=tuple(started))
        if not ends:
            return
        now = ends[0][0]
        while ends and ends[0][0] <= now:
            _, back_cores, back_memory = ends.pop(0)
            free_cores += back_cores
            free_memory += back_memory


def wait_matrix(
    future: Iterator[Moment], cores: Sequence[float], memory: Sequence[float]
) -> Floats:
    """Seconds until a task of each size would start, [cores, memory]; infinite: it never fits.

    Args:
        future: of the node.
        cores: sizes on the first axis, ascending.
        memory: sizes on the second axis, ascending.
    """
    rows, columns = np.asarray(cores), np.asarray(memory)
    found: Floats = np.full((len(rows), len(columns)), NEVER)
    for moment in future:
        fits: Bools = (rows <= moment.cores)[:, None] & (columns <= moment.memory)
        found[fits & (found == NEVER)] = moment.at
        if not found.size or found[-1, -1] < NEVER:  # the largest fits last
            break
    return found


def queue_waits(future: Iterator[Moment], tasks: int) -> list[float]:
    """Seconds until each task of the queue starts; infinite: it never fits."""
    found = [NEVER] * tasks
    for moment in future:
        for place in moment.started:
            found[place] = moment.at
    return found


def has_changed(told: Floats, now: Floats, share: float = 0.1) -> bool:
    """Whether a matrix differs so much from the one told last that it is to be told at once.

    Args:
        told: last.
        now: the present one.
        share: of an entry by which it must have changed.
    """
    with np.errstate(invalid="ignore"):
        differs = np.abs(now - told) > share * np.abs(told)
    return bool((differs | (np.isinf(now) != np.isinf(told))).any())


def look_up(
    matrices: Floats,
    cores: Sequence[float],
    memory: Sequence[float],
    size: tuple[float, float],
    stale: Bools,
) -> Floats:
    """The wait on each node for a task of a size; infinite where it never fits.

    The size is rounded up to the next row and column. A matrix that is too old is not trusted: the
    wait is that of the next larger size that fits the node at all.

    Args:
        matrices: of all nodes, [node, cores, memory].
        cores: sizes of the rows.
        memory: sizes of the columns.
        size: cores and memory of the task.
        stale: which matrices are too old.
    """
    row = int(np.searchsorted(cores, size[0]))
    column = int(np.searchsorted(memory, size[1]))
    if row == len(cores) or column == len(memory):
        return np.full(len(matrices), NEVER)
    found = matrices[:, row, column].copy()
    if stale.any():
        larger = found[stale]
        for step in ((0, 1), (1, 0), (1, 1)):
            other = (min(row + step[0], len(cores) - 1), min(column + step[1], len(memory) - 1))
            entry = matrices[stale][:, other[0], other[1]]
            larger = np.where(np.isinf(entry), larger, np.maximum(larger, entry))
        found[stale] = larger
    return found
