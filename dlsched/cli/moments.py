"""Times as people read them (local, with the offset) and as programs do (RFC 3339, UTC)."""

from __future__ import annotations

from datetime import UTC, datetime

__all__ = ["clock_text", "local_text", "utc_text"]


def local_text(at: float | None) -> str:
    """`2026-11-21 06:25:40+01:00`, or `-`."""
    if at is None:
        return "-"
    return datetime.fromtimestamp(at).astimezone().isoformat(sep=" ", timespec="seconds")


def clock_text(at: float, now: float) -> str:
    """`06:47` today, with the day on others."""
    when, today = datetime.fromtimestamp(at), datetime.fromtimestamp(now)
    return f"{when:%H:%M}" if when.date() == today.date() else f"{when:%m-%d %H:%M}"


def utc_text(at: float | None) -> str | None:
    """`2026-11-21T05:25:40.125Z`, or None."""
    if at is None:
        return None
    text = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
    return text.replace(".000+00:00", "+00:00").replace("+00:00", "Z")
