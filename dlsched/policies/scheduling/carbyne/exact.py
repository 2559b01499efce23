"""Exact arithmetic of plans: whole numbers over one common denominator."""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction

from dlsched.policies.scheduling.carbyne.stages import Number, Vector


class ExactRoom:
    """What is free of a virtual machine, in whole numbers."""

    __slots__ = ("_free", "_scale", "_size")

    def __init__(self, size: Iterable[Number]) -> None:
        """An empty machine of a size, by resource."""
        parts = [Fraction(part) for part in size]
        self._scale = math.lcm(*(part.denominator for part in parts))
        self._size = [int(part * self._scale) for part in parts]
        self._free: list[Number] = list(self._size)

    def need(self, demand: Vector) -> Vector:
        """A task's demand in the unit in which the room counts."""
        return tuple(part * self._scale for part in demand)

    def holds(self, need: Vector) -> bool:
        """Whether a task fits where nothing else runs."""
        return all(part <= size for part, size in zip(need, self._size, strict=True))

    def score(self, need: Vector) -> Number | None:
        """The product of demand and free resources; None: the task does not fit."""
        total: Number = 0
        for part, free in zip(need, self._free, strict=True):
            if part > free:
                return None
            total += part * free
        return total

    def take(self, need: Vector) -> None:
        """A task begins."""
        self._free = [free - part for part, free in zip(need, self._free, strict=True)]

    def give(self, need: Vector) -> None:
        """A task ends."""
        self._free = [free + part for part, free in zip(need, self._free, strict=True)]
