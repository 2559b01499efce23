"""The service ledger of the corrected rounds: each job's share, time received, and deficit.

Columns are by GPU type, lines by job in the order of rows. Pairs are entered only while X gives
them time together.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dlsched.core.arrays import Bools, Floats, Rows
from dlsched.policies.heterogeneous.time_shares import TimeShares

NOWHERE = -1  # the GPU type of a job that does not run
ALONE = -1  # the partner of a job that runs alone
# attributes, and their names in a stored state
_STORED = {
    "rows": "rows", "x": "x", "received": "got", "deficit": "owed", "gpu_type": "kind",
    "partner": "partner", "held": "held", "first": "first", "second": "second", "pair_x": "pair_x",
    "pair_received": "pair_got", "aside": "aside",
}  # fmt: skip


class ServiceLedger:
    """One line for each job.

    Attributes:
        types: GPU types, in the order of all columns.
        rows: jobs, ascending.
        x: the present share of time; 0 for jobs that arrived after X was computed.
        received: seconds received in this window; every job starts with half a round.
        deficit: seconds that X granted and the job did not receive.
        gpu_type: the type on which the job has run since the last update, NOWHERE for none.
        partner: the job on the same GPUs since then, ALONE for none.
        aside: jobs in parts of others' GPUs, which were set aside while X was last looked at.
        held: seconds on GPUs as of the last update.
        first, second: the jobs of each pair that has time together.
        pair_x, pair_received: as `x` and `received`, of pairs.
    """

    _PER_JOB = ("x", "received", "deficit")

    def __init__(self, types: tuple[str, ...]) -> None:
        self.types = types
        self.rows: Rows = np.zeros(0, np.int64)
        empty = (0, len(types))
        self.x, self.received, self.deficit = (np.zeros(empty) for _ in range(3))
        self.gpu_type: Rows = np.zeros(0, np.int64)
        self.partner: Rows = np.zeros(0, np.int64)
        self.held: Floats = np.zeros(0)
        self.aside: Bools = np.zeros(0, np.bool_)
        self.first: Rows = np.zeros(0, np.int64)
        self.second: Rows = np.zeros(0, np.int64)
        self.pair_x, self.pair_received = np.zeros(empty), np.zeros(empty)

    def __len__(self) -> int:
        return len(self.rows)

    def lines(self, rows: Rows) -> Rows:
        """The lines of these rows; all of them must have one."""
        found: Rows = np.searchsorted(self.rows, rows)
        return found

    def align(self, rows: Rows, head_start: float) -> bool:
        """Keep a line for each of these rows and no others; returns whether anything changed.

        The rows ascend; a new job starts with `head_start` seconds on every type.
        """
        if len(rows) == len(self.rows) and bool((rows == self.rows).all()):
            return False
        known = np.isin(rows, self.rows)
        old = self.lines(rows[known])
        for name in self._PER_JOB:
            before: Floats = getattr(self, name)
            after = np.zeros((len(rows), len(self.types)))
            if name == "received":
                after += head_start
            after[known] = before[old]
            setattr(self, name, after)
        gpu_type, partner = np.full(len(rows), NOWHERE), np.full(len(rows), ALONE)
        gpu_type[known], partner[known] = self.gpu_type[old], self.partner[old]
        held, aside = np.zeros(len(rows)), np.zeros(len(rows), np.bool_)
        held[known], aside[known] = self.held[old], self.aside[old]
        self.rows, self.gpu_type, self.partner, self.held = rows, gpu_type, partner, held
        self.aside = aside
        self._keep_pairs(np.isin(self.first, rows) & np.isin(self.second, rows))
        return True

    def credit(self, held_now: Floats, elapsed: float) -> Floats:
        """Enter the time received since the last update.

        `held_now` is the seconds that each job has held GPUs so far.

        Returns:
            the seconds given on each type.
        """
        took = held_now - self.held
        self.held = held_now
        self.deficit += self.x * elapsed
        ran = np.flatnonzero((self.gpu_type != NOWHERE) & (took > 0))
        self.deficit[ran, self.gpu_type[ran]] -= took[ran]
        alone = ran[self.partner[ran] == ALONE]
        self.received[alone, self.gpu_type[alone]] += took[alone]
        given = np.zeros(len(self.types))
        np.add.at(given, self.gpu_type[alone], took[alone])
        for line in ran[self.partner[ran] > self.rows[ran]].tolist():  # a pair once, by its first
            where = (self.first == self.rows[line]) & (self.second == self.partner[line])
            self.pair_received[where, self.gpu_type[line]] += took[line]
            given[self.gpu_type[line]] += took[line]
        return given

    def nowhere(self) -> list[int]:
        """The jobs that got no GPUs when it was last noted where jobs run."""
        found: list[int] = self.rows[self.gpu_type == NOWHERE].tolist()
        return found

    def note_late(self, given: Mapping[int, int]) -> None:
        """Note jobs to which GPUs were given after that, by type."""
        rows = np.fromiter(given, np.int64, len(given))
        self.gpu_type[self.lines(rows)] = np.fromiter(given.values(), np.int64, len(given))

    def note_running(self, assigned: Mapping[int, tuple[int, int]]) -> None:
        """Note where jobs run from now on: (GPU type, partner) by row."""
        self.gpu_type[:] = NOWHERE
        self.partner[:] = ALONE
        if assigned:
            at = self.lines(np.fromiter(assigned, np.int64, len(assigned)))
            where = np.array(list(assigned.values()), np.int64)
            self.gpu_type[at], self.partner[at] = where[:, 0], where[:, 1]

    def enter_shares(self, shares: TimeShares, head_start: float) -> None:
        """Enter a new X; the time received stays, and new pairs start with `head_start`."""
        self.x = np.zeros(self.x.shape)
        self.x[self.lines(shares.rows)] = shares.x
        pairs = zip(self.first.tolist(), self.second.tolist(), strict=True)
        before = dict(zip(pairs, self.pair_received, strict=True))
        some = shares.pair_x.any(axis=1)
        self.first, self.second = shares.first[some], shares.second[some]
        self.pair_x = shares.pair_x[some]
        self.pair_received = np.full(self.pair_x.shape, head_start)
        for place, pair in enumerate(zip(self.first.tolist(), self.second.tolist(), strict=True)):
            if pair in before:
                self.pair_received[place] = before[pair]

    def begin_window(self, head_start: float) -> None:
        """Begin a new window, in which all jobs have received the same."""
        self.received[:] = head_start
        self.pair_received[:] = head_start

    def with_types(self, types: tuple[str, ...], head_start: float) -> ServiceLedger:
        """The same jobs in a cluster with other GPU types; X must be computed again."""
        other = ServiceLedger(types)
        other.align(self.rows, head_start)
        other.held, other.aside = self.held, self.aside
        for place, name in enumerate(types):
            if name in self.types:
                old = self.types.index(name)
                for column in self._PER_JOB:
                    getattr(other, column)[:, place] = getattr(self, column)[:, old]
                other.gpu_type[self.gpu_type == old] = place
        other.partner = self.partner
        return other

    def rename(self, place: Mapping[int, int]) -> None:
        """Follow a table that was packed: `place` is the new row number by the old one."""
        self.align(self.rows[np.array([row in place for row in self.rows.tolist()], np.bool_)], 0.0)
        rows = np.array([place[row] for row in self.rows.tolist()], np.int64)
        partner = np.array([place.get(r, ALONE) for r in self.partner.tolist()], np.int64)
        order = np.argsort(rows)
        self.rows, self.partner = rows[order], partner[order]
        for name in (*self._PER_JOB, "gpu_type", "held", "aside"):
            setattr(self, name, getattr(self, name)[order])
        ends = np.array(
            [[place[row] for row in jobs.tolist()] for jobs in (self.first, self.second)]
        )
        self.first, self.second = np.sort(ends.astype(np.int64), axis=0)

    def _keep_pairs(self, which: Bools) -> None:
        self.first, self.second = self.first[which], self.second[which]
        self.pair_x, self.pair_received = self.pair_x[which], self.pair_received[which]

    def state_dict(self) -> dict[str, Any]:
        """The ledger as plain values."""
        columns = {key: getattr(self, name).tolist() for name, key in _STORED.items()}
        return {"types": list(self.types), **columns}

    @classmethod
    def of_state(cls, state: Mapping[str, Any]) -> ServiceLedger:
        """The ledger of a `state_dict`."""
        ledger = cls(tuple(state["types"]))
        for name, key in _STORED.items():
            empty: Floats = getattr(ledger, name)
            stored = state.get(key, [False] * len(state["rows"]))  # earlier ones: none was aside
            column = np.array(stored, empty.dtype)
            setattr(ledger, name, column.reshape(len(column), *empty.shape[1:]))
        return ledger
