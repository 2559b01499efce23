"""Multi-level feedback queues: discretized least attained service.

The queues of Tiresias, NSDI 2019, without promotion and index: a job starts in the
first queue and falls to the tail of the next when its attained service reaches the queue's limit.
Queues are walked in order, each in list order; what does not fit is skipped. After each decision
the waiting jobs of a queue stand behind its running ones, so that equals do not displace each
other and the order inside a queue is by "last started".

Inputs: attained service in GPU-seconds (or seconds), limits in the same unit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from dlsched.core.allocation import Ranking, Rebuild
from dlsched.core.arrays import Bools, Floats, Ints, Rows, carried
from dlsched.core.context import RoundContext
from dlsched.core.following import follow
from dlsched.core.options import option
from dlsched.core.scheduling import SchedulingPolicy
from dlsched.core.units import Units
from dlsched.core.walk import Walk

__all__ = ["FeedbackQueues", "MultiQueue"]

# a limit counts as reached when service is this close to it: times are float seconds
REACHED_S = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class MultiQueueOptions:
    """Multi-level feedback queues."""

    limits: tuple[float, ...] = option(
        (3250.0, 7200.0),
        "service at which a job leaves each queue but the last, ascending",
        low=0.0,
    )
    service: Literal["gpu-time", "time"] = option(
        "gpu-time", "attained service in GPU-seconds, or in seconds on GPUs"
    )
    rebuild: Rebuild = option("sticky", "sticky keeps running jobs on their GPUs, full re-places")


class FeedbackQueues:
    """Which queue each row is in, and where in it.

    Attributes:
        queue: per row, -1 before it joins.
        place: per row; the order inside a queue.
    """

    def __init__(self, queues: int) -> None:
        self.last = queues - 1
        self.queue: NDArray[np.int8] = np.zeros(0, np.int8)
        self.place: Ints = np.zeros(0, np.int64)
        self._tail = 0

    def join(self, units: Units) -> Rows:
        """Put rows not seen before at the tail of the first queue; returns their positions."""
        if len(self.queue) < len(units.table):
            more = len(units.table) - len(self.queue)
            self.queue = np.concatenate([self.queue, np.full(more, -1, np.int8)])
            self.place = np.concatenate([self.place, np.zeros(more, np.int64)])
        new = np.flatnonzero(self.queue[units.rows] < 0)
        if new.size:
            self.move(units.rows[new], np.zeros(len(new), np.int8))
        return new

    def move(self, rows: Rows, queue: NDArray[np.int8]) -> None:
        """Put rows at the tails of queues, in the order given."""
        self.queue[rows] = queue
        self.place[rows] = self._tail + np.arange(len(rows))
        self._tail += len(rows)

    def order(self, units: Units) -> Rows:
        """Positions by queue, then by place in it."""
        return np.lexsort((self.place[units.rows], self.queue[units.rows]))

    def running_first(self, units: Units, running: Bools) -> None:
        """In each queue move the waiting rows behind the running ones, both keeping their order."""
        rows = units.rows
        order = np.lexsort((self.place[rows], ~running))
        self.rearrange(rows[order])

    def rearrange(self, rows: Rows) -> None:
        """Give rows new places in the order given; their queues stay."""
        self.place[rows] = self._tail + np.arange(len(rows))
        self._tail += len(rows)

    def renumber(self, old: Rows) -> None:
        """Follow a table that was packed."""
        self.queue = carried(self.queue, old, -1)
        self.place = carried(self.place, old, 0)

    def state_dict(self) -> dict[str, Any]:
        """Queues and places."""
        return {"queue": self.queue.copy(), "place": self.place.copy(), "tail": self._tail}

    def load_state_dict(self, state: Any) -> None:
        """Go on from them."""
        self.queue = np.array(state["queue"], np.int8)
        self.place = np.array(state["place"], np.int64)
        self._tail = int(state["tail"])


class MultiQueue(SchedulingPolicy[MultiQueueOptions]):
    """Feedback queues with limits, first come first served inside a queue."""

    name = "multi-queue"
    summary = "multi-level feedback queues on attained service, FIFO inside a queue"
    Options: ClassVar[type[Any]] = MultiQueueOptions
    preemptive = True
    rests = False  # a running job falls to the next queue whether or not somebody waits

    def __init__(self, options: MultiQueueOptions) -> None:
        super().__init__(options)
        self._queues = FeedbackQueues(len(options.limits) + 1)

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
            everybody = ctx.units
            self._queues.running_first(everybody, walk.runs(everybody))
        next_fall = self._next_fall(units, service, speed, running, ctx.now)
        walk.wake_at(next_fall)
        walk.stable_until(next_fall)

    def _service(self, units: Units) -> tuple[Floats, Floats]:
        """Attained service per unit and its growth per second while running."""
        if self.options.service == "time":
            return units.held_s, np.ones(len(units))
        return units.attained, units.gang.astype(np.float64)

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

    def state_dict(self) -> dict[str, Any]:
        """The queues."""
        return self._queues.state_dict()

    def load_state_dict(self, state: Any) -> None:
        """Go on with the queues."""
        self._queues.load_state_dict(state)

    def renumber(self, old: Rows, finished_gone: int) -> None:
        """The queues follow."""
        self._queues.renumber(old)
