"""The short tasks of one array: which wait, which a run has, which have ended.

A run is a server in the sense of Apollo, and says when it has next to nothing left. What it then
gets would keep it busy for a while, by the mean run time of the tasks that have ended: for one
answer, many tasks. As the end of the list comes near, it gets a part of what is left, so that no
run sits on tasks while others are idle.

Everything is reserved here first, then stored, then told.
"""

from __future__ import annotations

import heapq
import json
import math
from collections.abc import Callable, Collection, Iterable, Sequence

from dlsched.db.task_runs import TaskEnd, TaskRun
from dlsched.policies.scheduling.apollo.completion import RunTimes
from dlsched.protocol.messages import RunId

BUSY_S = 10.0  # a run gets tasks for so long
MOST_GIVEN = 500  # tasks that a run has at once
MOST_BYTES = 128 * 1024  # of lines in one answer; with the last one it fits a message
_STAGE = 0  # all tasks of a list are of one kind


class TaskList:
    """The tasks of one array; their numbers are 1, 2, ….

    Attributes:
        ended: numbers of tasks that have ended.
        given: tasks that have not ended, by the run that has them.
        unstored: tasks whose end is not known to be stored.
    """

    def __init__(self, lines: Sequence[str], rows: Iterable[TaskRun] = ()) -> None:
        """Start with the tasks that the database has."""
        self.lines = lines
        self.ended: set[int] = set()
        self.given: dict[RunId, set[int]] = {}
        self.unstored: set[int] = set()
        self._times = RunTimes()
        seen: set[int] = set()
        for row in rows:
            seen.add(row.task)
            if row.ended_at is None:
                self.given.setdefault(row.run_id, set()).add(row.task)
            else:
                self._note_end(row.task, row.ran_s or 0.0)
        self._waiting = [n for n in range(1, len(lines) + 1) if n not in seen]  # a heap: ascending

    @property
    def waiting(self) -> int:
        """How many tasks no run has yet."""
        return len(self._waiting)

    @property
    def mean_s(self) -> float:
        """That a task has run; NaN: none has ended."""
        return self._times.estimate(_STAGE, math.nan)

    def _note_end(self, task: int, ran_s: float) -> None:
        self.ended.add(task)
        self._times.finished(_STAGE, ran_s)

    def end(self, run: RunId, ends: Iterable[TaskEnd]) -> tuple[TaskEnd, ...]:
        """Note tasks that have ended; returns those whose end is to be stored, once or again."""
        mine = self.given.get(run, set())
        found = []
        for each in ends:
            if each.task in mine:
                mine.remove(each.task)
                self._note_end(each.task, each.ran_s)
                self.unstored.add(each.task)
                found.append(each)
            elif each.task in self.unstored:
                found.append(each)  # told again; should both be stored, the first one counts
        return tuple(found)

    def adopt(self, run: RunId, told: Iterable[int]) -> list[int]:
        """Let a run have the waiting tasks that it tells of; returns their numbers.

        It was given them before the database was restored to an older state.
        """
        mine = self.given.setdefault(run, set())
        unknown = {task for task in told if task not in mine and task not in self.ended}
        if not unknown:
            return []
        found = sorted(unknown.intersection(self._waiting))
        self._waiting = sorted(set(self._waiting).difference(found))
        mine.update(found)
        return found

    def take_back(self, is_over: Callable[[RunId], bool]) -> None:
        """Let the tasks of runs that are over wait again."""
        for run in [run for run in self.given if is_over(run)]:
            for task in self.given.pop(run):
                heapq.heappush(self._waiting, task)

    def give(self, run: RunId, held: Collection[int], tokens: int) -> list[int]:
        """Give a run tasks; those that it was given and does not hold come first.

        Args:
            run: that asks.
            held: the tasks that it says it has.
            tokens: runs that work on the list at once.
        """
        mine = self.given.setdefault(run, set())
        found, size = [], 0
        for task in sorted(mine.difference(held)):
            if size < MOST_BYTES:
                found.append(task)
                size += self._bytes(task)
        while self._waiting and len(mine) < self._room(tokens) and size < MOST_BYTES:
            task = heapq.heappop(self._waiting)
            mine.add(task)
            found.append(task)
            size += self._bytes(task)
        return found

    def _bytes(self, task: int) -> int:
        """Of a task's line in a message, where a character may take twelve."""
        return len(json.dumps(self.lines[task - 1]))

    def _room(self, tokens: int) -> int:
        """How many tasks a run may have now."""
        share = -(-len(self._waiting) // (2 * max(tokens, 1)))
        if math.isnan(self.mean_s):
            return 1
        return max(1, min(share, math.ceil(BUSY_S / max(self.mean_s, 1e-3)), MOST_GIVEN))
