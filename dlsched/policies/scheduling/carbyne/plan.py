"""The plan of one job, made backwards: as late as possible without a later end.

Tasks are packed from the end of the job to its beginning. What the plan puts at its beginning must
begin now; all else may wait, and its share is free for others (Carbyne, section 4.2).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from dlsched.policies.scheduling.carbyne.stages import Graph, Number, Vector


class Room(Protocol):
    """What is free of a virtual machine."""

    def need(self, demand: Vector) -> Vector:
        """A task's demand in the unit in which the room counts."""

    def holds(self, need: Vector) -> bool:
        """Whether a task fits where nothing else runs."""

    def score(self, need: Vector) -> Number | None:
        """How well a task fits now, more is better; None: it does not."""

    def take(self, need: Vector) -> None:
        """A task begins."""

    def give(self, need: Vector) -> None:
        """A task ends."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How a job ends as early as its resources allow.

    Attributes:
        length: seconds from now to its end.
        first: by stage, tasks that are planned to begin now.
        later: by stage, seconds from now to the next planned beginning of another task.
    """

    length: Number
    first: list[int]
    later: dict[int, Number]


def plan_backwards(graph: Graph, waiting: Sequence[int], room: Room) -> Plan | None:
    """Plan all tasks that have not begun; None if one of them never fits.

    Args:
        graph: of the job.
        waiting: by stage, tasks that have not begun.
        room: the resources that the job may plan with, all free.
    """
    needs = [room.need(stage.demand) for stage in graph.stages]
    if any(left and not room.holds(need) for left, need in zip(waiting, needs, strict=True)):
        return None
    left, unfinished, open_children = list(waiting), list(waiting), [0] * len(needs)
    for number, stage in enumerate(graph.stages):
        for parent in stage.parents:
            open_children[parent] += bool(waiting[number])
    ready = [n for n, count in enumerate(open_children) if not count and left[n]]
    ends: list[tuple[Number, int]] = []
    begun: dict[tuple[int, Number], int] = {}
    now: Number = 0
    while True:
        while (chosen := best(ready, needs, room)) is not None:
            room.take(needs[chosen])
            end = now + graph.stages[chosen].duration
            heapq.heappush(ends, (end, chosen))
            begun[chosen, end] = begun.get((chosen, end), 0) + 1
            left[chosen] -= 1
            if not left[chosen]:
                ready.remove(chosen)
        if not ends:
            break
        now, freed = ends[0][0], list[int]()
        while ends and ends[0][0] == now:
            _, ended = heapq.heappop(ends)
            room.give(needs[ended])
            unfinished[ended] -= 1
            if unfinished[ended]:
                continue
            for parent in graph.stages[ended].parents:
                open_children[parent] -= 1
                if left[parent] and not open_children[parent]:
                    freed.append(parent)
        ready += sorted(freed)
    if any(left):
        return None
    first = [begun.get((number, now), 0) for number in range(len(needs))]
    return Plan(now, first, _later(begun, now))


def _later(begun: Iterable[tuple[int, Number]], length: Number) -> dict[int, Number]:
    """Of the stages and virtual ends of tasks: when tasks of a stage next begin after now."""
    found: dict[int, Number] = {}
    for number, end in begun:
        if end < length:
            found[number] = min(length - end, found.get(number, length - end))
    return found


def greedy(graph: Graph, waiting: Sequence[int], ready: Sequence[int], room: Room) -> list[int]:
    """The stages of all ready tasks that fit, the best first, one entry a task."""
    needs = [room.need(stage.demand) for stage in graph.stages]
    left, open_stages, found = list(waiting), list(ready), list[int]()
    while (number := best(open_stages, needs, room)) is not None:
        room.take(needs[number])
        found.append(number)
        left[number] -= 1
        if not left[number]:
            open_stages.remove(number)
    return found


def best(ready: Sequence[int], needs: Sequence[Vector], room: Room) -> int | None:
    """The stage of which a task fits best, the first of equal ones; None if none fits."""
    found, most = None, None
    for number in ready:
        score = room.score(needs[number])
        if score is not None and (most is None or score > most):
            found, most = number, score
    return found
