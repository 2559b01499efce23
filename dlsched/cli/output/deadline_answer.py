"""What is said of a deadline under several alternatives, in the same words live and in a replay."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dlsched.core.errors import plural

NAMED = 10  # jobs that a line names


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """One alternative; times are seconds, NaN for unknown.

    Attributes:
        title: what it is called.
        gpus: of the job.
        gpu_s: GPU time that it takes.
        is_sure: does it keep the deadline?
        latest_end: the later bound of its end.
        latest_submit: when it can be submitted at the latest and be as sure.
    """

    title: str
    gpus: int
    gpu_s: float
    is_sure: bool
    latest_end: float
    latest_submit: float


def deadline_text(
    asked: str, alternatives: Sequence[Kept], moment_text: Callable[[float], str]
) -> str:
    """Which alternative keeps the deadline at the least cost, or else which one could be kept.

    Args:
        asked: the deadline, as `deadline 09:12`.
        alternatives: as it is comes first.
        moment_text: a time, as `09:12` or `in 3 min`.
    """
    kept = [each for each in alternatives if each.is_sure]
    if kept:
        best = min(kept, key=lambda each: each.gpu_s)
        fewest = min(each.gpus for each in kept)
        text = (
            f"{asked}: kept at the least cost by: {best.title} ({best.gpu_s / 3600:.1f} "
            f"GPU-hours); the fewest GPUs that keep it: {fewest}"
        )
        later = [each for each in kept if not math.isnan(each.latest_submit)]
        if later:
            last = max(later, key=lambda each: each.latest_submit)
            at = moment_text(last.latest_submit)
            text += f"; the latest submit that keeps it is {at}: {last.title}"
        return text
    ends = [each for each in alternatives if not math.isnan(each.latest_end)]
    if not ends:
        return f"{asked}: whether it can be kept is not predicted"
    first = min(ends, key=lambda each: each.latest_end)
    return (
        f"{asked}: no alternative is sure to keep it; the earliest that can be kept is "
        f"{moment_text(first.latest_end)}: {first.title}"
    )


def must_move_text(jobs: Sequence[str]) -> str:
    """Say which jobs ahead would have to move."""
    shown = ", ".join(jobs[:NAMED])
    more = f" and {len(jobs) - NAMED} more" if len(jobs) > NAMED else ""
    ahead = f"{plural(len(jobs), 'job')} ahead: {shown}{more}"
    return f"as it is, the deadline would be kept without {ahead}"
