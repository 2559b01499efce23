"""What the jobs of sweeps have reached at the rungs of successive halving."""

from __future__ import annotations

from collections.abc import Iterable

from dlsched.db.rungs import RungReached
from dlsched.protocol.messages import JobId

Reached = dict[JobId, dict[int, RungReached]]  # by job and rung


class Rungs:
    """The rungs of sweeps that have reported in this term.

    Attributes:
        of: by array; the rows of an array are complete, as the database has them.
        unread: arrays whose rows must be read from the database first, each with the job that asks.
        changed: arrays with values that no decision has seen yet.
    """

    def __init__(self) -> None:
        """Start without any sweep."""
        self.of: dict[JobId, Reached] = {}
        self.unread: dict[JobId, JobId] = {}
        self.changed: set[JobId] = set()

    def load(self, array: JobId, rows: Iterable[RungReached]) -> None:
        """Take the rows of an array from the database."""
        self.of[array] = {self.unread.pop(array): {}}
        for row in rows:
            self.add(array, row)
        self.changed.add(array)

    def add(self, array: JobId, row: RungReached) -> None:
        """Take a row of an array."""
        self.of[array].setdefault(row.job, {})[row.rung] = row
        self.changed.add(array)

    def forget(self, array: JobId) -> None:
        """Drop an array whose jobs have left memory."""
        self.of.pop(array, None)
        self.changed.discard(array)
