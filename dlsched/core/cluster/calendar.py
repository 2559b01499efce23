"""The calendar: GPUs promised for the future.

Reservations, planned starts and maintenance are bookings of a number of GPUs over a stretch of
time. What is free is a step function; `earliest_start` answers the one question that planning
policies ask again and again.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True, kw_only=True)
class Booking:
    """GPUs promised to a row (-1: to none, for maintenance) from `start` until `end`."""

    row: int
    gpus: int
    start: float
    end: float


class FreeSteps:
    """How many GPUs are free from a moment on, as a step function of time.

    `_times[k]` starts a step on which `_free[k]` GPUs are free; the last step never ends.
    """

    def __init__(self, gpus: int, *, start: float = 0.0) -> None:
        self.gpus = gpus
        self._times: list[float] = [start]
        self._free: list[int] = [gpus]

    @classmethod
    def of_steps(cls, gpus: int, steps: Iterable[Iterable[float]]) -> Self:
        """The step function that `steps` gave; a calendar does not know its bookings then."""
        made = cls(gpus)
        times, free = zip(*steps, strict=True)
        made._times, made._free = list(map(float, times)), list(map(int, free))
        return made

    def steps(self) -> list[list[float]]:
        """The step function as [start, free GPUs], in order of time."""
        return [[time, free] for time, free in zip(self._times, self._free, strict=True)]

    def take(self, gpus: int, start: float, end: float) -> None:
        """Count GPUs as taken from `start` until `end`, or as given back where less than 0.

        Capacity may be overdrawn: ask `earliest_start` or `lowest` first where it must not be.
        """
        first = self._split(start)
        last = len(self._times) if end == math.inf else self._split(end)
        self._free[first:last] = [free - gpus for free in self._free[first:last]]

    def _split(self, time: float) -> int:
        """Make `time` the start of a step and return that step; the first for what is past."""
        k = bisect_left(self._times, time)
        if not k:
            return 0
        if k == len(self._times) or self._times[k] != time:
            self._times.insert(k, time)
            self._free.insert(k, self._free[k - 1])
        return k

    def forget_before(self, time: float) -> None:
        """Drop what lies in the past."""
        k = bisect_right(self._times, time) - 1
        if k > 0:
            del self._times[:k], self._free[:k]

    def free_at(self, time: float) -> int:
        """GPUs free at a moment."""
        k = bisect_right(self._times, time) - 1
        return self._free[k] if k >= 0 else self.gpus

    def lowest(self, start: float, end: float) -> int:
        """The fewest GPUs that are free at any moment from `start` until before `end`."""
        first = max(bisect_right(self._times, start) - 1, 0)
        last = max(bisect_left(self._times, end), first + 1)
        return min(self._free[first:last])

    def earliest_start(self, gpus: int, duration: float, *, not_before: float) -> float:
        """The earliest time from which `gpus` are free for `duration` seconds; inf if never.

        A duration that is not known (NaN) fits nowhere.
        """
        times, free = self._times, self._free
        first, last = max(bisect_right(times, not_before) - 1, 0), len(times) - 1
        start = not_before if free[first] >= gpus else math.inf
        for k in range(first, last):
            if free[k] < gpus:
                start = math.inf
                continue
            if start == math.inf:
                start = times[k]
            if times[k + 1] >= start + duration:
                return start
        if free[last] < gpus or math.isnan(duration):
            return math.inf
        return min(start, max(times[last], not_before))


class Calendar(FreeSteps):
    """Bookings against a fixed number of GPUs, and what they leave free.

    Attributes:
        bookings: what was booked for each row (-1: maintenance), in order of booking.
    """

    def __init__(self, gpus: int, *, start: float = 0.0) -> None:
        super().__init__(gpus, start=start)
        self.bookings: dict[int, list[Booking]] = {}

    def book(self, booking: Booking) -> None:
        """Enter a booking, beside those that its row may have already; see `take`."""
        if booking.end <= booking.start:
            return
        self.take(booking.gpus, booking.start, booking.end)
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
            self.take(-booking.gpus, booking.start, booking.end)
        if kept:
            self.bookings[row] = kept
        return gone

    def forget_before(self, time: float) -> None:
        """Drop what lies in the past, bookings too."""
        super().forget_before(time)
        for row, booked in list(self.bookings.items()):
            if len(left := [booking for booking in booked if booking.end > time]) < len(booked):
                self.bookings[row] = left
                if not left:
                    del self.bookings[row]
