"""The calendar: GPUs promised for the future.

Reservations, planned starts and maintenance are bookings of a number of GPUs over a stretch of
time. The free profile is a step function; `earliest_start` answers the one question that planning
policies ask again and again.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Booking:
    """GPUs promised to a row (-1: to none, for maintenance) from `start` until `end`."""

    row: int
    gpus: int
    start: float
    end: float


class Calendar:
    """Bookings against a fixed number of GPUs, as a step function of what is free.

    `_times[k]` starts a step on which `_free[k]` GPUs are free; the last step never ends.

    Attributes:
        bookings: what was booked for each row (-1: maintenance), in order of booking.
    """

    def __init__(self, gpus: int, *, start: float = 0.0) -> None:
        self.gpus = gpus
        self._times: list[float] = [start]
        self._free: list[int] = [gpus]
        self.bookings: dict[int, list[Booking]] = {}

    def _split(self, time: float) -> int:
        """Make `time` the start of a step and return that step."""
        k = bisect_left(self._times, time)
        if k == len(self._times) or self._times[k] != time:
            insort(self._times, time)
            self._free.insert(k, self._free[k - 1] if k else self.gpus)
        return k

    def book(self, booking: Booking) -> None:
        """Enter a booking, beside those that its row may have already.

        Capacity may be overdrawn: ask `earliest_start` or `lowest` first where it must not be.
        """
        if booking.end <= booking.start:
            return
        self._change(booking, -booking.gpus)
        self.bookings.setdefault(booking.row, []).append(booking)

    def cancel(self, row: int, *, after: float = -math.inf) -> list[Booking]:
        """Give back what a row has booked from `after` on; returns those bookings.

        Maintenance, which is no row's, stays.
        """
        if row < 0:
            return []
        mine = self.bookings.pop(row, [])
        kept = [booking for booking in mine if booking.start < after]
        gone = [booking for booking in mine if booking.start >= after]
        for booking in gone:
            self._change(booking, booking.gpus)
        if kept:
            self.bookings[row] = kept
        return gone

    def lowest(self, start: float, end: float) -> int:
        """The fewest GPUs that are free at any moment from `start` until before `end`."""
        first = max(bisect_right(self._times, start) - 1, 0)
        last = max(bisect_left(self._times, end), first + 1)
        return min(self._free[first:last])

    def _change(self, booking: Booking, gpus: int) -> None:
        first = self._split(max(booking.start, self._times[0]))
        endless = booking.end == math.inf
        last = len(self._times) if endless else self._split(max(booking.end, self._times[0]))
        for k in range(first, last):
            self._free[k] += gpus

    def steps(self) -> list[list[float]]:
        """The step function as [start, free GPUs], in order of time."""
        return [[time, free] for time, free in zip(self._times, self._free, strict=True)]

    @classmethod
    def of_steps(cls, gpus: int, steps: list[list[float]]) -> Calendar:
        """A calendar with the step function that `steps` gave; it does not know the bookings."""
        calendar = cls(gpus)
        calendar._times = [float(time) for time, _ in steps]
        calendar._free = [int(free) for _, free in steps]
        return calendar

    def forget_before(self, time: float) -> None:
        """Drop what lies in the past."""
        k = bisect_right(self._times, time) - 1
        if k > 0:
            del self._times[:k], self._free[:k]
        for row, booked in list(self.bookings.items()):
            if len(left := [booking for booking in booked if booking.end > time]) < len(booked):
                self.bookings[row] = left
                if not left:
                    del self.bookings[row]

    def free_at(self, time: float) -> int:
        """GPUs free at a moment."""
        k = bisect_right(self._times, time) - 1
        return self._free[k] if k >= 0 else self.gpus

    def earliest_start(self, gpus: int, duration: float, *, not_before: float) -> float:
        """The earliest time from which `gpus` are free for `duration` seconds; inf if never."""
        k = max(bisect_right(self._times, not_before) - 1, 0)
        start = not_before
        while True:
            while k < len(self._times) and self._free[k] < gpus:
                k += 1
                if k < len(self._times):
                    start = self._times[k]
            if k >= len(self._times):
                return math.inf
            j = k
            while j < len(self._times) and self._free[j] >= gpus:
                step_end = self._times[j + 1] if j + 1 < len(self._times) else math.inf
                if step_end >= start + duration:
                    return start
                j += 1
            k = j
            if k < len(self._times):
                start = self._times[k]
