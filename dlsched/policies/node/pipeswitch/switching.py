"""When one GPU switches between a training and inference: a pure step, for agents and replays.

A request that finds the training stops it: the training ends the layer that it computes, and its
iteration is lost. Requests are served in order, and none interrupts another. Once none has come for
`idle_s`, the training goes on. Memory of two tasks is never on the GPU at once: the next task is
started only when the last one has said that it has let go.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Literal, NamedTuple

IDLE_S = 0.020  # without a request, before the training goes on
TRAINING = "training"


class Do(NamedTuple):
    """What is to be done: stop the training, or start a task.

    Attributes:
        verb: `stop` the training; `start` a request or the training.
        task: number of the request; -1 for the training.
        service: of the request; `training` for the training.
    """

    verb: Literal["stop", "start"]
    task: int
    service: str


STOP = Do("stop", -1, TRAINING)
TRAIN = Do("start", -1, TRAINING)


class SwitchedGpu:
    """The tasks of one GPU.

    Attributes:
        waiting: number and service of requests that have not begun, in order.
        active: what has the GPU: `training`, a service, or nothing.
        stops: whether the training was told to stop and has not let go yet.
        wake_at: when `woke` has something to do; infinite: never.
    """

    def __init__(self, *, trains: bool, idle_s: float = IDLE_S) -> None:
        """A GPU on which nothing runs; `trains`: there is a training, which `woke` starts."""
        self.waiting: deque[tuple[int, str]] = deque()
        self.active = ""
        self.stops = False
        self.wake_at = -math.inf if trains else math.inf
        self._trains, self._idle_s = trains, idle_s

    def requested(self, task: int, service: str) -> list[Do]:
        """A request has come."""
        self.waiting.append((task, service))
        self.wake_at = math.inf
        if self.active == TRAINING and not self.stops:
            self.stops = True
            return [STOP]
        return self._next()

    def ended(self, now: float) -> list[Do]:
        """The active task has let the GPU go: a request is served, or the training has stopped."""
        self.active, self.stops = "", False
        found = self._next()
        if not found and self._trains:
            self.wake_at = now + self._idle_s
        return found

    def training_ended(self, now: float) -> list[Do]:
        """The training has done all its work, or has failed."""
        self._trains = False
        found = self.ended(now) if self.active == TRAINING else []
        self.wake_at = math.inf
        return found

    def woke(self, now: float) -> list[Do]:
        """Time has passed: the training goes on, if no request has come."""
        if self.active or self.waiting or not self._trains or now < self.wake_at:
            return []
        self.active, self.wake_at = TRAINING, math.inf
        return [TRAIN]

    def _next(self) -> list[Do]:
        if self.active or not self.waiting:
            return []
        task, self.active = self.waiting.popleft()
        return [Do("start", task, self.active)]
