"""Times as text: local with the offset for people, RFC 3339 in UTC for programs."""

from __future__ import annotations

from datetime import UTC, datetime

DAY_S = 86_400.0


def local_text(at: float | None) -> str:
    """Return `2026-11-21 06:25:40+01:00`, or `-` for None."""
    if at is None:
        return "-"
    return datetime.fromtimestamp(at).astimezone().isoformat(sep=" ", timespec="seconds")


def column_text(at: float | None) -> str:
    """Return `2026-11-21 06:25:40`, local, for a column; `-` for None."""
    return "-" if at is None else f"{datetime.fromtimestamp(at):%Y-%m-%d %H:%M:%S}"


def clock_text(at: float, now: float) -> str:
    """Return `06:47` for a time of today, else with month and day."""
    when, today = datetime.fromtimestamp(at), datetime.fromtimestamp(now)
    return f"{when:%H:%M}" if when.date() == today.date() else f"{when:%m-%d %H:%M}"


def utc_text(at: float | None) -> str | None:
    """Return `2026-11-21T05:25:40.125Z`, or None for None."""
    if at is None:
        return None
    text = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
    return text.replace(".000+00:00", "+00:00").replace("+00:00", "Z")


def moment_or_ago(what: str, text: str) -> float:
    """Read a time in the past: `2h` is two hours ago, `16:00` the last one, `today` its midnight.

    Returns:
        Seconds since the epoch.

    Raises:
        BadInput: neither a time nor a duration with a unit; `what` names the option.
    """
    from dlsched.client.submission.durations import duration  # noqa: PLC0415
    from dlsched.client.submission.moments import DAYTIMES, moment  # noqa: PLC0415

    now = datetime.now().astimezone()
    word = text.strip().lower().removesuffix("ago").strip()
    if word[-1:] in set("wdhms") and word[:1].isdigit():
        return now.timestamp() - duration(what, word)
    word = "midnight" if word == "today" else word
    at = moment(what, word, now=now)
    is_clock = word in DAYTIMES or (":" in word and "-" not in word)
    return at - DAY_S if at > now.timestamp() and is_clock else at
