"""Multi-level feedback queues: discretized least attained service.

The queues of Tiresias, NSDI 2019, without promotion and index: a job starts in the
first queue and falls to the tail of the next when its attained service reaches the queue's limit.
Queues are served in order, each in list order; a job that does not fit is skipped. After each
decision the waiting jobs of a queue move behind its running ones, so that equal jobs do not
displace each other and a queue is ordered by the last start.

Inputs: attained service in GPU-seconds (or seconds), limits in the same unit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dlsched.core.allocation import Ranking, Rebuild
from dlsched.core.arrays import Bools, Floats, Ints, Rows
from dlsched.core.context import RoundContext
from dlsched.core.memory import Remembering, kept, memory
from dlsched.core.options import option
from dlsched.core.scheduling import SchedulingPolicy
from dlsched.core.units import Units
from dlsched.core.walk.following import follow
from dlsched.core.walk.walk import Walk

# a limit counts as reached when service is this close to it, since times are floats
REACHED_S = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class MultiQueueOptions:
    """Multi-level feedback queues."""

    limits: tuple[float, ...] = option(
        (3250.0, 7200.0),
        "service at which a job leaves each queue except the last, ascending",
        low=0.0,
        ascending=True,
    )
    service: Literal["gpu-time", "time"] = option(
        "gpu-time", "unit of attained service: GPU-seconds, or seconds on GPUs"
    )
    rebuild: Rebuild = option("sticky", "sticky: running jobs keep their GPUs; full: none does")


class FeedbackQueues(Remembering):
    """The queue of each row, and its place there.

    Attributes:
        queue: by row, -1 before it joins.
        place: by row, ascending within a queue.
    """

    queue: NDArray[np.int8] = memory(-1, np.int8)
    place: Ints = memory(0)
    _tail: int = kept(0)

    def __init__(self, queues: int) -> None:
        self.last = queues - 1

    def join(self, units: Units) -> Rows:
        """Put rows not seen before at the tail of the first queue; returns their positions."""
        self.reach(len(units.table))
        new = np.flatnonzero(self.queue[units.rows] < 0)
        if new.size:
            self.move(units.rows[new], np.zeros(len(new), np.int8))
        return new

    def append(self, row: int, queue: int) -> None:
        """Put a row at the tail of a queue."""
        self.queue[row], self.place[row] = queue, self._tail
        self._tail += 1

    def move(self, rows: Rows, queue: NDArray[np.int8]) -> None:
        """Put rows at the tails of queues, in the order given."""
        self.queue[rows] = queue
        self.rearrange(rows)

    def order(self, units: Units) -> Rows:
        """Positions by queue, then by place in it."""
        return np.lexsort((self.place[units.rows], self.queue[units.rows]))

    def running_first(self, units: Units, running: Bools) -> None:
        """In each queue move the waiting rows behind the running ones, both keeping their order."""
        self.rearrange(units.rows[np.lexsort((self.place[units.rows], ~running))])

    def rearrange(self, rows: Rows) -> None:
        """Give rows new places in the order given; their queues stay."""
        self.place[rows] = self._tail + np.arange(len(rows))
        self._tail += len(rows)


class MultiQueue(SchedulingPolicy[MultiQueueOptions]):
    """Feedback queues with limits, first come first served inside a queue."""

    name = "multi-queue"
    summary = "multi-level feedback queues on attained service, FIFO inside a queue"
    at_limits = "tries"
    preemptive = True
    rests = False  # a running job is demoted even if no job waits

    def __init__(self, options: MultiQueueOptions) -> None:
        super().__init__(options)
        self._queues = FeedbackQueues(len(options.limits) + 1)
        self.memories = (self._queues,)

    def allocate(self, units: Units, ctx: RoundContext, walk: Walk) -> None:
        """Demote, walk the queues, put waiting jobs behind running ones."""
        self._queues.join(units)
        service, speed = self._service(units)
        if ctx.mode == "full":
            self._demote(units, service)
        if not units.running.all():
            order = self._queues.order(units)
            follow(walk, units, Ranking(order=order, rebuild=self.options.rebuild))
        running = walk.runs(units)
        if not running.all():
            active = ctx.units
            self._queues.running_first(active, walk.runs(active))
        next_fall = self._next_fall(units, service, speed, running, ctx.now)
        walk.wake_at(next_fall)
        walk.stable_until(next_fall)

    def _service(self, units: Units) -> tuple[Floats, Floats]:
        """Attained service per unit and its growth per second while running."""
        if self.options.service == "time":
            return units.held_s, np.ones(len(units))
        return units.attained, units.counted_gpus

    def _limit_of(self, units: Units) -> Floats:
        limits = np.array([*self.options.limits, np.inf])
        return limits[self._queues.queue[units.rows]]

    def _demote(self, units: Units, service: Floats) -> None:
        fallen = units.running & (service >= self._limit_of(units) - REACHED_S)
        if fallen.any():
            rows = units.rows[fallen]
            self._queues.move(rows, self._queues.queue[rows] + np.int8(1))

    def _next_fall(
        self, units: Units, service: Floats, speed: Floats, running: Bools, now: float
    ) -> float:
        wait = (self._limit_of(units)[running] - service[running]) / speed[running]
        return now + float(wait.min()) if wait.size else np.inf
