"""The simulated world's time: an event queue, the machines' clocks and paused processes."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping


class Agenda:
    """The event queue in true time, with the clocks and pauses of machines."""

    def __init__(self, clock_rates: Mapping[str, float]) -> None:
        self.now = 0.0
        self.clock_rates = clock_rates
        self.asleep: dict[str, float] = {}  # until when each party is paused
        self._entries: list[tuple[float, int, Callable[[], None]]] = []
        self._numbered = 0

    def at(self, time: float, what: Callable[[], None]) -> None:
        """Call a function at a true time."""
        self._numbered += 1
        heapq.heappush(self._entries, (time, self._numbered, what))

    def after(self, wait: float, what: Callable[[], None]) -> None:
        """Call a function after a true duration."""
        self.at(self.now + wait, what)

    def after_local(self, machine: str, wait: float, what: Callable[[], None]) -> None:
        """Call a function after a duration on one machine's clock."""
        self.after(wait / self.rate(machine), what)

    def rate(self, machine: str) -> float:
        """How fast a machine's clock runs."""
        return self.clock_rates.get(machine, 1.0)

    def clock(self, machine: str) -> float:
        """A machine's monotonic clock, in seconds; the clocks of two machines are unrelated."""
        return 1000.0 * (1 + sum(map(ord, machine)) % 7) + self.now * self.rate(machine)

    def when_awake(self, party: str, what: Callable[[], None]) -> None:
        """Call a function now, or when the party's paused process continues."""
        until = self.asleep.get(party, 0.0)
        if until > self.now:
            self.at(until, lambda: self.when_awake(party, what))
        else:
            what()

    def next_until(self, until: float) -> Callable[[], None] | None:
        """The next function, with `now` set to its time; None when there is none until then."""
        if not self._entries or self._entries[0][0] > until:
            return None
        self.now, _, what = heapq.heappop(self._entries)
        return what
