"""Predicted moments and deadlines as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlsched.cli.output.times import clock_text

if TYPE_CHECKING:
    from dlsched.rpc.v1.control_pb2 import DeadlineOutlook, PredictedMoment


def range_text(moment: PredictedMoment, now: float) -> str:
    """The interval of a predicted moment: `06:40 to 07:10`; `-` where it is not known."""
    if not moment.HasField("at") or not moment.HasField("p10"):
        return "-"
    return interval_text(moment.p10, moment.p90 if moment.HasField("p90") else None, now)


def interval_text(p10: float, p90: float | None, now: float) -> str:
    """An interval: `06:40 to 07:10`; without an end, `06:40 to never`."""
    return f"{clock_text(p10, now)} to {'never' if p90 is None else clock_text(p90, now)}"


def deadline_text(outlook: DeadlineOutlook, now: float) -> str:
    """Whether a deadline can be kept, and else the earliest one that can."""
    begin = f"deadline {clock_text(outlook.deadline_at, now)}: {outlook.verdict}"
    text = f"{begin}, kept in {outlook.on_time:.0%} of the cases"
    if outlook.verdict == "ok":
        return text
    text += f"; predicted end ~{clock_text(outlook.end.at, now)}" if outlook.end.at else ""
    if not outlook.HasField("earliest_at"):
        return text
    return (
        f"{text}; the earliest deadline that can be kept is {clock_text(outlook.earliest_at, now)}"
    )
