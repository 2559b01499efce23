"""Points in time that lie behind: `2h` is two hours ago, `16:00` the last one."""

from __future__ import annotations

from datetime import datetime

from dlsched.client.submission.durations import duration
from dlsched.client.submission.moments import moment

__all__ = ["moment_or_ago"]

DAY_S = 86_400.0


def moment_or_ago(what: str, text: str) -> float:
    """Return seconds since the epoch.

    Raises:
        BadInput: neither a time nor a duration with a unit.
    """
    now = datetime.now().astimezone()
    word = text.strip().lower().removesuffix("ago").strip()
    if word[-1:] in set("wdhms") and word[:1].isdigit():
        return now.timestamp() - duration(what, word)
    at = moment(what, text, now=now)
    is_clock = ":" in word and "-" not in word
    return at - DAY_S if at > now.timestamp() and is_clock else at
