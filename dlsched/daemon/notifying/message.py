"""What receivers get: a notice as JSON, and as the subject and text of a mail."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from dlsched.db.notices import Notice
from dlsched.db.reading.queries import StoredJob
from dlsched.protocol.ledger import one_line, with_cause

_VERBS = {
    "begin": "began",
    "end": "ended",
    "fail": "failed",
    "preempt": "was preempted",
    "requeue": "was queued again",
    "time_limit": "reached its time limit",
    "checkpoint": "cannot save its checkpoints",
    "time_limit_50": "has used 50 % of its time limit",
    "time_limit_80": "has used 80 % of its time limit",
    "time_limit_90": "has used 90 % of its time limit",
    "invalid_depend": "was cancelled: its dependency can't be met",
}
_PLURAL_VERBS = _VERBS | {
    "preempt": "were preempted",
    "requeue": "were queued again",
    "time_limit": "reached their time limit",
    "invalid_depend": "were cancelled: their dependency can't be met",
}


def tells_failure(notice: Notice, stored: StoredJob) -> bool:
    """Whether a notice is of the end of one job that has failed, whose cause can be told."""
    is_present = not notice.whole_array and notice.state == stored.state == "FAILED"
    return is_present and notice.event in ("end", "fail")


def message(notice: Notice, stored: StoredJob, cluster: str) -> dict[str, object]:
    """A notice with what is known of its job, as JSON has it; times are UTC.

    Args:
        notice: to tell.
        stored: the job as the database has it now.
        cluster: the cluster's name.
    """
    spec, facts, record = stored.spec, stored.facts, stored.job.exit
    own = not notice.whole_array and notice.state == stored.state
    cause = one_line(stored.cause) if tells_failure(notice, stored) else ""
    found: dict[str, object] = {
        "id": notice.key,
        "cluster": cluster,
        "event": notice.event,
        "at": _utc(notice.at),
        "job": notice.job,
        "array": notice.whole_array,
        "elements": notice.elements,
        "name": spec.name if spec is not None else "",
        "user": spec.user if spec is not None else stored.job.request.user,
        "account": spec.body.account if spec is not None else "",
        "vc": spec.body.vc if spec is not None else "",
        "partition": spec.body.partition if spec is not None else "",
        "run": notice.run,
        "state": notice.state,
        "reason": with_cause(notice.text, cause),
        "cause": cause,
        "gpus": sum(stored.job.request.gang),
        "nodes": list(stored.nodes),
        "code": record.code if record is not None and own else None,
        "signal": record.signal if record is not None and own else None,
        "submitted_at": _utc(facts.submitted_at),
        "started_at": _utc(facts.started_at),
        "ended_at": _utc(facts.ended_at),
        "executed_s": facts.executed_s,
    }
    single = spec if spec is not None and not notice.whole_array else None
    found["array_task"] = task = single.task if single else None
    found["array_job"] = notice.job - single.index if single and task is not None else None
    return found | {"text": subject(found)}


def subject(content: dict[str, Any]) -> str:
    """A message in one line."""
    what = "Array" if content["array"] else "Job"
    job = content["job"]
    if content["array_job"] is not None:  # as listings name an element
        job = f"{content['array_job']}_{content['array_task']}"
    name = "".join(c if c.isprintable() else " " for c in content["name"])
    line = f"{what} {job} ({name}) {_VERBS[content['event']]}"
    if content["elements"]:
        verb = _PLURAL_VERBS[content["event"]]
        line = f"{content['elements']} elements of array {job} ({name}) {verb}"
    if content["event"] in ("end", "fail", "time_limit", "invalid_depend"):
        line += f": {content['state']}"
        if content["cause"]:
            line += f", {content['reason'].removeprefix('failed ')}"
        elif content["code"] or content["signal"]:
            line += (
                f", signal {content['signal']}"
                if content["signal"]
                else (f", exit code {content['code']}")
            )
    return line


def mail(content: dict[str, Any]) -> bytes:
    """The text of a mail."""
    lines = [content["text"], ""]
    lines += [f"{'Cluster':<10}{content['cluster']}", f"{'User':<10}{content['user']}"]
    if content["reason"] and content["event"] != "begin":
        lines.append(f"{'Reason':<10}{content['reason']}")
    if content["nodes"]:
        lines.append(f"{'Nodes':<10}{', '.join(content['nodes'])}")
    for key, title in (
        ("submitted_at", "Submitted"),
        ("started_at", "Started"),
        ("ended_at", "Ended"),
    ):
        if content[key]:
            lines.append(f"{title:<10}{content[key]}")
    lines += [f"{'Executed':<10}{content['executed_s']:.0f} s", "", f"Notice {content['id']}"]
    return ("\n".join(lines) + "\n").encode("utf-8", "replace")


def _utc(at: float | None) -> str | None:
    return None if at is None else datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")
