"""The grammar of arrays: `0-9%2`, `1,3,7`, `0-15:4`; and tasks written short again."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise

from dlsched.record import Record

MOST_TASKS = 1_000_000
HIGHEST_TASK = 4_000_000
_RANGE = re.compile(r"(\d{1,10})(?:-(\d{1,10})(?::(\d{1,10}))?)?", re.ASCII)
_LIMIT = re.compile(r"0{0,8}[1-9]\d{0,8}", re.ASCII)


class TaskSet(Record):
    """Task numbers of an array, growing.

    Attributes:
        tasks: the numbers.
        limit: how many may run at once; 0: all.
        step: between the numbers of the last range that says one.
    """

    tasks: tuple[int, ...]
    limit: int = 0
    step: int = 1

    def __str__(self) -> str:
        return fold_tasks(self.tasks, self.limit, steps=True)


def read_tasks(text: str, most: int = MOST_TASKS) -> TaskSet:
    """Read a task set; numbers may stand in any order and more than once, each counts.

    Raises:
        ValueError: malformed, backwards, or more than `most` elements.
    """
    spec, percent, limit = text.strip().partition("%")
    if percent and _LIMIT.fullmatch(limit) is None:
        raise ValueError(f"{_short(text)}: after % comes how many may run at once")
    tasks: set[int] = set()
    step, asked = 1, 0
    for part in spec.split(",", most)[:most]:
        match = _RANGE.fullmatch(part)
        if match is None:
            raise ValueError(f"{_short(text)} is not a set of tasks (0-9%2, 1,3 or 0-15:4)")
        low = int(match[1])
        high, stride = int(match[2] or low), int(match[3] or 1)
        if high < low or stride == 0:
            raise ValueError(f"{_short(part)} holds no task")
        if high > HIGHEST_TASK:
            raise ValueError(f"task {high} is out of bounds (0 to {HIGHEST_TASK})")
        step = stride if match[3] else step
        asked += (high - low) // stride + 1
        if asked <= most:
            tasks.update(range(low, high + 1, stride))
    if asked > most or spec.count(",") >= most:
        raise ValueError(f"more than {most} elements")
    return TaskSet(tasks=tuple(sorted(tasks)), limit=int(limit) if percent else 0, step=step)


def fold_tasks(tasks: Iterable[int], limit: int = 0, *, steps: bool = False) -> str:
    """Write task numbers short: `0-3,7%2`; with `steps` also `0-15:4`, if all are as far apart."""
    ordered: Sequence[int] = sorted(set(tasks))
    step = ordered[1] - ordered[0] if steps and len(ordered) > 2 else 1
    if step > 1 and all(b - a == step for a, b in pairwise(ordered)):
        text = f"{ordered[0]}-{ordered[-1]}:{step}"
    else:
        runs: list[list[int]] = []
        for task in ordered:
            if runs and task == runs[-1][1] + 1:
                runs[-1][1] = task
            else:
                runs.append([task, task])
        text = ",".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)
    return f"{text}%{limit}" if limit else text


def _short(text: str) -> str:
    """A text as an error quotes it: at most 60 characters."""
    return repr(text if len(text) <= 60 else text[:57] + "...")
