"""Reports of ranks that wait for their turn, on their way from a keeper to its agent.

A rank may report as often as it likes: of each rank one report waits, newer ones are merged into
it, and the agent gets a few at a time, and none while it does not read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dlsched.system import clock

EVERY_S = 0.1  # between two turns
AT_ONCE = 64  # reports in one turn
MOST_WAITING = 256  # ranks; reports of others are dropped while so many wait
MOST_NAMES = 256  # of values in a report that waits
Report = dict[str, Any]


class HeldReports:
    """The reports of one run on one node."""

    def __init__(self, send: Callable[[Report], bool], is_backed_up: Callable[[], bool]) -> None:
        """Hold none yet.

        Args:
            send: gives the agent a report; one is lost when there is no agent.
            is_backed_up: whether the agent has not read what it got before.
        """
        self._send, self._is_backed_up = send, is_backed_up
        self._waiting: dict[int, Report] = {}
        self._turn_at = 0.0

    def add(self, report: Report) -> None:
        """Take a report of a rank; the first one after a while is sent at once."""
        rank = int(report["rank"])
        earlier = self._waiting.pop(rank, None)
        if earlier is not None:
            self._waiting[rank] = merged(earlier, report)
        elif len(self._waiting) < MOST_WAITING:
            self._waiting[rank] = report
        self.wake(clock.boottime())

    @property
    def deadline(self) -> float | None:
        """When `wake` has something to do, in seconds since the boot; None: not at all."""
        return self._turn_at if self._waiting else None

    def wake(self, now: float) -> None:
        """Send what may be sent now."""
        if not self._waiting or now < self._turn_at:
            return
        self._turn_at = now + EVERY_S
        if not self._is_backed_up():
            for rank in list(self._waiting)[:AT_ONCE]:
                self._send(self._waiting.pop(rank))

    def send_all(self) -> None:
        """Send everything: what follows must not overtake it."""
        waiting, self._waiting = self._waiting, {}
        for report in waiting.values():
            self._send(report)


def merged(earlier: Report, newer: Report) -> Report:
    """Return one report of a rank for two: counts add up, named values come together."""
    found = {**earlier, **newer}
    if "step" in newer:  # only the newest values can be finite or not
        for name in ("not_finite", "doing"):
            if name not in newer:
                found.pop(name, None)
    if "ignored" in earlier:
        found["ignored"] = earlier["ignored"] + newer.get("ignored", 0)
    if "metrics" in earlier:
        metrics = {**earlier["metrics"], **newer.get("metrics", {})}
        found["metrics"] = metrics if len(metrics) <= MOST_NAMES else newer["metrics"]
    return found
