"""What the protocol has found wrong lately: each alarm has a time, and an end when it is over.

One that comes again and again, or of many nodes at once, is one line with its number.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from dlsched.core.errors import plural

RECENT_S = 3600.0  # so long an alarm is told
REMEMBERED = 10_000
MOST_NAMED = 5  # nodes, in one line


@dataclass(slots=True)
class RaisedAlarm:
    """One alarm; times are seconds since the epoch. Without an end it still holds."""

    text: str
    node: str  # that it is about; empty: none
    began: float
    ended: float | None

    @property
    def kind(self) -> str:
        """The text without the node."""
        return self.text.replace(self.node, "", 1) if self.node else self.text


class RecentAlarms:
    """The newest alarms of one daemon."""

    def __init__(self) -> None:
        self._all: deque[RaisedAlarm] = deque(maxlen=REMEMBERED)

    def raised(self, text: str, now: float, *, lasts: bool, node: str = "") -> None:
        """Note an alarm; one that does not last is over at once."""
        self._all.append(RaisedAlarm(text, node, now, None if lasts else now))

    def follow(self, texts: Collection[str], now: float) -> None:
        """End the alarms that do not hold any more."""
        for each in self._all:
            if each.ended is None and each.text not in texts:
                each.ended = now

    def present(self, now: float) -> list[str]:
        """Those that hold, in words; one that has held for long says nothing new."""
        held = (x for x in self._all if x.ended is None and now - x.began < RECENT_S)
        return [f"{_what(some)} (since {_clock(some[0].began)} UTC)" for some in _kinds(held)]

    def past(self, now: float) -> list[str]:
        """Those that are over, in words."""
        over = (x for x in self._all if x.ended is not None and now - x.ended < RECENT_S)
        return [f"{_when(some)}: {_what(some)}" for some in _kinds(over)]


def _kinds(alarms: Iterable[RaisedAlarm]) -> list[list[RaisedAlarm]]:
    """The alarms of each kind together, in the order of their beginnings."""
    found: dict[str, list[RaisedAlarm]] = {}
    for each in alarms:
        found.setdefault(each.kind, []).append(each)
    return list(found.values())


def _what(some: list[RaisedAlarm]) -> str:
    others = list(dict.fromkeys(x.node for x in some if x.node != some[0].node))
    if not others:
        return some[0].text
    more = len(others) - MOST_NAMED
    named = ", ".join(others[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
    return f"{some[0].text}; the same of {named}"


def _when(some: list[RaisedAlarm]) -> str:
    began, ended = _clock(some[0].began), _clock(max(x.ended or 0.0 for x in some))
    span = began if began == ended else f"{began} to {ended}"
    times = len(some) - len({x.node for x in some})  # of one node again
    return f"{span} UTC" + (f", {plural(times + 1, 'time')}" if times else "")


def _clock(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M")
