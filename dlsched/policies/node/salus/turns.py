"""Which session of a lane runs its next iteration (Salus, section 4).

One iteration runs in a lane at a time, and none is interrupted. Whenever the lane is free, an order
picks among the sessions that want to run one:

    fifo   only the session that entered the lane first
    srtf   only the session with the least time left; of equal ones the one that entered last
    fair   the session that has used the lane least
    rr     the session with the fewest iterations; the counts of all begin anew when one enters
    pack   in order of arrival of the iterations

Under `fifo` and `srtf` the lane stays idle while the picked session wants nothing, unless the
order is to conserve work: then the next in the order goes ahead. Ties go to the iteration that
arrived first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Literal

ROUNDED = 9  # digits behind the point: sums of equal times are equal

Order = Literal["fifo", "srtf", "fair", "rr", "pack"]


@dataclass(slots=True)
class Session:
    """A session of the lane.

    Attributes:
        entered: number of its entry; later sessions have larger ones.
        total: time that all its iterations take alone; infinite where it is not known.
        used: time of its iterations that have ended.
        iterations: how many have ended since the counts began.
        arrived: number of the arrival of the iteration that it wants to run; 0: it wants none.
    """

    entered: int
    total: float
    used: float = 0
    iterations: int = 0
    arrived: int = 0


class Turns:
    """The sessions of one lane and the iterations that they want to run.

    Attributes:
        order: how the next one is picked.
        conserves_work: whether another session runs when the picked one wants nothing.
        running: the session whose iteration runs; None: the lane is free.
        sessions: by name.
    """

    __slots__ = ("_entries", "_requests", "conserves_work", "order", "running", "sessions")

    def __init__(self, order: Order, *, conserves_work: bool = False) -> None:
        """A lane without sessions."""
        self.order: Order = order
        self.conserves_work = conserves_work
        self.running: str | None = None
        self.sessions: dict[str, Session] = {}
        self._entries = 0
        self._requests = 0

    def enter(self, name: str, total: float = float("inf"), used: float = 0) -> None:
        """A session enters the lane.

        Args:
            name: of the session.
            total: time that all its iterations take alone.
            used: time of those that it has run before, such as in another lane.
        """
        self._entries += 1
        self.sessions[name] = Session(self._entries, total, used)
        if self.order == "rr":
            for session in self.sessions.values():
                session.iterations = 0

    def leave(self, name: str) -> None:
        """A session leaves the lane; its iteration, if one runs, is over."""
        del self.sessions[name]
        if self.running == name:
            self.running = None

    @property
    def is_awaited(self) -> bool:
        """Whether any session wants to run an iteration."""
        return any(each.arrived for each in self.sessions.values())

    def want(self, name: str) -> None:
        """A session wants to run its next iteration; repeating it changes nothing."""
        session = self.sessions[name]
        if not session.arrived:
            self._requests += 1
            session.arrived = self._requests

    def pick(self, first: Collection[str] = ()) -> str | None:
        """Begin the next iteration; None while one runs, and where none may begin.

        Args:
            first: sessions that go before all others when they want one.
        """
        if self.running is not None or not self.sessions:
            return None
        key = _KEYS[self.order]
        hurry = {n: each for n, each in self.sessions.items() if n in first and each.arrived}
        choice = hurry or self.sessions
        if self.conserves_work or self.order not in ("fifo", "srtf"):
            choice = {name: each for name, each in choice.items() if each.arrived}
            if not choice:
                return None
        name = min(choice, key=lambda name: key(choice[name]))
        if not choice[name].arrived:
            return None
        choice[name].arrived = 0
        self.running = name
        return name

    def end(self, took: float) -> None:
        """The iteration that runs has ended, after so much time."""
        if self.running is not None:
            session = self.sessions[self.running]
            session.used += took
            session.iterations += 1
            self.running = None


_KEYS: dict[Order, Callable[[Session], tuple[float, ...]]] = {
    "fifo": lambda s: (s.entered,),
    "srtf": lambda s: (round(s.total - s.used, ROUNDED), -s.entered),
    "fair": lambda s: (round(s.used, ROUNDED), s.arrived),
    "rr": lambda s: (s.iterations, s.arrived),
    "pack": lambda s: (s.arrived,),
}
