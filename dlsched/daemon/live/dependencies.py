"""Whether the dependencies of a pending job hold, by what is known of the jobs that they name.

The rules are Slurm's: `after` begins with a start (or cancel), `afterok` wants exit 0, `afterany`
an end, `afternotok` a failure, `aftercorr` the same task of another array, `singleton` no earlier
job of the same name and user. Conditions are joined by "and", or by "or" up to one whose `or_next`
is false.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum

from dlsched.db.reading.queries import StoredJob
from dlsched.db.records import Dependency, JobSpec
from dlsched.protocol.ledger import JobStatus
from dlsched.protocol.messages import JobId


class Verdict(Enum):
    """What a dependency says now."""

    HOLDS = "holds"
    WAITS = "waits"
    NEVER = "never"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOutcome:
    """What is known of a job that others depend on; times are seconds of the policy's clock."""

    started_at: float | None = None
    ended_at: float | None = None
    succeeded: bool = False
    elements: tuple[JobId, ...] = ()  # of its array, when it is an array's first element


UNKNOWN = JobOutcome(ended_at=float("-inf"))  # not known any more: ended long ago, without success


def outcome_of(stored: StoredJob) -> JobOutcome:
    """The outcome of an ended job, as the database knows it."""
    spec = stored.spec
    return JobOutcome(
        started_at=stored.facts.first_started_at,
        ended_at=stored.facts.ended_at,
        succeeded=stored.job.status is JobStatus.COMPLETED,
        elements=() if spec is None else elements_of(stored.job.job, spec),
    )


def elements_of(job: JobId, spec: JobSpec) -> tuple[JobId, ...]:
    """The jobs of an array, when a job is its first element; their ids are consecutive."""
    if spec.array is None or spec.index:
        return ()
    return tuple(JobId(job + k) for k in range(len(spec.array.tasks)))


def judge_dependencies(
    spec: JobSpec,
    now: float,
    outcome_of_job: Callable[[JobId], JobOutcome | None],
    has_earlier_namesake: Callable[[], bool],
) -> tuple[Verdict, str, float]:
    """Judge a job's dependencies.

    Args:
        spec: of the job.
        now: seconds of the policy's clock.
        outcome_of_job: returns what is known of another job; None when nothing is.
        has_earlier_namesake: returns whether an earlier job of the same name and user is live.

    Returns:
        the verdict, the reason when they do not hold, and the moment to judge again although
        nothing else changes (after a delay); infinite when there is none.
    """
    again = float("inf")
    whys: list[str] = []
    group: list[tuple[Verdict, str]] = []
    for number, dependency in enumerate(spec.body.dependencies):
        if dependency.kind == "singleton":
            verdict = Verdict.WAITS if has_earlier_namesake() else Verdict.HOLDS
            due = float("inf")
        else:
            verdict, due = _judge(dependency, spec, now, outcome_of_job)
        again = min(again, due)
        group.append((verdict, _text(dependency)))
        last = number + 1 == len(spec.body.dependencies)
        if dependency.or_next and not last:
            continue
        verdicts = [found for found, _ in group]
        if Verdict.HOLDS not in verdicts:
            text = " or ".join(each for _, each in group)
            if Verdict.WAITS not in verdicts:
                return Verdict.NEVER, f"DependencyNeverSatisfied: {text}", float("inf")
            whys.append(text)
        group = []
    if whys:
        return Verdict.WAITS, f"Dependency: {', '.join(whys)}", again
    return Verdict.HOLDS, "", float("inf")


def _text(dependency: Dependency) -> str:
    if dependency.kind == "singleton":
        return "singleton"
    delay = f"+{dependency.delay_s:g}s" if dependency.delay_s else ""
    return f"{dependency.kind}:{dependency.job}{delay}"


def _judge(
    dependency: Dependency,
    spec: JobSpec,
    now: float,
    outcome_of_job: Callable[[JobId], JobOutcome | None],
) -> tuple[Verdict, float]:
    first = outcome_of_job(dependency.job) or UNKNOWN
    if dependency.kind == "aftercorr" and first.elements:
        if spec.index >= len(first.elements):
            return Verdict.NEVER, float("inf")
        outcomes = [outcome_of_job(first.elements[spec.index]) or UNKNOWN]
    elif first.elements:
        outcomes = [outcome_of_job(element) or UNKNOWN for element in first.elements]
    else:
        outcomes = [first]
    return _of_all(dependency, outcomes, now)


def _of_all(
    dependency: Dependency, outcomes: Iterable[JobOutcome], now: float
) -> tuple[Verdict, float]:
    outcomes = list(outcomes)
    if dependency.kind == "after":
        since = [
            outcome.started_at if outcome.started_at is not None else outcome.ended_at
            for outcome in outcomes
        ]
        known = [moment for moment in since if moment is not None]
        if len(known) < len(since):
            return Verdict.WAITS, float("inf")
        due = max(known) + dependency.delay_s
        return (Verdict.HOLDS, float("inf")) if now >= due else (Verdict.WAITS, due)
    good = [outcome.succeeded for outcome in outcomes if outcome.ended_at is not None]
    wants_success = dependency.kind in ("afterok", "aftercorr")
    if wants_success and not all(good):
        return Verdict.NEVER, float("inf")
    if len(good) < len(outcomes):
        return Verdict.WAITS, float("inf")
    if dependency.kind == "afternotok" and all(good):
        return Verdict.NEVER, float("inf")
    ends = [outcome.ended_at for outcome in outcomes if outcome.ended_at is not None]
    due = max(ends) + dependency.delay_s
    return (Verdict.HOLDS, float("inf")) if now >= due else (Verdict.WAITS, due)
