"""The verdict on a run that has ended: what its end means for its job.

The rule, with its reasons and a table of cases, is in `docs/how-runs-end.md`; the tests read the
cases from there.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from enum import Enum
from signal import SIGTERM
from types import MappingProxyType

from dlsched.protocol import messages as m
from dlsched.protocol.ledger.rows import (
    Cause,
    Job,
    JobStatus,
    Member,
    Run,
)

PREEMPTIONS = frozenset({m.StopReason.PREEMPT, m.StopReason.MIGRATE, m.StopReason.RESIZE})
INFRASTRUCTURE = frozenset(
    {m.ExitReason.NOT_STARTED, m.ExitReason.NODE_LOST, m.ExitReason.KEEPER_LOST}
)
BY_ITSELF = frozenset({m.ExitReason.EXITED, m.ExitReason.SIGNALLED})
_REASONS = "|".join(reason.value for reason in m.ExitReason)
_HOW_IT_ENDED = re.compile(rf"\b(?:exit \d+|signal \d+|{_REASONS})\b")
_END = re.compile(
    r"(?:\brank (?P<rank>\d+)(?: on \S+)?: )?\b(?P<code>(?:exit|signal) \d+)(?P<words>: .*)?\Z"
)
_OF_A_RANK = re.compile(r"rank (\d+) on ")
_RANK = re.compile(r"(rank \d+)(?:: |\Z)")  # which one failed, as its node says it first
_LONGEST = 300  # characters of what a node says
SETTLED_S = 86_400.0  # a run that has executed for longer begins the count of GPU faults anew
GPU_UNHEALTHY = "unhealthy "  # the start of a member's `presumed` when its GPU has failed
STOPPED: Mapping[m.StopReason, str] = MappingProxyType(  # in words
    {
        m.StopReason.PREEMPT: "preempted",
        m.StopReason.MIGRATE: "moved",
        m.StopReason.RESIZE: "resized",
        m.StopReason.REQUEUE: "on request",
        m.StopReason.OVER: "its node lease has ended",
        m.StopReason.ABORT: "the gang could not start",
        m.StopReason.TARGET: "target reached",
    }
)
LONGEST_PAUSE_S = 60.0
TERMINATED = 128 + SIGTERM  # the exit code of a program that leaves because of TERM


class Meaning(Enum):
    """What the end of one node's part of a run says about the job."""

    DONE = "done"  # it ended with 0, and nothing says that it stopped early
    STOPPED = "stopped"  # it ended because it was asked to
    FAILED = "failed"  # of itself
    LOST = "lost"  # the infrastructure has lost it, or has not started it


def meaning(record: m.ExitRecord | None) -> Meaning:
    """What one node's exit record means; without a record the part is lost.

    Whatever the training has told or handed in outweighs its exit code. After a stop was asked, no
    exit code or signal counts as a failure.
    """
    if record is None or record.reason in INFRASTRUCTURE or record.start_fault is not None:
        return Meaning.LOST
    if record.reason is m.ExitReason.EXITED and record.code == 0:
        if record.told is m.Told.FINISHED:
            return Meaning.DONE
        stopped = has_handed_in(record) or record.term_s is not None
        return Meaning.STOPPED if stopped else Meaning.DONE
    if has_handed_in(record):
        return Meaning.STOPPED
    if record.reason is m.ExitReason.OUT_OF_MEMORY:
        return Meaning.FAILED
    asked = record.stop is not None or record.reason is m.ExitReason.TIME_LIMIT
    return Meaning.STOPPED if asked else Meaning.FAILED


def is_repeated(run: Run, job: Job) -> bool:
    """Whether the end of a run is a failure that uses up one of its job's retries."""
    return job.failures < job.terms.retries and judge(run, job)[0] is Cause.FAILED


def may_repeat_in_place(run: Run, job: Job) -> bool:
    """Whether a run that is over may be repeated at once on its own GPUs.

    It has failed by itself after it has executed for a while, and nothing else was asked of it.
    """
    records = [member.exit for member in run.members.values()]
    return (
        run.stop in (None, m.StopReason.PEER)
        and not run.suspended
        and is_repeated(run, job)
        and not any(each is not None and each.leaves_a_process for each in records)
        and not failed_too_soon(run, job.failures + 1)
    )


def was_repeated_in_place(run: Run, job: Job) -> bool:
    """Whether the next run of a job has repeated a run on its GPUs."""
    end = f", run {run.key.run + 1}"
    return any(f": {Cause.REPEATED.value} " in x and x.endswith(end) for x in job.story)


