"""The demotions of feedback queues, one by one, while all units have the GPUs that they need.

When a row that runs will reach the limit of its queue is known as soon as it starts, except that
restarts delay it. So only rows whose time has come are looked at, instead of all in each decision;
what is decided is equal to the bit.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from typing import ClassVar

import numpy as np

from dlsched.core.arrays import Floats, Ints, Rows
from dlsched.core.context import RoundContext
from dlsched.core.parts import part_of
from dlsched.core.scheduling import QuietRounds
from dlsched.policies.scheduling.multi_queue import REACHED_S, FeedbackQueues

NEAR_S = 1e-3  # more than what rounding does to a time


class Demotions(QuietRounds):
    """Rows above the last queue, by a time before which none of them reaches its limit."""

    outputs: ClassVar[Mapping[str, float]] = {"promotions": 0.0}

    def __init__(
        self,
        queues: FeedbackQueues,
        limits: Floats,
        ctx: RoundContext,
        admitted: Ints,
        *,
        by_gpus: bool,
        held: bool,
    ) -> None:
        """Begin without any row.

        Args:
            queues: of the policy.
            limits: service at which a row leaves each queue.
            ctx: the present.
            admitted: per row its place in the order of admission.
            by_gpus: is service counted in seconds × GPUs?
            held: are these the seconds on GPUs, those of restarts included?
        """
        self._queues, self._limits, self._admitted = queues, limits.tolist(), admitted
        self._by_gpus, self._held = by_gpus, held
        self._table, self._running = ctx.table, ctx.occupancy.held
        self._clocks: dict[int, tuple[float, float, float]] = {}  # of rows that start from now on
        self._agenda: list[tuple[float, int]] = []

    def enter(self, rows: Rows, now: float, until: Floats) -> None:
        """Rows run above the last queue, which they would leave after so many seconds."""
        earliest = now + until / np.maximum(self._table.rate[rows], 1.0)
        self._agenda = list(zip(earliest.tolist(), rows.tolist(), strict=True))
        heapq.heapify(self._agenda)

    def begin(self, row: int, now: float, ready: float, rate: float) -> None:
        """A row starts; a new one joins the first queue."""
        self._join([row])
        table = self._table
        if self._held:
            self._clocks[row] = (table.held_s.item(row), now, 1.0)
        else:
            self._clocks[row] = (table.executed.item(row), ready, rate)
        self._expect(row, now, self._service(row, now)[1])

    def decide(self, now: float, waiting: Iterable[int]) -> None:
        """New rows join; rows that have reached their limits fall, in order of admission."""
        self._join(waiting)
        agenda, falling = self._agenda, []
        early = []  # rows that are not there yet, though they might have been
        while agenda and agenda[0][0] <= now + NEAR_S:
            row = heapq.heappop(agenda)[1]
            if row in self._running:
                service, until = self._service(row, now)
                if service >= self._limits[self._queues.queue[row]] - REACHED_S:
                    falling.append(row)
                else:
                    early.append((row, until))
        for row in sorted(falling, key=self._admitted.item):
            self._queues.append(row, self._queues.queue.item(row) + 1)
            self._expect(row, now, self._service(row, now)[1])
        for row, until in early:
            self._expect(row, now, until)

    def next_time(self, now: float) -> float:
        """When the first row reaches its limit, as it looks now; inf where none will."""
        agenda, soonest, seen = self._agenda, np.inf, []
        while agenda and agenda[0][0] <= soonest + NEAR_S:
            row = heapq.heappop(agenda)[1]
            if row in self._running:
                until = self._service(row, now)[1]
                seen.append((row, until))
                soonest = min(soonest, now + until)
        for row, until in seen:
            self._expect(row, now, until)
        return soonest

    def _join(self, rows: Iterable[int]) -> None:
        for row in rows:
            if self._queues.queue[row] < 0:
                self._queues.append(row, 0)

    def _expect(self, row: int, now: float, until: float) -> None:
        """A row runs and would reach its limit after so many seconds, at one second a second."""
        if until < np.inf:
            rate = self._clocks[row][2] if row in self._clocks else self._table.rate.item(row)
            heapq.heappush(self._agenda, (now + until / max(rate, 1.0), row))

    def _service(self, row: int, now: float) -> tuple[float, float]:
        """The service of a row that runs, and for how many seconds it does not reach its limit."""
        table = self._table
        if row in self._clocks:
            base, since, rate = self._clocks[row]
        elif self._held:
            base, since, rate = table.held_s.item(row), table.since.item(row), 1.0
        else:
            base, since = table.executed.item(row), table.progress_from.item(row)
            rate = table.rate.item(row)
        done = base + max(now - since, 0.0) * rate
        limit: float = self._limits[self._queues.queue[row]]
        if not self._by_gpus:
            return done, limit - done
        gpus = table.gang.item(row) * part_of(table.gpu_share.item(row))
        return done * gpus, (limit - done * gpus) / gpus
