"""Deadlines, their kinds and reward curves of a submission: what follows from what is said."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dlsched.core.deadlines import STEPS_FORM, WORTH, deadline_steps
from dlsched.core.errors import BadInput
from dlsched.core.rewards import RewardCurve
from dlsched.db.records import JobBody, JobSpec
from dlsched.jobs.field import Values
from dlsched.policies.registry import find


def settle_deadline(values: Values, now: float) -> None:
    """Fill in what a reward curve says of deadline, value and kind, where the job does not.

    Args:
        values: of the job's fields; change.
        now: the time of the submit, in seconds since the epoch.

    Raises:
        BadInput: a deadline that lies behind, or a kind of no deadline.
    """
    if values["sla"]:
        curve = RewardCurve.of_text(values["sla"])
        if curve.deadline is not None:
            kind = "strict" if curve.is_strict else "soft"
            for name, found in (
                ("deadline_at", now + float(curve.deadline)),
                ("deadline_value", max(float(curve.at(curve.deadline)), 0.0)),
                ("deadline_kind", kind),
            ):
                values[name] = found if values[name] is None else values[name]
    check_kind(values["deadline_kind"], values["deadline_at"])
    refuse_past(values["deadline_at"], now)


def check_kind(kind: str | None, deadline: float | None) -> None:
    """Refuse a kind of a deadline that there is not.

    Raises:
        BadInput: it is strict or soft, and there is no deadline.
    """
    if deadline is None and kind in ("strict", "soft"):
        raise BadInput(f"deadline kind: {kind}, and the job has no deadline")


def refuse_past(deadline: float | None, now: float) -> None:
    """Refuse a deadline, in seconds since the epoch, that does not lie ahead.

    Raises:
        BadInput: it has passed.
    """
    if deadline is not None and deadline <= now:
        raise BadInput("deadline: it has passed already")


def check_steps(columns: Mapping[str, str]) -> None:
    """Refuse further columns about deadlines that policies could not read.

    Raises:
        BadInput: `sla` has an option of its own, or deadlines of falling value are unclear.
    """
    if "sla" in columns:
        raise BadInput("column sla: say it with --sla")
    if "deadline_steps" in columns:
        try:
            deadline_steps(columns["deadline_steps"])
        except ValueError:
            raise BadInput(f"column deadline_steps is not {STEPS_FORM}") from None


def curve_text(spec: JobSpec) -> str:
    """What a job's end is worth, as a reward curve; empty where it says nothing."""
    body = spec.body
    if body.sla or body.deadline_at is None or body.deadline_kind == "best-effort":
        return body.sla
    worth = WORTH if body.deadline_value is None else body.deadline_value
    due = body.deadline_at - spec.submitted_at
    return RewardCurve(((0.0, worth), (due, worth), (due, 0.0))).to_text()


def unplanned(bodies: Iterable[JobBody], policy: str) -> list[str]:
    """Say that a policy does not know of the deadlines of these jobs."""
    if not any(body.deadline_at is not None for body in bodies):
        return []
    try:
        knows = getattr(find("scheduling", policy), "knows_deadlines", False)
    except BadInput:  # a package that is gone; rounds say so, and the jobs are submitted already
        return []
    if knows:
        return []
    return [f"policy {policy} does not know of deadlines, and does not plan for them"]
