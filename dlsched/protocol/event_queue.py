"""Events of one party, taken one at a time: what a driver around a pure step needs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

Event = TypeVar("Event")


class EventQueue(Generic[Event]):
    """Takes each event in a step of its own.

    Carrying out the commands of a step may bring further events; they wait until it is done.
    """

    def __init__(self, step: Callable[[Event], None]) -> None:
        """Take nothing yet; `step` takes one event and carries out what follows from it."""
        self._step = step
        self._events: deque[Event] = deque()
        self._is_stepping = False

    def take(self, event: Event) -> None:
        """Take an event, now or after the step that is under way.

        An error of a step is raised; the events that wait are taken with the next one.
        """
        self._events.append(event)
        if self._is_stepping:
            return
        self._is_stepping = True
        try:
            while self._events:
                self._step(self._events.popleft())
        finally:
            self._is_stepping = False
