"""What `dlsched submit` prints: ids, predicted starts and deadlines; words or JSON."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dlsched.client.submission.request import Submission
    from dlsched.rpc.v1.control_pb2 import (
        DeadlineOutlook,
        Declined,
        PredictedMoment,
        SubmitReply,
        Supposed,
    )

SCHEMA = "dlsched.submit/1"


def print_warnings(reply: SubmitReply, program: str = "dlsched") -> None:
    """Print what the daemon remarks, on stderr, as of a program."""
    from dlsched.cli.output.terminal import shown  # noqa: PLC0415

    for warning in reply.warnings:
        print(f"{program}: {shown(warning)}", file=sys.stderr)


def print_jobs(reply: SubmitReply, *, parsable: bool, names: Sequence[str] | None = None) -> None:
    """Print a line for each job: its id alone for programs and where there are several.

    Args:
        reply: of the daemon.
        parsable: for programs.
        names: of the jobs of a graph; each follows its id.
    """
    from dlsched.cli.output.closed_output import told_jobs  # noqa: PLC0415
    from dlsched.cli.output.terminal import shown  # noqa: PLC0415

    print_warnings(reply)
    ids = [str(job.job) for job in reply.jobs]
    if names is not None and not parsable:
        lines = [f"{job} {shown(name)}" for job, name in zip(ids, names, strict=True)]
    elif parsable or len(ids) > 1:
        lines = ids
    else:
        lines = [f"Submitted job {job}" for job in ids]
    with told_jobs(job.job for job in reply.jobs):
        print("\n".join(lines))


def print_late_deadlines(reply: SubmitReply) -> None:
    """Print a line on stderr for each job that may not keep its deadline."""
    from dlsched.cli.jobs.predicted import deadline_text  # noqa: PLC0415

    for each in reply.deadlines:
        if each.verdict != "ok":
            line = deadline_text(each, time.time())
            print(f"dlsched: job {each.job}: {line}", file=sys.stderr)


def print_declined(reply: SubmitReply, *, many: bool) -> None:
    """Print on stderr why nothing was submitted, a line for each reason."""
    from dlsched.cli.jobs.predicted import deadline_text  # noqa: PLC0415
    from dlsched.cli.output.terminal import shown  # noqa: PLC0415

    for each in reply.declined:
        which = f"job {each.place}: " if many and each.place else ""
        told = each.HasField("deadline")
        why = deadline_text(each.deadline, time.time()) if told else shown(each.why)
        print(f"dlsched: not submitted: {which}{why}", file=sys.stderr)


def print_trial(found: Sequence[Submission], reply: SubmitReply) -> None:
    """Print what would be submitted for a sweep, and when the jobs, which were not, would start."""
    from dlsched.cli.jobs.predicted import deadline_text, range_text  # noqa: PLC0415
    from dlsched.cli.output.terminal import shown  # noqa: PLC0415
    from dlsched.cli.output.times import clock_text  # noqa: PLC0415

    print_warnings(reply)
    if not reply.warnings:
        print("could be submitted; nothing was", file=sys.stderr)
    now = time.time()
    for place, (asked, each) in enumerate(zip_longest(found, reply.supposed), 1):
        which = f"job {place}: " if len(reply.supposed) > 1 else ""
        if asked is not None and asked.request.sweep.rows:
            _print_sweep(which, asked)
            which += "the first "
        if each is None:  # the daemon predicts some only
            continue
        if not each.HasField("start_at"):
            print(f"{which}start {shown(each.basis or 'not predicted')}")
            continue
        when = "at once" if each.start_at <= now + 1.0 else f"~{clock_text(each.start_at, now)}"
        end = ""
        if each.end.HasField("at"):
            between = range_text(each.end, now)
            end = f", and end ~{clock_text(each.end.at, now)}"
            end += f" (from {between})" if between != "-" else ""
        print(f"{which}would start {when}{end} ({shown(each.basis)})")
        if each.HasField("deadline"):
            print(f"{which}{deadline_text(each.deadline, now)}")


def _print_sweep(which: str, asked: Submission) -> None:
    """Print how many jobs a sweep has, and the commands of its first and last one."""
    from dlsched.cli.output.terminal import shown  # noqa: PLC0415
    from dlsched.client.submission.sweeps import swept_command  # noqa: PLC0415

    table, command = asked.request.sweep, asked.command
    count, limit = len(table.rows), asked.request.array.partition("%")[2]
    at_once = f", {limit} at once" if limit else ""
    print(f"{which}{count} job{'s'[: count != 1]}{at_once}")
    for task in sorted({1, count}):
        text = swept_command(table, task - 1, command.words, line=command.is_line)
        print(f"  {task}: {shown(text)}")


def print_object(reply: SubmitReply, found: Sequence[Submission]) -> None:
    """Print all that the daemon answers as one JSON object; null where it predicts nothing."""
    from dlsched.cli.output.json_output import print_json  # noqa: PLC0415

    print_json(
        SCHEMA,
        jobs=[
            {"job_id": job.job, "name": each.request.name, "elements": job.elements or None}
            for job, each in zip(reply.jobs, found, strict=False)
        ],
        predicted=[
            {
                "start_at": _moment(each, "start_at"),
                **_interval("start", each.start),
                "end_at": _moment(each.end, "at"),
                **_interval("end", each.end),
                "basis": each.basis or None,
                "deadline": _outlook(each),
            }
            for each in reply.supposed
        ],
        deadlines=[{"job_id": each.job, **_verdict(each)} for each in reply.deadlines],
        declined=[
            {"place": each.place or None, "why": each.why or None, "deadline": _outlook(each)}
            for each in reply.declined
        ],
        warnings=list(reply.warnings),
    )


def _moment(message: Any, name: str) -> str | None:
    from dlsched.cli.output.times import utc_text  # noqa: PLC0415

    return utc_text(getattr(message, name)) if message.HasField(name) else None


def _interval(name: str, moment: PredictedMoment) -> dict[str, str | None]:
    return {f"{name}_{bound}_at": _moment(moment, bound) for bound in ("p10", "p90")}


def _outlook(message: Supposed | Declined) -> dict[str, Any] | None:
    return _verdict(message.deadline) if message.HasField("deadline") else None


def _verdict(found: DeadlineOutlook) -> dict[str, Any]:
    from dlsched.cli.output.times import utc_text  # noqa: PLC0415

    return {
        "deadline_at": utc_text(found.deadline_at),
        "verdict": found.verdict,
        "on_time": round(found.on_time, 3),
        "earliest_at": _moment(found, "earliest_at"),
    }
