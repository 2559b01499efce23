"""Tokens: the guaranteed capacity of a job, and the opportunistic class for tasks beyond it.

A token lets one regular task wait or run. A task without one may be sent as opportunistic: it
starts only where regular tasks cannot use the room, is ended first when they can, and becomes
regular when a token is free.

Paper: section 3.6.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple


class Sent(NamedTuple):
    """How the matched tasks of a batch go out; the rest waits for the next batch."""

    regular: list[int]
    opportunistic: list[int]


def by_tokens(order: Sequence[int], free: int, room: int = 0) -> Sent:
    """Divide matched tasks, in the order of their dispatch.

    Args:
        order: of the tasks.
        free: tokens of the job.
        room: for so many more opportunistic tasks of the job.
    """
    free, room = max(free, 0), max(room, 0)
    return Sent(list(order[:free]), list(order[free : free + room]))


class Waiting(NamedTuple):
    """An opportunistic task that could become regular."""

    task: Hashable
    regular_there: int  # regular tasks on its node
    waited: float  # seconds


def upgrades(tasks: Iterable[Waiting], free: int) -> list[Hashable]:
    """Which opportunistic tasks get the free tokens: few regular tasks there, long waits first."""
    order = sorted(tasks, key=lambda each: (each.regular_there, -each.waited))
    return [each.task for each in order[: max(free, 0)]]
