"""Sorting by keys, with the same ties on every machine, and the time until which it holds."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from dlsched.core.arrays import Bools, Floats, Rows
from dlsched.core.memory import Remembering, in_array, kept, rows
from dlsched.core.units import Units


def order_by(*keys: Floats | None) -> Rows:
    """Positions sorted by the keys, most important first; equal ones keep their order.

    Keys that are None are left out.
    """
    known = [key for key in keys if key is not None]
    if len(known) == 1:
        return np.argsort(known[0], kind="stable")
    return np.lexsort(known[::-1])


def next_crossing(key: Floats, growth: Floats, running: Bools, now: float) -> float:
    """When the key of a running row first meets that of a waiting one; inf if never.

    Until then no running row changes places with a waiting one, so a walk that skips misfits
    selects the same rows. Waiting rows' keys stand still.

    Args:
        key: sort key per row, now.
        growth: key per second, per row (only running rows' matter).
        running: which rows hold GPUs after the decision.
        now: seconds.
    """
    waiting = np.sort(key[~running])
    if not waiting.size or waiting.size == len(key):
        return np.inf
    moving, speed = key[running], growth[running]
    up = np.searchsorted(waiting, moving, side="left")
    down = np.searchsorted(waiting, moving, side="right") - 1
    bounds = np.concatenate([waiting, [np.inf], [-np.inf]])  # index -1 is -inf, size is +inf
    target = np.where(speed > 0, bounds[up], bounds[down])
    with np.errstate(divide="ignore", invalid="ignore"):
        wait = (target - moving) / speed
    wait[~np.isfinite(wait)] = np.inf
    return now + float(wait.min())


class PersistentOrder(Remembering):
    """A list that is sorted repeatedly: equal keys keep the order of the previous time.

    New rows enter at the end. This is how Tiresias' simulator breaks ties.
    """

    _rows: Rows = rows(in_array, key="order")

    def __init__(self) -> None:
        self._rank: Rows = np.zeros(0, np.int64)  # by row; -1 where it has none

    def sort(self, units: Units, *keys: Floats, remember: bool = True) -> Rows:
        """Positions sorted by the keys, most important first, smallest first.

        `remember` keeps the result for the next time; not where only some rows are sorted, as in a
        fill, or the others would lose their places.
        """
        rows = units.rows
        self._reach(int(rows.max(initial=-1)) + 1)
        previous = self._rank[rows]
        previous[previous < 0] = len(self._rows)
        base = np.argsort(previous, kind="stable")
        order = base[order_by(*(key[base] for key in keys))]
        if remember:
            self._remember(rows[order])
        return order

    def place(self, row: int) -> float:
        """Where a row was the previous time; inf for a new one."""
        known = row < len(self._rank) and self._rank.item(row) >= 0
        return self._rank.item(row) if known else np.inf

    def _remember(self, rows: Rows) -> None:
        """Take an order of rows in place of the present one."""
        self._reach(int(rows.max(initial=-1)) + 1)
        self._rank[self._rows] = -1
        self._rank[rows] = np.arange(len(rows))
        self._rows = rows

    def _reach(self, count: int) -> None:
        """Have room for so many rows."""
        if count > len(self._rank):
            more = np.full(max(count, 2 * len(self._rank)) - len(self._rank), -1)
            self._rank = np.concatenate([self._rank, more])

    def recall(self) -> None:
        """Ranks follow from the order; rows that are gone leave no gap."""
        self._rank = np.zeros(0, np.int64)
        self._remember(self._rows)


class TwoLists(Remembering):
    """A queue and a list of running rows, to which rows are appended when they start or stop.

    Equal keys keep the order of these lists, one list after the other, as in the simulators of
    Helios and Lucid.
    """

    _place: dict[int, int] = kept(
        dict,
        lambda lists: {row: place for place, row in enumerate(lists)},
        store=lambda place: sorted(place, key=place.__getitem__),
        follow=lambda place, packed: {
            row: place[before] for before, row in packed.place.items() if before in place
        },
        key="lists",
    )
    _next: int = 0

    def order(self, units: Units, *, running_first: bool) -> Rows:
        """Positions list by list; rows not seen before enter the queue in the order given."""
        rows = units.rows.tolist()
        for row in rows:
            if row not in self._place:
                self._append(row)
        place = np.array([self._place[row] for row in rows], np.int64)
        behind = ~units.running if running_first else units.running
        return np.lexsort((place, behind))

    def moved(self, rows: Iterable[int]) -> None:
        """Rows have left their list for the end of the other one, in this order."""
        for row in rows:
            self._append(row)

    def _append(self, row: int) -> None:
        self._place[row] = self._next
        self._next += 1

    def recall(self) -> None:
        """The next place is behind all others."""
        self._next = 1 + max(self._place.values(), default=-1)
