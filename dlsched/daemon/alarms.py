"""What the protocol has found wrong lately: each alarm has a time, and an end when it is over."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime

RECENT_S = 3600.0  # so long an alarm is told
REMEMBERED = 100


@dataclass(slots=True)
class RaisedAlarm:
    """One alarm; times are seconds since the epoch. Without an end it still holds."""

    text: str
    began: float
    ended: float | None

    def words(self) -> str:
        """When it was, and what."""
        if self.ended is None:
            return f"{self.text} (since {_clock(self.began)} UTC)"
        began, ended = _clock(self.began), _clock(self.ended)
        span = began if began == ended else f"{began} to {ended}"
        return f"{span} UTC: {self.text}"


class RecentAlarms:
    """The newest alarms of one daemon."""

    def __init__(self) -> None:
        self._all: deque[RaisedAlarm] = deque(maxlen=REMEMBERED)

    def raised(self, text: str, now: float, *, lasts: bool) -> None:
        """Note an alarm; one that does not last is over at once."""
        self._all.append(RaisedAlarm(text, now, None if lasts else now))

    def follow(self, texts: Collection[str], now: float) -> None:
        """End the alarms that do not hold any more."""
        for each in self._all:
            if each.ended is None and each.text not in texts:
                each.ended = now

    def present(self, now: float) -> list[str]:
        """Those that hold, in words; one that has held for long says nothing new."""
        return [x.words() for x in self._all if x.ended is None and now - x.began < RECENT_S]

    def past(self, now: float) -> list[str]:
        """Those that are over, in words."""
        return [x.words() for x in self._all if x.ended is not None and now - x.ended < RECENT_S]


def _clock(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M")
