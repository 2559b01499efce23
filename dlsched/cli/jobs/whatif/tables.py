"""What `dlsched whatif` prints: a line for each alternative, or for each job under each policy."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from typing import Any, TypeVar

from dlsched.cli.jobs.predicted import range_text
from dlsched.cli.output.deadline_answer import Kept, deadline_text, must_move_text
from dlsched.cli.output.json_output import print_json
from dlsched.cli.output.listing import Column, print_listing
from dlsched.cli.output.terminal import terminal
from dlsched.cli.output.times import clock_text, utc_text
from dlsched.client.submission.durations import duration_text
from dlsched.core.errors import plural
from dlsched.rpc.v1.control_pb2 import PredictedMoment, WhatIfJob, WhatIfOutcome, WhatIfReply

T = TypeVar("T")
SCHEMA = "dlsched.whatif/1"
SOON_S = 1.0  # a start that is so near is at once
LITTLE_S = 0.5  # a difference that is shown as none


def print_answer(reply: WhatIfReply, colour: str) -> None:
    """Print the answer as tables."""
    out = terminal(colour)
    first = reply.outcomes[0]
    if first.HasField("gpus"):
        print_listing(_of_alternatives(reply), list(enumerate(reply.outcomes)), out)
        if reply.HasField("deadline_at"):
            sys.stdout.write(f"\n{_deadline(reply)}\n")
            if first.must_move:
                sys.stdout.write(f"{must_move_text(list(map(str, first.must_move)))}\n")
        return
    print_listing(_of_policies(), reply.outcomes, out)
    if first.all:
        sys.stdout.write("\n")
        print_listing(_of_jobs(reply), list(first.all), out)
        if first.jobs > len(first.all):
            left = plural(first.jobs - len(first.all), "job")
            sys.stdout.write(f"{left} more; --json has the figures of all\n")


def cells_of(reply: WhatIfReply) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """The titles and cells of the table of alternatives, or of policies, without the notes."""
    if reply.outcomes[0].HasField("gpus"):
        return _cells(_of_alternatives(reply), list(enumerate(reply.outcomes)))
    return _cells(_of_policies(), list(reply.outcomes))


def _cells(
    columns: list[Column[T]], rows: list[T]
) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    shown = [column for column in columns if column.name != "note"]
    cells = tuple(tuple(column.text(row) for column in shown) for row in rows)
    return tuple(column.title for column in shown), cells


def note_of(outcome: WhatIfOutcome) -> str:
    """What a prediction rests on, or why there is none; `-` where there is nothing to predict."""
    if outcome.why:
        return f"not predicted: {outcome.why}"
    return f"from {outcome.basis}" if outcome.basis else "-"


def title_of(outcome: WhatIfOutcome, reply: WhatIfReply) -> str:
    """What an alternative is called: `as it is`, `8 GPUs, a100, under las`."""
    first = reply.outcomes[0]
    parts = []
    if outcome.gpus != first.gpus:
        parts.append(plural(outcome.gpus, "GPU"))
    if list(outcome.gpu_types) != list(first.gpu_types):
        parts.append("|".join(outcome.gpu_types) or "any type")
    if outcome.policy != reply.policy:
        parts.append(f"under {outcome.policy}")
    return ", ".join(parts) or "as it is"


def _deadline(reply: WhatIfReply) -> str:
    """Say which alternative meets the deadline at the least cost, or else when one could."""
    alternatives = [
        Kept(
            title=title_of(each, reply),
            gpus=each.gpus,
            gpu_s=each.gpu_s,
            is_sure=each.verdict == "ok",
            latest_end=each.end.p90 if each.end.HasField("p90") else math.nan,
            latest_submit=each.latest_submit_at if each.HasField("latest_submit_at") else math.nan,
        )
        for each in reply.outcomes
    ]
    return deadline_text(
        f"deadline {clock_text(reply.deadline_at, reply.at)}",
        alternatives,
        lambda at: clock_text(at, reply.at),
    )


def _moment(moment: PredictedMoment, now: float) -> str:
    if not moment.HasField("at"):
        return "-"
    return "now" if moment.at <= now + SOON_S else f"~{clock_text(moment.at, now)}"


def _later(seconds: float) -> str:
    sign = "" if abs(seconds) < LITTLE_S else "-" if seconds < 0 else "+"
    return sign + duration_text(abs(seconds))


_Numbered = tuple[int, WhatIfOutcome]


def _of_alternatives(reply: WhatIfReply) -> list[Column[_Numbered]]:
    now, first = reply.at, reply.outcomes[0]
    runs = bool(reply.job) and reply.state != "PENDING"

    def what(row: _Numbered) -> str:
        return "as it is" if row[0] == 0 else title_of(row[1], reply)

    def start(row: _Numbered) -> str:
        return reply.state.lower() if runs and row[0] == 0 else _moment(row[1].start, now)

    def on_time(row: _Numbered) -> str:
        told = row[1]
        return f"{told.on_time:.0%} {told.verdict}" if told.HasField("on_time") else "-"

    def submit_by(row: _Numbered) -> str:
        told = row[1]
        return clock_text(told.latest_submit_at, now) if told.HasField("latest_submit_at") else "-"

    def gpu_hours(row: _Numbered) -> str:
        return f"{row[1].gpu_s / 3600:.1f}" if row[1].HasField("gpu_s") else "-"

    def others(row: _Numbered) -> str:
        told = row[1]
        return _later(told.others_later_s) if told.HasField("others_later_s") else "-"

    columns: list[Column[_Numbered]] = [
        Column("what", "ALTERNATIVE", "what differs", what),
        Column("gpus", "GPUS", "", lambda row: str(row[1].gpus), right=True),
        Column("types", "TYPE", "", lambda row: "|".join(row[1].gpu_types) or "any"),
        Column("policy", "POLICY", "", lambda row: row[1].policy),
        Column("start", "START", "", start),
        Column("start_range", "INTERVAL", "", lambda row: range_text(row[1].start, now)),
        Column("end", "END", "", lambda row: _moment(row[1].end, now)),
        Column("end_range", "INTERVAL", "", lambda row: range_text(row[1].end, now)),
        Column("gpu_hours", "GPU-H", "from now on", gpu_hours, right=True),
        Column("others", "OTHERS", "how much later they end", others, right=True),
        Column("note", "PREDICTED", "what it rests on", lambda row: note_of(row[1]), least=16),
    ]
    if reply.HasField("deadline_at"):
        columns.insert(8, Column("on_time", "ON TIME", "chance to meet the deadline", on_time))
        if any(each.HasField("latest_submit_at") for each in reply.outcomes):
            doc = "the latest submit that keeps the deadline"
            columns.insert(9, Column("submit_by", "SUBMIT BY", doc, submit_by))
    for name, title, doc in (
        ("reward", "REWARD", "that the job is expected to earn"),
        ("others_reward", "OTHERS EARN", "how much more other jobs earn"),
    ):
        if any(each.HasField(name) for each in reply.outcomes):
            columns.insert(-1, _figure(name, title, doc, signed=name != "reward"))
    if all(each.policy == first.policy for each in reply.outcomes):
        columns = [column for column in columns if column.name != "policy"]
    return columns


def _figure(name: str, title: str, doc: str, *, signed: bool) -> Column[_Numbered]:
    def text(row: _Numbered) -> str:
        if not row[1].HasField(name):
            return "-"
        return format(getattr(row[1], name), "+.4g" if signed else ".4g")

    return Column(name, title, doc, text, right=True)


def _of_policies() -> list[Column[WhatIfOutcome]]:
    def span(name: str, title: str, doc: str) -> Column[WhatIfOutcome]:
        def text(told: WhatIfOutcome) -> str:
            return duration_text(getattr(told, name)) if told.HasField(name) else "-"

        return Column(name, title, doc, text, right=True)

    def others(told: WhatIfOutcome) -> str:
        return _later(told.others_later_s) if told.HasField("others_later_s") else "-"

    return [
        Column("policy", "POLICY", "", lambda told: told.policy),
        Column("jobs", "JOBS", "", lambda told: str(told.jobs), right=True),
        span("mean_jct_s", "MEAN JCT", "of the jobs that end"),
        span("p95_jct_s", "95% JCT", ""),
        span("all_done_s", "ALL DONE IN", ""),
        Column("never", "NEVER", "jobs without an end", lambda t: str(t.never), right=True),
        Column("later", "LATER", "jobs end later than now, on average", others, right=True),
        Column("note", "PREDICTED", "what it rests on", note_of, least=16),
    ]


def _of_jobs(reply: WhatIfReply) -> list[Column[WhatIfJob]]:
    now = reply.at
    columns: list[Column[WhatIfJob]] = [
        Column("id", "ID", "", lambda each: str(each.job), right=True),
        Column("name", "NAME", "", lambda each: each.name, least=8),
        Column("user", "USER", "", lambda each: each.user, least=6),
        Column("gpus", "GPUS", "", lambda each: str(each.gpus), right=True),
        Column("start", "START", "", lambda e: _moment(e.start, now) if e.waits else "running"),
        Column("start_range", "INTERVAL", "", lambda each: range_text(each.start, now)),
        Column("end", "END", "", lambda each: _moment(each.end, now)),
        Column("end_range", "INTERVAL", "", lambda each: range_text(each.end, now)),
    ]
    for outcome in reply.outcomes[1:]:
        ends = {each.job: each.end for each in outcome.all}

        def under(each: WhatIfJob, ends: dict[int, PredictedMoment] = ends) -> str:
            other = ends.get(each.job)
            if other is None or not (other.HasField("at") and each.end.HasField("at")):
                return "-"
            return f"{_moment(other, now)} ({_later(other.at - each.end.at)})"

        title = f"END UNDER {outcome.policy.upper()}"
        columns.append(Column(f"end_{outcome.policy}", title, "", under))
    return columns


# -- JSON -----------------------------------------------------------------------------------------


def print_answer_json(reply: WhatIfReply) -> None:
    """Print the answer as one JSON object."""
    print_json(
        SCHEMA,
        at=utc_text(reply.at),
        policy=reply.policy,
        job_id=reply.job or None,
        state=reply.state or None,
        deadline_at=utc_text(reply.deadline_at) if reply.HasField("deadline_at") else None,
        sla=reply.sla or None,
        outcomes=[_object(outcome, reply) for outcome in reply.outcomes],
    )


def _object(outcome: WhatIfOutcome, reply: WhatIfReply) -> dict[str, Any]:
    has_job = outcome.HasField("gpus")
    figures = (
        *("gpu_s", "others_later_s", "mean_jct_s", "p95_jct_s", "all_done_s", "on_time"),
        *("reward", "others_reward"),
    )
    return {
        "gpus": outcome.gpus if has_job else None,
        "gpu_types": list(outcome.gpu_types) if has_job else None,
        "policy": outcome.policy,
        "is_present": outcome is reply.outcomes[0] or title_of(outcome, reply) == "as it is",
        **dict(_moments("start", outcome.start)),
        **dict(_moments("end", outcome.end)),
        "basis": outcome.basis or None,
        "why_not": outcome.why or None,
        "verdict": outcome.verdict or None,
        "latest_submit_at": utc_text(outcome.latest_submit_at)
        if outcome.HasField("latest_submit_at")
        else None,
        **{
            name: round(getattr(outcome, name), 3) if outcome.HasField(name) else None
            for name in figures
        },
        "must_move": list(outcome.must_move),
        "jobs": outcome.jobs,
        "never": outcome.never,
        "was_cut": outcome.was_cut,
        "all": job_objects(outcome),
    }


def job_objects(outcome: WhatIfOutcome) -> list[dict[str, Any]]:
    """What becomes of each job, as JSON has it."""
    return [
        {
            "job_id": each.job or None,
            "name": each.name,
            "user": each.user,
            "gpus": each.gpus,
            "waits": each.waits,
            **dict(_moments("start", each.start)),
            **dict(_moments("end", each.end)),
        }
        for each in outcome.all
    ]


def _moments(name: str, moment: PredictedMoment) -> Iterator[tuple[str, str | None]]:
    for field, key in (("at", f"{name}_at"), ("p10", f"{name}_p10_at"), ("p90", f"{name}_p90_at")):
        yield key, utc_text(getattr(moment, field)) if moment.HasField(field) else None