def failed_too_soon(run: Run, failures: int) -> bool:
    """Whether a run ended so soon that its job pauses before it starts again.

    `failures` are those of the job, with this one.
    """
    ran = (member.exit.ran_s for member in run.members.values() if member.exit is not None)
    return max(ran, default=0.0) < pause_after(failures)


def pause_of_retry(run: Run, job: Job) -> float:
    """For how long a pending job pauses, in seconds, after a run that has failed too soon."""
    is_retry = job.status is JobStatus.PENDING and judge(run, job)[0] is Cause.FAILED
    return pause_after(job.failures) if is_retry and failed_too_soon(run, job.failures) else 0.0


def pause_after(failures: int) -> float:
    """For how long a job pauses, in seconds, after so many failures or failed starts."""
    return min(2.0 ** min(failures - 1, 10), LONGEST_PAUSE_S)


def has_handed_in(record: m.ExitRecord) -> bool:
    """Whether its ranks agreed to stop, or handed in a checkpoint after the stop was asked."""
    return record.told in (m.Told.STOPPED, m.Told.HANDED_OVER) or record.checkpoint is not None


HANDS_OVER = (m.StopReason.RESIZE, m.StopReason.MIGRATE)  # stops at which a run may


def has_handed_over(run: Run) -> bool:
    """Whether the ranks of a run that is over have all given their state to the next run's."""
    return handed_over(run.stop, [each.exit for each in run.members.values()])


def handed_over(stop: m.StopReason | None, exits: Iterable[m.ExitRecord | None]) -> bool:
    """As `has_handed_over`, by why a run was stopped and how its members ended."""
    return stop in HANDS_OVER and all(
        each is not None and each.told is m.Told.HANDED_OVER for each in exits
    )


def gpu_failures_after(run: Run, job: Job) -> int:
    """How many runs of a job in a row have ended with a fault of a GPU, once a run is over.

    A run that a fault ended after it had executed for long is the first one of a new row: large
    jobs on many GPUs lose one now and then, and are not the cause of it.
    """
    if run.stop in (m.StopReason.REQUEUE, m.StopReason.CANCEL) or not _sick(run):
        return job.gpu_failures
    ran = (each.exit.ran_s for each in run.members.values() if each.exit is not None)
    return 1 if max(ran, default=0.0) > SETTLED_S else job.gpu_failures + 1


def _ends_instead(run: Run, job: Job, why: str) -> str:
    """How a job ends when its run would be repeated and must not be; empty: it is repeated.

    A run that its owner requeued, or that never executed, may always be repeated. A job whose runs
    lose GPU after GPU may be the cause, so their number is bounded.
    """
    most, lost = job.request.gpu_retries, gpu_failures_after(run, job)
    if most is not None and lost > max(most, job.gpu_failures):
        runs = f"{lost} runs in a row have" if lost > 1 else "its run has"
        return f"GpuFail({runs} lost a GPU, the last one: {_loss(_sick(run)[0])})"
    records = [member.exit for member in run.members.values()]
    executed = run.released and any(
        record is None or record.reason is not m.ExitReason.NOT_STARTED for record in records
    )
    if (
        job.request.requeue
        or not executed
        or run.stop in (m.StopReason.REQUEUE, m.StopReason.ABORT)
    ):
        return ""
    if any(_lost_its_gpu(member) for member in run.members.values()):
        return f"GpuFail({why})"
    lost = any(meaning(record) is Meaning.LOST for record in records)
    return "Preempted" if run.stop in PREEMPTIONS and not lost else f"NodeFail({why})"


def judge(run: Run, job: Job) -> tuple[Cause, str, m.ExitRecord | None]:
    """What the end of a run means for its job: the cause, the reason in words, and the record.

    A job without requeue ends where another one would start again.
    """
    cause, why, record = _verdict(run, job)
    if cause is Cause.REQUEUED and (ends := _ends_instead(run, job, why)):
        record = next((each.exit for each in run.members.values() if each.exit is not None), None)
        cause, why = Cause.LOST, ends
    return cause, why, record and _with_use_of_all(record, run)


def _with_use_of_all(record: m.ExitRecord, run: Run) -> m.ExitRecord:
    """The record with what all nodes of the run have used, and with its calls of `srun`."""
    every = [each.exit for each in run.members.values() if each.exit is not None]
    return replace(
        record,
        steps=_steps_of(every),
        cpu_s=math.fsum(each.cpu_s for each in every),
        peak_memory_bytes=max(each.peak_memory_bytes for each in every),
        script_cpu_s=math.fsum(each.script_cpu_s for each in every),
        script_peak_bytes=max(each.script_peak_bytes for each in every),
    )


