"""Booking leases: which requests fit before their deadlines, and the plan made without a solver.

Leases are counted from the next boundary: 0 is the lease that begins there. A request of a job has
one `Row` for each of its deadlines.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from dlsched.core.arrays import Ints


class Row(NamedTuple):
    """One way to serve a job: all its leases before one of its deadlines.

    Attributes:
        gpus: G, the gang rounded up so that plans stay packable.
        leases: how many leases it still needs.
        most: how many whole leases lie before the deadline.
        job: row of the table.
        value: of meeting the deadline.
    """

    gpus: int
    leases: int
    most: int
    job: int
    value: float = 0.0

    @property
    def slack(self) -> int:
        """Leases that it may wait."""
        return self.most - self.leases


def rounded_up(gang: int) -> int:
    """G: 3 becomes 4, and 5 to 7 become 8; other gangs stay."""
    return 4 if gang == 3 else 8 if 5 <= gang <= 7 else gang


def capacity_for(rows: Iterable[Row], total: int, booked: Ints) -> Ints:
    """GPUs left in each lease up to the last deadline of some rows.

    Args:
        rows: the requests.
        total: GPUs of the cluster.
        booked: GPUs that plans hold in each lease; nothing is booked behind its end.
    """
    length = max((row.most for row in rows), default=0)
    capacity = np.full(max(length, 0), total, np.int64)
    known = min(len(capacity), len(booked))
    capacity[:known] -= booked[:known]
    return capacity


def book_latest(row: Row, capacity: Ints) -> Ints | None:
    """Book a row's leases as late as possible, in place; None where they do not fit."""
    if row.leases <= 0:
        return np.zeros(0, np.int64)
    chosen = (capacity[: max(row.most, 0)] >= row.gpus).nonzero()[0][-row.leases :]
    if len(chosen) < row.leases:
        return None
    capacity[chosen] -= row.gpus
    return chosen


def all_fit(rows: Sequence[Row], total: int, booked: Ints) -> bool:
    """Can every job have all its leases? Of a job's rows the one with the least slack decides."""
    capacity = capacity_for(rows, total, booked)
    seen: set[int] = set()
    for row in sorted(rows, key=lambda row: (-row.gpus, row.slack, -row.most)):
        if row.job not in seen:
            seen.add(row.job)
            if book_latest(row, capacity) is None:
                return False
    return True


def least_most(rows: list[Row], total: int, booked: Ints) -> int:
    """The fewest leases before the last row's deadline with which all rows fit.

    The last row is changed to that number.
    """
    last = rows[-1]
    low = max(last.most, last.leases)
    high = max(*(row.most for row in rows), len(booked)) + last.leases + 1
    rows[-1] = last._replace(most=low)
    while low < high:
        middle = (low + high) // 2
        rows[-1] = last._replace(most=middle)
        if all_fit(rows, total, booked):
            high = middle
        else:
            low = middle + 1
        rows[-1] = last._replace(most=low)
    return low


def greedy_plan(rows: Sequence[Row], total: int, booked: Ints) -> Mapping[int, Ints]:
    """Leases by job: the most valuable rows first, as late as possible; some may get none."""
    capacity = capacity_for(rows, total, booked)
    plans: dict[int, Ints] = {}
    for row in sorted(rows, key=lambda row: (-row.value, -row.gpus, row.slack, -row.most)):
        if row.job not in plans and (chosen := book_latest(row, capacity)) is not None:
            plans[row.job] = chosen
    return plans
