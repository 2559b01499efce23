"""Jobs and pairs of jobs as the published rounds keep books on them, one line each.

Lines are in the order in which the published program enters them: a job at its arrival, then its
pairs with all who were there. Columns are by GPU type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dlsched.core.arrays import Bools, Floats, Ints, Rows

__all__ = ["Entries"]

ALONE = -1


class Entries:
    """One line a job or pair.

    Attributes:
        one, other: the job, and its partner (`ALONE` for none; else one < other).
        scale: GPUs.
        speed: steps/s there, the slower half's for a pair; 0 where it does not run.
        x: the present share of time.
        known: it was there when the present X was made.
        got: seconds received since the last reset, with R/2 from the beginning.
        deficit: seconds that it should have had and did not.
        keys, scales, line: job and partner, and GPUs, by line; the line of each key. Rounds look
            at them one by one, for which lists are quicker than arrays.
    """

    def __init__(self, kinds: int) -> None:
        self.one: Rows = np.zeros(0, np.int64)
        self.other: Rows = np.zeros(0, np.int64)
        self.scale: Ints = np.zeros(0, np.int64)
        self.known: Bools = np.zeros(0, np.bool_)
        self.speed, self.x, self.got, self.deficit = (np.zeros((0, kinds)) for _ in range(4))
        self.keys: list[tuple[int, int]] = []
        self.scales: list[int] = []
        self.line: dict[tuple[int, int], int] = {}

    def __len__(self) -> int:
        return len(self.one)

    def add(self, one: Rows, other: Rows, scale: Ints, speed: Floats, got: float) -> None:
        """New lines at the end."""
        self.one = np.concatenate([self.one, one])
        self.other = np.concatenate([self.other, other])
        self.scale = np.concatenate([self.scale, scale])
        self.known = np.concatenate([self.known, np.zeros(len(one), np.bool_)])
        self.speed = np.concatenate([self.speed, speed])
        nothing = np.zeros(speed.shape)
        self.x = np.concatenate([self.x, nothing])
        self.got = np.concatenate([self.got, nothing + got])
        self.deficit = np.concatenate([self.deficit, nothing])
        self._number()

    def keep(self, stays: Sequence[bool]) -> None:
        """Strike out all other lines."""
        lines = np.array(stays, np.bool_)
        for name in ("one", "other", "scale", "known", "speed", "x", "got", "deficit"):
            setattr(self, name, getattr(self, name)[lines])
        self._number()

    def rename(self, place: Mapping[int, int]) -> None:
        """Rows have other numbers now, by their old ones."""
        one = np.array([place[row] for row in self.one.tolist()], np.int64)
        other = np.array([place[row] for row in self.other.tolist()], np.int64)
        turned = (other != ALONE) & (other < one)
        self.one, self.other = np.where(turned, other, one), np.where(turned, one, other)
        self._number()

    def _number(self) -> None:
        self.keys = list(zip(self.one.tolist(), self.other.tolist(), strict=True))
        self.scales = self.scale.tolist()
        self.line = {key: line for line, key in enumerate(self.keys)}

    def state_dict(self) -> dict[str, Any]:
        """The lines as plain values."""
        names = ("one", "other", "scale", "known", "speed", "x", "got", "deficit")
        return {name: getattr(self, name).tolist() for name in names}

    @classmethod
    def of_state(cls, state: Mapping[str, Any], kinds: int) -> Entries:
        """The lines of a `state_dict`."""
        entries = cls(kinds)
        for name in ("one", "other", "scale"):
            setattr(entries, name, np.array(state[name], np.int64))
        entries.known = np.array(state["known"], np.bool_)
        for name in ("speed", "x", "got", "deficit"):
            column = np.array(state[name], np.float64).reshape(len(state[name]), kinds)
            setattr(entries, name, column)
        entries._number()
        return entries
