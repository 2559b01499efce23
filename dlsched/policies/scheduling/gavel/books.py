"""What the rounds know of each active job: its share, what it received, what it is owed.

Columns are by GPU type, lines by job in the order of rows. Pairs are entered only while X gives
them time together.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dlsched.core.arrays import Bools, Floats, Rows
from dlsched.policies.scheduling.gavel.time_shares import TimeShares

__all__ = ["Books"]

NOWHERE = -1
ALONE = -1


class Books:
    """One line a job.

    Attributes:
        types: GPU types, in the order of all columns.
        rows: jobs, ascending.
        x: the present share of time; 0 for whoever came since it was made.
        got: seconds received in this window, with half a round from the beginning.
        owed: seconds that X gave it and it did not get.
        kind: the type on which it ran since the last look, NOWHERE for none.
        partner: who ran beside it then, ALONE for nobody.
        held: seconds on GPUs as of the last look.
        first, second: jobs that have time together.
        pair_x, pair_got: as `x` and `got`, of pairs.
    """

    _PER_JOB = ("x", "got", "owed")

    def __init__(self, types: tuple[str, ...]) -> None:
        self.types = types
        self.rows: Rows = np.zeros(0, np.int64)
        kinds = len(types)
        self.x, self.got, self.owed = (np.zeros((0, kinds)) for _ in range(3))
        self.kind: Rows = np.zeros(0, np.int64)
        self.partner: Rows = np.zeros(0, np.int64)
        self.held: Floats = np.zeros(0)
        self.first: Rows = np.zeros(0, np.int64)
        self.second: Rows = np.zeros(0, np.int64)
        self.pair_x, self.pair_got = np.zeros((0, kinds)), np.zeros((0, kinds))

    def __len__(self) -> int:
        return len(self.rows)

    def lines(self, rows: Rows) -> Rows:
        """Where these rows are; all must be in the books."""
        found: Rows = np.searchsorted(self.rows, rows)
        return found

    def align(self, rows: Rows, head_start: float) -> bool:
        """Have a line for each of these rows and no others; says whether anything changed.

        Args:
            rows: who is active, ascending.
            head_start: seconds that a newcomer is taken to have received everywhere.
        """
        if len(rows) == len(self.rows) and bool((rows == self.rows).all()):
            return False
        known = np.isin(rows, self.rows)
        old = self.lines(rows[known])
        for name in self._PER_JOB:
            before: Floats = getattr(self, name)
            after = np.zeros((len(rows), len(self.types)))
            if name == "got":
                after += head_start
            after[known] = before[old]
            setattr(self, name, after)
        kind, partner = np.full(len(rows), NOWHERE), np.full(len(rows), ALONE)
        kind[known], partner[known] = self.kind[old], self.partner[old]
        held = np.zeros(len(rows))
        held[known] = self.held[old]
        self.rows, self.kind, self.partner, self.held = rows, kind, partner, held
        self._keep_pairs(np.isin(self.first, rows) & np.isin(self.second, rows))
        return True

    def credit(self, held_now: Floats, elapsed: float) -> Floats:
        """Enter what was received since the last look; returns the seconds given on each type."""
        took = held_now - self.held
        self.held = held_now
        self.owed += self.x * elapsed
        ran = np.flatnonzero((self.kind != NOWHERE) & (took > 0))
        self.owed[ran, self.kind[ran]] -= took[ran]
        alone = ran[self.partner[ran] == ALONE]
        self.got[alone, self.kind[alone]] += took[alone]
        given = np.zeros(len(self.types))
        np.add.at(given, self.kind[alone], took[alone])
        for line in ran[self.partner[ran] > self.rows[ran]].tolist():  # a pair once, by its first
            where = (self.first == self.rows[line]) & (self.second == self.partner[line])
            self.pair_got[where, self.kind[line]] += took[line]
            given[self.kind[line]] += took[line]
        return given

    def note(self, seats: Mapping[int, tuple[int, int]]) -> None:
        """Who runs where from now on: (type, partner) by row."""
        self.kind[:] = NOWHERE
        self.partner[:] = ALONE
        if seats:
            at = self.lines(np.fromiter(seats, np.int64, len(seats)))
            seat = np.array(list(seats.values()), np.int64)
            self.kind[at], self.partner[at] = seat[:, 0], seat[:, 1]

    def share_out(self, shares: TimeShares, head_start: float) -> None:
        """Enter a new X; what was received stays."""
        self.x = np.zeros(self.x.shape)
        self.x[self.lines(shares.rows)] = shares.x
        pairs = zip(self.first.tolist(), self.second.tolist(), strict=True)
        before = dict(zip(pairs, self.pair_got, strict=True))
        some = shares.pair_x.any(axis=1)
        self.first, self.second = shares.first[some], shares.second[some]
        self.pair_x = shares.pair_x[some]
        self.pair_got = np.full(self.pair_x.shape, head_start)
        for place, pair in enumerate(zip(self.first.tolist(), self.second.tolist(), strict=True)):
            if pair in before:
                self.pair_got[place] = before[pair]

    def begin_anew(self, head_start: float) -> None:
        """A new window: all have received the same."""
        self.got[:] = head_start
        self.pair_got[:] = head_start

    def with_types(self, types: tuple[str, ...], head_start: float) -> Books:
        """The same jobs where other GPU types exist; shares are to be made anew."""
        other = Books(types)
        other.align(self.rows, head_start)
        other.held = self.held
        for place, name in enumerate(types):
            if name in self.types:
                old = self.types.index(name)
                for column in self._PER_JOB:
                    getattr(other, column)[:, place] = getattr(self, column)[:, old]
                other.kind[self.kind == old] = place
        other.partner = self.partner
        return other

    def rename(self, place: Mapping[int, int]) -> None:
        """Rows have other numbers now, by their old ones."""
        self.align(self.rows[np.array([row in place for row in self.rows.tolist()], np.bool_)], 0.0)
        rows = np.array([place[row] for row in self.rows.tolist()], np.int64)
        partner = np.array([place.get(r, ALONE) for r in self.partner.tolist()], np.int64)
        order = np.argsort(rows)
        self.rows, self.partner = rows[order], partner[order]
        for name in (*self._PER_JOB, "kind", "held"):
            setattr(self, name, getattr(self, name)[order])
        ends = np.array(
            [[place[row] for row in jobs.tolist()] for jobs in (self.first, self.second)]
        )
        self.first, self.second = np.sort(ends.astype(np.int64), axis=0)

    def _keep_pairs(self, which: Bools) -> None:
        self.first, self.second = self.first[which], self.second[which]
        self.pair_x, self.pair_got = self.pair_x[which], self.pair_got[which]

    _COLUMNS = (
        "rows", "x", "got", "owed", "kind", "partner", "held", "first", "second", "pair_x",
        "pair_got",
    )  # fmt: skip

    def state_dict(self) -> dict[str, Any]:
        """The books as plain values."""
        columns = {name: getattr(self, name).tolist() for name in self._COLUMNS}
        return {"types": list(self.types), **columns}

    @classmethod
    def of_state(cls, state: Mapping[str, Any]) -> Books:
        """The books of a `state_dict`."""
        books = cls(tuple(state["types"]))
        for name in cls._COLUMNS:
            here = getattr(books, name)
            given = np.array(state[name], here.dtype)
            setattr(books, name, given.reshape(len(state[name]), *here.shape[1:]))
        return books
