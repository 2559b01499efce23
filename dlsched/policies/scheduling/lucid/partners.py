"""Which running job a waiting one may join: the rules of Lucid's packing.

A job joins the running job that started first among those that are alone on their GPUs, have as
many, leave enough memory, bear it by their packing classes, and are not much shorter: a short job
is not slowed down by a long one. What is not known of a job rules it out.
"""

from __future__ import annotations

import math

import numpy as np

from dlsched.core.arrays import Bools, Floats, Ints, Rows
from dlsched.core.units import UnitTable
from dlsched.policies.scheduling.lucid.options import LucidOptions


class Traits:
    """What packing asks of rows.

    Attributes:
        score: packing class, NaN where unknown.
        memory: GiB on each GPU, NaN where unknown.
        priority: predicted GPU-seconds, NaN where unknown.
        is_unknown: is it not known what the row uses of a GPU?
    """

    def __init__(self, table: UnitTable, score: Floats, memory: Floats) -> None:
        self.gang: Ints = table.gang
        self.pool: Ints = table.pool
        self.score, self.memory = score, memory
        self.priority: Floats = table.predicted_work * table.gang
        self.is_unknown: Bools = np.isnan(score) | np.isnan(memory)


class Partners:
    """The running rows that waiting rows may join in one decision, in order of their start."""

    def __init__(self, hosts: Rows, waiting: Rows, traits: Traits, options: LucidOptions) -> None:
        """See for all waiting rows at once which hosts suit them.

        Args:
            hosts: running rows that are alone on their GPUs, in order of their start.
            waiting: the rows that may join one.
            traits: of all rows.
            options: the limits.
        """
        self._traits, self._options = traits, options
        self._most_memory = math.inf if options.memory_gib is None else options.memory_gib
        self._hosts: list[int] = hosts.tolist()
        self._new: list[int] = []
        self._taken: set[int] = set()
        may_suit = self._may_suit(waiting[:, None], hosts[None, :])
        unknown = traits.is_unknown[waiting][:, None] | traits.is_unknown[hosts]
        self._first = _first(waiting, may_suit & ~unknown)
        self._first_unknown = _first(waiting, may_suit & unknown) if unknown.any() else {}

    def started(self, row: int) -> None:
        """A row has started in this decision: later ones may join it."""
        self._new.append(row)

    def of(self, row: int) -> int | None:
        """The row that a waiting one joins; None where there is none."""
        place = self._first.get(row)
        if place is not None:
            host = self._hosts[place]
            if host not in self._taken:
                return host
            for later in self._hosts[place + 1 :]:
                if later not in self._taken and self._suits(row, later):
                    return later
        for other in self._new:
            if other not in self._taken and self._suits(row, other):
                return other
        return None

    def of_unknown(self, row: int) -> int | None:
        """A row that a waiting one may suit, but too little is known of one of them; or None."""
        place = self._first_unknown.get(row)
        if place is not None and self._hosts[place] not in self._taken:
            return self._hosts[place]
        new = np.array([each for each in self._new if each not in self._taken], np.int64)
        unknown = self._traits.is_unknown[new] | self._traits.is_unknown.item(row)
        if unknown.any():
            suits = new[unknown & self._may_suit(np.array([row]), new)]
            return int(suits[0]) if len(suits) else None
        return None

    def joined(self, host: int) -> None:
        """A row has joined this one: its GPUs are full."""
        self._taken.add(host)

    def _suits(self, row: int, host: int) -> bool:
        """Does a row suit a host? For one pair, which is quicker so."""
        t, chosen = self._traits, self._options
        gang = t.gang.item(row)
        return (
            gang == t.gang.item(host)
            and gang <= chosen.packed_gpus
            and t.score.item(row) + t.score.item(host) <= chosen.most_score
            and t.priority.item(row) <= chosen.longer * t.priority.item(host)
            and t.memory.item(row) + t.memory.item(host) < self._most_memory
            and t.pool.item(row) == t.pool.item(host)
        )

    def _may_suit(self, rows: Rows, hosts: Rows) -> Bools:
        """Of each pair: may the first join the second, as far as its use of a GPU is known?"""
        t, chosen = self._traits, self._options
        fits: Bools = (
            (t.gang[rows] == t.gang[hosts])
            & (t.gang[rows] <= chosen.packed_gpus)
            & (t.pool[rows] == t.pool[hosts])
            & ~(t.memory[rows] + t.memory[hosts] >= self._most_memory)
            & ~(t.score[rows] + t.score[hosts] > chosen.most_score)
            & (t.priority[rows] <= chosen.longer * t.priority[hosts])
        )
        return fits


def _first(waiting: Rows, suits: Bools) -> dict[int, int]:
    """The place of the first host of each waiting row that has any."""
    found = np.flatnonzero(suits.any(axis=1))
    first = suits[found].argmax(axis=1) if len(found) else found
    return dict(zip(waiting[found].tolist(), first.tolist(), strict=True))
