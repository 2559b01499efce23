"""Points in time: `now+1hour`, `16:00`, `tomorrow`, `2026-11-21T06:25`; local unless said."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from dlsched.client.submission.durations import duration
from dlsched.core.errors import BadInput, shorten

_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?", re.ASCII)
_COUNT = re.compile(r"(\d{1,12}) *(seconds?|secs?|minutes?|mins?|hours?|days?|weeks?)", re.ASCII)
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
DAYTIMES = {"midnight": (0, 0), "noon": (12, 0), "teatime": (16, 0)}
_LATEST = datetime(9000, 1, 1, tzinfo=UTC).timestamp()


def refuse_past(what: str, text: str, at: float, *, now: datetime) -> None:
    """Refuse a point in time that does not lie ahead.

    Raises:
        BadInput: it has passed.
    """
    if at <= now.timestamp():
        raise BadInput(f"{what}: {shorten(text)} has passed")


def moment(what: str, text: str, *, now: datetime) -> float:
    """Return seconds since the epoch.

    Args:
        what: names the option in the error.
        text: `now[+DURATION]`, `HH:MM[:SS]` (today, else tomorrow), `today`, `tomorrow`, `noon`,
            `midnight`, `teatime`, or ISO 8601 with or without an offset. A bare number after
            `now+` is seconds, as in Slurm.
        now: with its zone, in which times without one are read.

    Raises:
        BadInput: it is none of them, or there is no such day.
    """
    word = text.strip().lower()
    try:
        found = _found(what, word, now)
    except (ValueError, OverflowError):
        found = None
    if found is None:
        raise BadInput(
            f"{what}: {shorten(text)!r} is not a time "
            "(now+1hour, 16:00, tomorrow or 2026-11-21T06:25)"
        )
    if not 0 <= found <= _LATEST:
        raise BadInput(f"{what}: {shorten(text)} is out of bounds")
    return found


def _found(what: str, word: str, now: datetime) -> float | None:
    if word.startswith("now"):
        rest = word.removeprefix("now").strip()
        if not rest:
            return now.timestamp()
        if not rest.startswith("+"):
            return None
        return now.timestamp() + _after(what, rest[1:].strip())
    if word in {"today", "tomorrow"}:
        # today is now: a job may begin at once
        return now.timestamp() if word == "today" else _at(now + timedelta(days=1), 0, 0, 0)
    clock = _CLOCK.fullmatch(word)
    if clock or word in DAYTIMES:
        hour, minute = (int(clock[1]), int(clock[2])) if clock else DAYTIMES[word]
        second = int(clock[3] or 0) if clock else 0
        at = _at(now, hour, minute, second)
        return at if at > now.timestamp() else _at(now + timedelta(days=1), hour, minute, second)
    stamp = datetime.fromisoformat(word.upper())
    return (stamp if stamp.tzinfo else stamp.replace(tzinfo=now.tzinfo)).timestamp()


def _after(what: str, word: str) -> float:
    counted = _COUNT.fullmatch(word)
    if counted:
        return float(int(counted[1]) * _UNITS[counted[2][0]])
    return duration(what, word, bare="seconds")


def _at(day: datetime, hour: int, minute: int, second: int) -> float:
    return day.replace(hour=hour, minute=minute, second=second, microsecond=0).timestamp()
