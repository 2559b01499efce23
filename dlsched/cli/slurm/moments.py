"""The times of `sacct -S`: Slurm's grammar, for times that have passed."""

from __future__ import annotations

import re
import time
from datetime import datetime

from dlsched.cli.output.times import moment_or_ago
from dlsched.core.errors import BadInput, shorten

_DAY = re.compile(
    r"(?:(?P<month>\d{1,2})[/.](?P<day>\d{1,2})(?:[/.](?P<year>\d{2}|\d{4}))?"
    r"|(?P<digits>\d{4})(?P<short>\d{2})?)"
    r"(?:[-T](?P<clock>\d{1,2}:\d{2}(?::\d{2})?))?",
    re.ASCII,
)


def past_moment(what: str, text: str) -> float:
    """Read a time: `11/29`, `1129`, `11/29/26-14:00`, `now-2hours`, `14:00`, `2026-11-29T14:00`.

    Returns:
        Seconds since the epoch.

    Raises:
        BadInput: it is none of them, or there is no such day; `what` names the option.
    """
    word = text.strip()
    if word.lower().startswith("now-"):
        return moment_or_ago(what, _ago(word[4:]))
    if word.lower() == "now":
        return time.time()
    day = _DAY.fullmatch(word)
    if day is None:
        return moment_or_ago(what, word)
    month = int(day["month"] or day["digits"][:2])
    number = int(day["day"] or day["digits"][2:])
    year = int(day["year"] or day["short"] or time.localtime().tm_year)
    hour, minute, second = (int(part) for part in f"{day['clock'] or '0:0'}:0".split(":")[:3])
    try:
        at = datetime(year + 2000 * (year < 100), month, number, hour, minute, second)
        return at.timestamp()
    except ValueError:
        raise BadInput(f"{what}: {shorten(word)!r}: there is no such day or time") from None


def _ago(text: str) -> str:
    """`2hours` as `2h`; a bare number is seconds, as in Slurm."""
    digits = text[: len(text) - len(text.lstrip("0123456789"))]
    unit = text[len(digits) :].strip().lower()[:1] or "s"
    return f"{digits}{unit}"
