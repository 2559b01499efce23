"""What the end of a run means for its job."""

from __future__ import annotations

from dlsched.protocol.ledger.rows import (
    Cause,
    Job,
    Member,
    Run,
)
from dlsched.protocol.messages import (
    ExitReason,
    ExitRecord,
    LaunchMode,
    StopReason,
)

PREEMPTIONS = frozenset({StopReason.PREEMPT, StopReason.MIGRATE, StopReason.RESIZE})


INFRASTRUCTURE = frozenset({ExitReason.NOT_STARTED, ExitReason.NODE_LOST})


GPU_UNHEALTHY = "unhealthy "  # how a member's presumption begins when its GPU is to blame


def _ends_instead(run: Run, job: Job, why: str) -> str:
    """How a job that must not begin anew ends with a run that is to be repeated; else empty.

    What its owner asks for, or never executed anything, repeats nothing.
    """
    records = [member.exit for member in run.members.values()]
    executed = run.released and any(
        record is None or record.reason is not ExitReason.NOT_STARTED for record in records
    )
    if job.request.requeue or not executed or run.stop in (StopReason.REQUEUE, StopReason.ABORT):
        return ""
    if any(_lost_its_gpu(member) for member in run.members.values()):
        return f"GpuFail({why})"
    lost = any(record is None or record.reason in INFRASTRUCTURE for record in records)
    return "Preempted" if run.stop in PREEMPTIONS and not lost else f"NodeFail({why})"


def succeeded(record: ExitRecord) -> bool:
    """Whether a process ended with 0 by itself."""
    return record.reason is ExitReason.EXITED and record.code == 0


def judge(run: Run, job: Job) -> tuple[Cause, str, ExitRecord | None]:
    """What the end of a run means for its job, why, and the record that decides.

    What would begin anew ends instead when the job was submitted so.
    """
    cause, why, record = _verdict(run, job)
    if cause is Cause.REQUEUED and (ends := _ends_instead(run, job, why)):
        told = next((m.exit for m in run.members.values() if m.exit is not None), None)
        return Cause.LOST, ends, told
    return cause, why, record


def _verdict(  # noqa: PLR0911  # one case an end
    run: Run, job: Job
) -> tuple[Cause, str, ExitRecord | None]:
    """What a run's records say.

    0 is always success. 143, or a signal, under an outstanding stop request is that request's
    success. What the infrastructure did is never charged to the user; a lost keeper is, by the
    job's retry rule, because the job's own memory use is its commonest cause.
    """
    members = list(run.members.values())
    first = members[:1] if job.request.mode is LaunchMode.BATCH else members
    records = [m.exit for m in first if m.exit is not None]
    if len(records) == len(first) and all(map(succeeded, records)):
        return Cause.COMPLETED, "exit 0", records[0]
    if run.stop is StopReason.CANCEL:
        return Cause.CANCELLED, "cancelled", records[0] if records else None
    if run.stop is StopReason.REQUEUE:
        return Cause.REQUEUED, "requeued", None
    for record in records:
        if record.reason is ExitReason.TIME_LIMIT or record.stop is StopReason.TIME_LIMIT:
            return Cause.TIMED_OUT, "time limit", record
    lost = [
        m for m in members if m.exit is None or m.exit.reason in INFRASTRUCTURE or _lost_its_gpu(m)
    ]
    if not lost:
        for member in members:
            if member.exit is not None and is_own_failure(member.exit):
                return Cause.FAILED, _told(member.exit), member.exit
    for member in lost:
        if _lost_its_gpu(member):
            return Cause.REQUEUED, f"{member.node}: {member.presumed}", None
        detail = member.exit.detail if member.exit else member.presumed
        why = member.exit.reason.value if member.exit else "lost"
        return Cause.REQUEUED, f"{member.node}: {why} {detail}".rstrip(), None
    return Cause.REQUEUED, f"stopped: {run.stop.value if run.stop else 'signal'}", None


def _lost_its_gpu(member: Member) -> bool:
    """Whether a member failed while its node said that one of its GPUs was no good."""
    return (
        member.exit is not None
        and member.presumed.startswith(GPU_UNHEALTHY)
        and is_own_failure(member.exit)
    )


def is_own_failure(record: ExitRecord) -> bool:
    """Whether an end is the job's own doing: nobody else stopped it."""
    if record.reason in (ExitReason.OUT_OF_MEMORY, ExitReason.KEEPER_LOST):
        return True
    if record.reason is ExitReason.SIGNALLED:
        return record.stop is None
    if record.reason is ExitReason.EXITED:
        return record.code != 0 and not (record.code == 143 and record.stop is not None)
    return False


def _told(record: ExitRecord) -> str:
    if record.reason is ExitReason.SIGNALLED:
        return f"signal {record.signal}"
    if record.reason is ExitReason.KEEPER_LOST:
        return f"keeper-lost {record.detail}".rstrip()
    return f"exit {record.code}" if record.reason is ExitReason.EXITED else record.reason.value