def _steps_of(records: Iterable[m.ExitRecord]) -> tuple[m.StepRecord, ...]:
    """The calls of `srun` as the first node knows them, with what they have used on all nodes."""
    used: dict[int, list[m.StepRecord]] = {}
    for step in (step for record in records for step in record.steps):
        used.setdefault(step.number, []).append(step)
    return tuple(
        replace(
            step,
            cpu_s=math.fsum(each.cpu_s for each in shares),
            peak_memory_bytes=max(each.peak_memory_bytes for each in shares),
        )
        for shares in used.values()
        for step in shares
        if step.tasks
    )


def _verdict(  # noqa: PLR0911  # one case an end
    run: Run, job: Job
) -> tuple[Cause, str, m.ExitRecord | None]:
    """What a run's records mean for its job, by the first rule that applies.

    Failures of the infrastructure never count as the job's own; a lost keeper is one of its node.
    """
    members = list(run.members.values())
    first = members[:1] if job.request.mode is m.LaunchMode.BATCH else members
    if all(meaning(each.exit) is Meaning.DONE for each in first):
        return Cause.COMPLETED, "exit 0", first[0].exit
    every = [each.exit for each in members if each.exit is not None]
    if run.stop is m.StopReason.CANCEL:
        return Cause.CANCELLED, "cancelled", every[0] if every else None
    if run.stop is m.StopReason.REQUEUE:
        return Cause.REQUEUED, _in_detail(STOPPED[run.stop], every), None
    unknown = len(first) < len(members) and meaning(first[0].exit) is Meaning.LOST
    for record in [] if unknown else every:  # a node without a program has the same limit
        if m.ExitReason.TIME_LIMIT is record.reason or record.stop is m.StopReason.TIME_LIMIT:
            return Cause.TIMED_OUT, _in_detail("time limit", every, only_kept=True), record
    if lost := sorted(filter(_is_lost, members), key=_is_victim):
        return Cause.REQUEUED, _loss(lost[0]), None
    asked = _stop_of(run, every)
    failed = _failure(run, every)
    if failed is not None:
        return Cause.FAILED, in_words(failed), failed
    if asked is None:
        early = min((each for each in every if meaning(each) is Meaning.STOPPED), key=_order)
        unasked = "" if early.code or early.signal else ", which the scheduler did not ask for"
        return Cause.FAILED, in_words(early) + unasked, early
    why = _in_detail(STOPPED.get(asked, asked.value), every)
    if asked is m.StopReason.TARGET:  # the code of a program that TERM has ended means nothing
        return Cause.COMPLETED, why, None if every[0].code or every[0].signal else every[0]
    return Cause.REQUEUED, why, None


def _stop_of(run: Run, records: Iterable[m.ExitRecord]) -> m.StopReason | None:
    """Why the run was asked to stop; the end of another member is no such reason."""
    reasons = (run.stop, *(record.stop for record in records))
    return next((each for each in reasons if each not in (None, m.StopReason.PEER)), None)


def _failure(run: Run, records: list[m.ExitRecord]) -> m.ExitRecord | None:
    """The record of the job's own failure; None when there is none that counts.

    When one node was stopped, its ranks take those of other nodes with them, although TERM may not
    have arrived there. So a code or a signal is no failure after any node has been asked; it is
    none at all after the ranks have agreed to stop, or have handed in a checkpoint.
    """
    failures = [each for each in records if meaning(each) is Meaning.FAILED]
    if _stop_of(run, records) is not None:
        if any(map(has_handed_in, records)):
            return None
        if _stop_of(replace(run, stop=None), records) is not None:
            failures = [each for each in failures if each.reason not in BY_ITSELF]
    return min(failures, key=_order, default=None)


def _order(record: m.ExitRecord) -> tuple[bool, bool, float]:
    """Sorts records of one run so that the node comes first that failed first.

    A node reports its end when its last rank has ended, so its time says little: ranks elsewhere
    may leave before that, because their peer is gone.
    """
    terminated = record.signal == SIGTERM or record.code == TERMINATED
    return record.stop is not None, terminated, record.ran_s


def _is_victim(member: Member) -> bool:
    """Whether a member was not started because another one could not be."""
    record = member.exit
    return record is not None and (
        record.stop is not None or record.detail == m.NOT_RELEASED_IN_TIME
    )


