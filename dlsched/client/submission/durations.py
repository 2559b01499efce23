"""Durations as Slurm writes them (`90`, `5:00`, `2-12`) and as people do (`1h30m`).

A bare number is minutes for time limits, as in Slurm, and seconds where the option says so.
"""

from __future__ import annotations

import re
from typing import Literal

from dlsched.core.errors import BadInput, shorten
from dlsched.core.sums import ordered_sum

LONGEST_S = 10_000 * 86_400.0  # seconds; longer is taken for a mistake
_UNITS = {"w": 604_800.0, "d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0}
_WORDS = re.compile(r"(?:\d{1,12}(?:\.\d{1,6})?[wdhms])+", re.ASCII)
_WORD = re.compile(r"(\d+(?:\.\d+)?)([wdhms])", re.ASCII)
_NUMBER = re.compile(r"\d{1,12}(?:\.\d{1,6})?", re.ASCII)
_NO_LIMIT = {"unlimited", "infinite", "none", "-1", "0"}


def duration(what: str, text: str, *, bare: Literal["minutes", "seconds"] = "minutes") -> float:
    """Return seconds, of `N`, `M:SS`, `H:MM:SS`, `D-H[:MM[:SS]]` or `1d2h3m4s`.

    Raises:
        BadInput: it is none of them, or longer than `LONGEST_S`.
    """
    word = text.strip().lower()
    seconds = _seconds(word, bare)
    if seconds is None:
        raise BadInput(
            f"{what}: {shorten(text)!r} is not a duration (90, 1:30:00, 2-12:00 or 1h30m)"
        )
    if seconds > LONGEST_S:
        raise BadInput(f"{what}: {shorten(text)} is too long (at most {LONGEST_S / 86_400:.0f}d)")
    return seconds


def time_limit(what: str, text: str) -> float | None:
    """Like `duration`; None is no limit: `unlimited`, `infinite` and, as in Slurm, 0."""
    return None if text.strip().lower() in _NO_LIMIT else duration(what, text)


def duration_text(seconds: float) -> str:
    """Write `[D-][H:]MM:SS`: minutes and seconds at least, as all listings do."""
    minutes, second = divmod(max(0, int(seconds)), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    if days:
        return f"{days}-{hour:02}:{minute:02}:{second:02}"
    return f"{hour}:{minute:02}:{second:02}" if hour else f"{minute}:{second:02}"


def _seconds(word: str, bare: str) -> float | None:
    if _NUMBER.fullmatch(word):
        return float(word) * (60.0 if bare == "minutes" else 1.0)
    if _WORDS.fullmatch(word):
        return _of_units(_WORD.findall(word))
    days, dash, clock = word.rpartition("-")
    parts = [*([days] if dash else []), *clock.split(":")]
    if not all(part.isascii() and part.isdigit() and len(part) <= 12 for part in parts):
        return None
    return _of_clock([float(part) for part in parts], has_days=bool(dash))


def _of_clock(numbers: list[float], *, has_days: bool) -> float | None:
    """`D-H[:MM[:SS]]` or `[H:]MM:SS`; only the first number may be any."""
    if has_days:
        if not 2 <= len(numbers) <= 4:
            return None
        days, hours, minutes, seconds = [*numbers, 0.0, 0.0][:4]
        if hours >= 24:
            return None
        hours += 24 * days
    else:
        if not 2 <= len(numbers) <= 3:
            return None
        hours, minutes, seconds = [0.0, *numbers][-3:]
    if seconds >= 60 or (minutes >= 60 and (has_days or len(numbers) == 3)):
        return None
    return hours * 3_600 + minutes * 60 + seconds


def _of_units(pairs: list[tuple[str, str]]) -> float | None:
    """Each unit once, the larger first: `90m1h` is more likely a mistake than a wish."""
    order = [list(_UNITS).index(unit) for _, unit in pairs]
    if order != sorted(set(order)):
        return None
    return ordered_sum(float(number) * _UNITS[unit] for number, unit in pairs)
