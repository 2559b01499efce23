"""Array grammar: `0-9%2`, `1,3,7`, `0-15:4`; and the same written short again."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise

from dlsched.client.submission.texts import whole_number
from dlsched.core.errors import BadInput, shorten
from dlsched.record import Record

MOST_TASKS = 1_000_000
HIGHEST_TASK = 2**31 - 2
_RANGE = re.compile(r"(\d{1,10})(?:-(\d{1,10})(?::(\d{1,10}))?)?", re.ASCII)


class TaskSet(Record):
    """Task numbers of an array, growing, and how many may run at once (0: all)."""

    tasks: tuple[int, ...]
    limit: int = 0

    def __str__(self) -> str:
        return fold_tasks(self.tasks) + (f"%{self.limit}" if self.limit else "")


def parse_tasks(what: str, text: str) -> TaskSet:
    """Read a task set; numbers may stand in any order and more than once.

    Raises:
        BadInput: malformed, backwards, or more than `MOST_TASKS`.
    """
    spec, percent, most = text.strip().partition("%")
    limit = whole_number(f"{what} (after %)", most, least=1) if percent else 0
    chosen: set[int] = set()
    for part in spec.split(","):
        match = _RANGE.fullmatch(part)
        if match is None:
            raise BadInput(
                f"{what}: {shorten(text)!r} is not a set of tasks (0-9%2, 1,3 or 0-15:4)"
            )
        low = int(match[1])
        high, step = int(match[2] or low), int(match[3] or 1)
        if high < low or step == 0:
            raise BadInput(f"{what}: {shorten(part)!r} holds no task")
        if high > HIGHEST_TASK:
            raise BadInput(f"{what}: task {high} is out of bounds (0 to {HIGHEST_TASK})")
        if len(chosen) + (high - low) // step >= MOST_TASKS:
            raise BadInput(f"{what}: more than {MOST_TASKS} tasks")
        chosen.update(range(low, high + 1, step))
    return TaskSet(tasks=tuple(sorted(chosen)), limit=limit)


def fold_tasks(tasks: Iterable[int]) -> str:
    """Write task numbers short: `0-3,7`, and `0-15:4` when all are equally far apart."""
    ordered: Sequence[int] = sorted(set(tasks))
    if len(ordered) > 2:
        step = ordered[1] - ordered[0]
        if step > 1 and all(b - a == step for a, b in pairwise(ordered)):
            return f"{ordered[0]}-{ordered[-1]}:{step}"
    runs: list[list[int]] = []
    for task in ordered:
        if runs and task == runs[-1][1] + 1:
            runs[-1][1] = task
        else:
            runs.append([task, task])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)
