"""Whom a pending job waits for: other jobs, its array's limit, and what came of jobs that ended.

The rules are Slurm's: `after` begins with a start (or cancel), `afterok` wants exit 0, `afterany`
an end, `afternotok` a failure, `aftercorr` the same task of another array, `singleton` no earlier
job of the same name and user. Conditions are joined by "and", or by "or" up to one whose `or_next`
is false.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum

from dlsched.db.records import Dependency, JobSpec
from dlsched.protocol.messages import JobId

__all__ = ["Fate", "Verdict", "judge_dependencies"]


class Verdict(Enum):
    """What a condition says now."""

    HOLDS = "holds"
    WAITS = "waits"
    NEVER = "never"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """What is known of a job that others wait for; times are seconds of the policy's clock."""

    started_at: float | None = None
    ended_at: float | None = None
    succeeded: bool = False
    elements: tuple[JobId, ...] = ()  # of its array, when it is an array's first element


UNKNOWN = Fate(ended_at=float("-inf"))  # no longer known: ended long ago, and not well


def judge_dependencies(
    spec: JobSpec,
    now: float,
    fate_of: Callable[[JobId], Fate | None],
    earlier_namesakes: Callable[[], bool],
) -> tuple[Verdict, str, float]:
    """Whether a job's dependencies hold.

    Args:
        spec: the job.
        now: seconds of the policy's clock.
        fate_of: what is known of another job; None when nothing is.
        earlier_namesakes: is an earlier job of its name and user live?

    Returns:
        the verdict, the reason when it does not hold, and when to look again although nothing else
        changes (a delay), infinite for never.
    """
    again = float("inf")
    whys: list[str] = []
    group: list[tuple[Verdict, str]] = []
    for number, dependency in enumerate(spec.body.dependencies):
        if dependency.kind == "singleton":
            verdict = Verdict.WAITS if earlier_namesakes() else Verdict.HOLDS
            due = float("inf")
        else:
            verdict, due = _judge(dependency, spec, now, fate_of)
        again = min(again, due)
        group.append((verdict, _told(dependency)))
        last = number + 1 == len(spec.body.dependencies)
        if dependency.or_next and not last:
            continue
        verdicts = [found for found, _ in group]
        if Verdict.HOLDS not in verdicts:
            text = " or ".join(told for _, told in group)
            if Verdict.WAITS not in verdicts:
                return Verdict.NEVER, f"DependencyNeverSatisfied: {text}", float("inf")
            whys.append(text)
        group = []
    if whys:
        return Verdict.WAITS, f"Dependency: {', '.join(whys)}", again
    return Verdict.HOLDS, "", float("inf")


def _told(dependency: Dependency) -> str:
    if dependency.kind == "singleton":
        return "singleton"
    delay = f"+{dependency.delay_s:g}s" if dependency.delay_s else ""
    return f"{dependency.kind}:{dependency.job}{delay}"


def _judge(
    dependency: Dependency,
    spec: JobSpec,
    now: float,
    fate_of: Callable[[JobId], Fate | None],
) -> tuple[Verdict, float]:
    first = fate_of(dependency.job) or UNKNOWN
    if dependency.kind == "aftercorr" and first.elements:
        if spec.index >= len(first.elements):
            return Verdict.NEVER, float("inf")
        fates = [fate_of(first.elements[spec.index]) or UNKNOWN]
    elif first.elements:
        fates = [fate_of(element) or UNKNOWN for element in first.elements]
    else:
        fates = [first]
    return _of_all(dependency, fates, now)


def _of_all(dependency: Dependency, fates: Iterable[Fate], now: float) -> tuple[Verdict, float]:
    fates = list(fates)
    if dependency.kind == "after":
        since = [
            fate.started_at if fate.started_at is not None else fate.ended_at for fate in fates
        ]
        known = [moment for moment in since if moment is not None]
        if len(known) < len(since):
            return Verdict.WAITS, float("inf")
        due = max(known) + dependency.delay_s
        return (Verdict.HOLDS, float("inf")) if now >= due else (Verdict.WAITS, due)
    good = [fate.succeeded for fate in fates if fate.ended_at is not None]
    wants_success = dependency.kind in ("afterok", "aftercorr")
    if wants_success and not all(good):
        return Verdict.NEVER, float("inf")
    if len(good) < len(fates):
        return Verdict.WAITS, float("inf")
    if dependency.kind == "afternotok" and all(good):
        return Verdict.NEVER, float("inf")
    ends = [fate.ended_at for fate in fates if fate.ended_at is not None]
    due = max(ends) + dependency.delay_s
    return (Verdict.HOLDS, float("inf")) if now >= due else (Verdict.WAITS, due)
