"""What the published rounds record about jobs and pairs of jobs, one line for each.

Lines are in the order in which the published program enters them: a job at its arrival, then its
pairs with all jobs that were already there. Columns are by GPU type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dlsched.core.arrays import Bools, Floats, Ints, Rows

ALONE = -1  # the partner of a job that runs alone
# attributes with one entry a line, and their names in a stored state
_STORED = {
    "one": "one", "other": "other", "scale": "scale", "known": "known", "speed": "speed", "x": "x",
    "received": "got", "deficit": "deficit",
}  # fmt: skip


class PublishedLedger:
    """One line for each job and each pair.

    Attributes:
        one, other: the job, and its partner (`ALONE` for none; else one < other).
        scale: GPUs that the job or pair uses at once.
        speed: steps/s on each type, of a pair those of the slower job; 0 where it does not run.
        x: the present share of time.
        known: whether the line existed when the present X was computed.
        received: seconds received since the last reset; every line starts with half a round.
        deficit: seconds that X granted and the job or pair did not receive.
        keys, scales, line: (job, partner) and GPUs by line, and the line of each key. Rounds read
            them one by one, for which lists are faster than arrays.
    """

    def __init__(self, types: int) -> None:
        self.one: Rows = np.zeros(0, np.int64)
        self.other: Rows = np.zeros(0, np.int64)
        self.scale: Ints = np.zeros(0, np.int64)
        self.known: Bools = np.zeros(0, np.bool_)
        self.speed, self.x, self.received, self.deficit = (np.zeros((0, types)) for _ in range(4))
        self.keys: list[tuple[int, int]] = []
        self.scales: list[int] = []
        self.line: dict[tuple[int, int], int] = {}

    def __len__(self) -> int:
        return len(self.one)

    def add(self, one: Rows, other: Rows, scale: Ints, speed: Floats, received: float) -> None:
        """Append lines.

        Args:
            one: the jobs.
            other: their partners, `ALONE` for none.
            scale: GPUs of each line.
            speed: steps/s, [line, type].
            received: seconds on every type with which the lines start.
        """
        self.one = np.concatenate([self.one, one])
        self.other = np.concatenate([self.other, other])
        self.scale = np.concatenate([self.scale, scale])
        self.known = np.concatenate([self.known, np.zeros(len(one), np.bool_)])
        self.speed = np.concatenate([self.speed, speed])
        nothing = np.zeros(speed.shape)
        self.x = np.concatenate([self.x, nothing])
        self.received = np.concatenate([self.received, nothing + received])
        self.deficit = np.concatenate([self.deficit, nothing])
        self._number()

    def keep(self, kept: Sequence[bool]) -> None:
        """Remove all lines that are not marked."""
        lines = np.array(kept, np.bool_)
        for name in _STORED:
            setattr(self, name, getattr(self, name)[lines])
        self._number()

    def rename(self, place: Mapping[int, int]) -> None:
        """Follow a table that was packed: `place` is the new row number by the old one."""
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
        return {key: getattr(self, name).tolist() for name, key in _STORED.items()}

    @classmethod
    def of_state(cls, state: Mapping[str, Any], types: int) -> PublishedLedger:
        """The ledger of a `state_dict`, for so many GPU types."""
        ledger = cls(types)
        for name, key in _STORED.items():
            empty: Floats = getattr(ledger, name)
            column = np.array(state[key], empty.dtype)
            setattr(ledger, name, column.reshape(len(column), *empty.shape[1:]))
        ledger._number()
        return ledger