def _is_lost(member: Member) -> bool:
    return meaning(member.exit) is Meaning.LOST or _lost_its_gpu(member)


def _loss(member: Member) -> str:
    """How a member was lost, in words."""
    if member.presumed.startswith(GPU_UNHEALTHY):
        return f"{member.node}: {member.presumed}"
    detail = member.exit.detail if member.exit else member.presumed
    why = member.exit.reason.value if member.exit else "lost"
    return f"{member.node}: {why} {one_line(detail)}".rstrip()


def has_lost_hardware(run: Run) -> bool:
    """Whether a run is over because a node or a GPU of it has failed."""
    if not run.is_over or not run.released:
        return False
    if run.stop in (m.StopReason.REQUEUE, m.StopReason.CANCEL):
        return False
    members = run.members.values()
    gone = (x.exit is None or x.exit.reason is m.ExitReason.NODE_LOST for x in members)
    return any(gone) or bool(_sick(run))


def _sick(run: Run) -> list[Member]:
    """The members of a run that ended while a GPU of theirs was unhealthy."""
    return [each for each in run.members.values() if each.presumed.startswith(GPU_UNHEALTHY)]


def _lost_its_gpu(member: Member) -> bool:
    """Whether a member failed while its node reported one of its GPUs as unhealthy."""
    return member.presumed.startswith(GPU_UNHEALTHY) and meaning(member.exit) is Meaning.FAILED


def in_words(record: m.ExitRecord) -> str:
    """Say how a node's part ended, in one line: which rank, where in a gang, and what was said."""
    said = one_line(record.detail) if record.reason is not m.ExitReason.KEEPER_LOST else ""
    rank = _RANK.match(said)
    said = said[rank.end() :] if rank else said
    on = record.node if len(record.nodes) > 1 else ""
    where = f"{rank[1]} on {on}" if rank and on else rank[1] if rank else on
    return ": ".join(part for part in (where, how_it_ended(record), said) if part)


def without_words(text: str) -> str:
    """A reason or event up to how a run ended, without what was said of it.

    Words of a failure come from the user's program or name the user's files; so they are for the
    owner of the job and for operators.
    """
    found = _HOW_IT_ENDED.search(text)
    if found is None:
        return text
    kept = text[: found.end()]
    return kept + ")" * (kept.count("(") - kept.count(")"))


def with_cause(reason: str, cause: str) -> str:
    """A reason with what the cause of the failure says.

    It is added to an exit code or a signal alone, and replaces the words of another rank.
    """
    end = _END.search(reason)
    if end is None or not cause:
        return reason
    code, named = end["code"], _OF_A_RANK.match(cause)
    if end["rank"] and named is not None and named[1] != end["rank"]:
        return f"{reason[: end.end('code')]}: {one_line(cause)}"
    if end["words"] or cause.endswith(code):
        return reason
    return f"{reason}: {one_line(cause.partition(f'{code}: ')[2] or cause)}"


def one_line(text: str, longest: int = _LONGEST) -> str:
    """A text of a node, bounded, without line breaks and control characters."""
    shown = "".join(each if each.isprintable() else " " for each in text[: 2 * longest])
    words = " ".join(shown.split())
    return words if len(words) <= longest else words[: longest - 1] + "…"


def how_it_ended(record: m.ExitRecord) -> str:
    """How a node's part ended, without what was said of it: its code, signal or other reason."""
    if record.reason is m.ExitReason.SIGNALLED:
        return f"signal {record.signal}"
    if record.reason is m.ExitReason.KEEPER_LOST:
        return f"keeper-lost {one_line(record.detail)}".rstrip()
    return f"exit {record.code}" if record.reason is m.ExitReason.EXITED else record.reason.value


def _in_detail(why: str, records: list[m.ExitRecord], *, only_kept: bool = False) -> str:
    """A reason with how the run left and what it has handed in; `only_kept`: without the former."""
    parts = []
    if not only_kept:
        if any(record.told is m.Told.STOPPED for record in records):
            parts.append("stopped by agreement")
        elif (left := next(iter(records), None)) and left.term_s is not None:
            parts.append(f"{how_it_ended(left)}, {left.term_s:.1f} s after TERM")
    kept = [record.checkpoint for record in records if record.checkpoint is not None]
    if kept:
        parts.append(f"checkpoint of step {max(kept)}")
    return f"{why} ({', '.join(parts)})" if parts else why
