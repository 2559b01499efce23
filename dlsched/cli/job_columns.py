"""The columns of `queue` and `history`, by name."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from dlsched.cli.listing import Column
from dlsched.cli.moments import clock_text, local_text
from dlsched.client.submission.durations import duration_text
from dlsched.client.submission.hosts import fold
from dlsched.client.views import Folded, Job

__all__ = [
    "COLUMNS",
    "HISTORY",
    "QUEUE",
    "STATE_CODES",
    "Row",
    "exit_text",
    "rows_of",
    "where_text",
]

STATE_CODES = {
    "PENDING": "PD",
    "STARTING": "CF",
    "RUNNING": "R",
    "SUSPENDED": "S",
    "SUSPENDING": "SP",
    "MIGRATING": "MG",
    "COMPLETING": "CG",
    "COMPLETED": "CD",
    "FAILED": "F",
    "TIMEOUT": "TO",
    "CANCELLED": "CA",
    "NODE_FAIL": "NF",
    "PREEMPTED": "PR",
    "OUT_OF_MEMORY": "OOM",
    "GPU_FAIL": "GF",
    "DEADLINE": "DL",
}
_STYLES = {
    **dict.fromkeys(("RUNNING", "STARTING", "COMPLETED", "COMPLETING"), "good"),
    **dict.fromkeys(("PENDING", "SUSPENDED", "SUSPENDING", "MIGRATING", "PREEMPTED"), "wait"),
}


@dataclass(frozen=True, slots=True)
class Row:
    """A line of a listing: a job, or the first of several array elements that wait alike."""

    job: Job
    now: float
    tasks: str = ""
    count: int = 1
    predicted: bool = False

    @property
    def shown_id(self) -> str:
        """`11160_[2-9%2]` for folded elements."""
        if self.tasks:
            return f"{self.job.array_job_id or self.job.job_id}_[{self.tasks}]"
        return self.job.shown_id


def rows_of(
    found: list[Job | Folded], now: float | None = None, *, predicted: bool
) -> Iterator[Row]:
    """Rows, all as of one moment."""
    at = time.time() if now is None else now
    for each in found:
        if isinstance(each, Folded):
            yield Row(each.first, at, each.tasks, each.count, predicted)
        else:
            yield Row(each, at, predicted=predicted)


def exit_text(job: Job) -> str:
    """`3:0`, `0:11`, or `-`."""
    if job.exit_code is None and job.exit_signal is None:
        return "-"
    return f"{job.exit_code or 0}:{job.exit_signal or 0}"


def where_text(row: Row) -> str:
    """Where it runs; why it does not."""
    job = row.job
    if job.is_pending:
        return _why(row)
    where = fold(job.nodes)
    return f"{where} ({job.reason})" if job.reason and where else where or job.reason or "-"


def _why(row: Row) -> str:
    job = row.job
    parts = [job.reason or "-"]
    if row.predicted:
        if job.predicted_start_at is None:
            parts.append("start not predicted")
        else:
            basis = f" ({job.predicted_basis})" if job.predicted_basis else ""
            parts.append(f"starts ~{clock_text(job.predicted_start_at, row.now)}{basis}")
    return "; ".join(parts)


def _gpus(row: Row) -> str:
    """`8`; `2x4` for 4 on each of two nodes; `4+2` for uneven gangs."""
    gang = row.job.gang
    if len(gang) < 2:
        return str(row.job.gpus)
    if len(set(gang)) == 1:
        return f"{len(gang)}x{gang[0]}"
    return "+".join(map(str, gang))


def _indices(row: Row) -> str:
    from dlsched.client.submission.task_sets import fold_tasks  # noqa: PLC0415

    pairs = row.job.gpu_indices.items()
    return ",".join(f"{node}[{fold_tasks(gpus)}]" for node, gpus in pairs) or "-"


def _span(seconds: float | None) -> str:
    return "-" if seconds is None else duration_text(seconds)


def _ran(row: Row) -> str:
    job = row.job
    if job.run_s is None and job.started_at is not None and not job.is_pending:
        return _span((job.ended_at or row.now) - job.started_at)
    return "-" if not job.run_s and job.is_pending else _span(job.run_s)


def _left(row: Row) -> str:
    job = row.job
    if job.time_limit_s is None:
        return "-"
    return _span(job.time_limit_s - (job.run_s or 0.0))


def _delay(row: Row) -> str:
    job = row.job
    if job.submitted_at is None:
        return "-"
    end = job.first_started_at or job.ended_at or row.now
    return _span(end - job.submitted_at)


def _start_error(row: Row) -> str:
    job = row.job
    if job.first_started_at is None or job.predicted_start_at is None:
        return "-"
    error = job.first_started_at - job.predicted_start_at
    return ("-" if error <= -0.5 else "") + _span(abs(error))


def _jct(row: Row) -> str:
    job = row.job
    if job.submitted_at is None or job.ended_at is None:
        return "-"
    return _span(job.ended_at - job.submitted_at)


def _state(row: Row) -> str:
    by = row.job.cancelled_by
    return f"{row.job.state} by {by}" if row.job.state == "CANCELLED" and by else row.job.state


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"


def _style(row: Row) -> str | None:
    return _STYLES.get(row.job.state, "bad")


def _column(
    name: str,
    title: str,
    doc: str,
    text: Callable[[Row], str],
    *,
    right: bool = False,
    least: int | None = None,
    styled: bool = False,
) -> Column[Row]:
    return Column(
        name=name,
        title=title,
        doc=doc,
        text=text,
        align="right" if right else "left",
        least=least,
        style=_style if styled else None,
    )


_ALL = (
    _column(
        "id",
        "ID",
        "job, array element, or elements that wait alike",
        lambda row: row.shown_id,
        right=True,
    ),
    _column("name", "NAME", "name", lambda row: row.job.name or "-", least=8),
    _column("user", "USER", "owner", lambda row: row.job.user or "-", least=6),
    _column("account", "ACCOUNT", "account", lambda row: row.job.account or "-"),
    _column("vc", "VC", "virtual cluster", lambda row: row.job.vc or "-", least=6),
    _column("partition", "PARTITION", "partition", lambda row: row.job.partition or "-"),
    _column("class", "CLASS", "priority class", lambda row: row.job.priority_class or "-"),
    _column(
        "st",
        "ST",
        "state in two or three letters",
        lambda row: STATE_CODES.get(row.job.state, row.job.state),
        styled=True,
    ),
    _column("state", "STATE", "state", _state, styled=True, least=9),
    _column("exit", "EXIT", "code:signal", lambda row: exit_text(row.job), right=True),
    _column("gpus", "GPUS", "GPUs: in all, or nodes x GPUs", _gpus, right=True),
    _column(
        "type",
        "TYPE",
        "GPU types asked for",
        lambda row: "|".join(row.job.gpu_types) or "any",
        least=5,
    ),
    _column("time", "TIME", "time executed", _ran, right=True),
    _column("limit", "LIMIT", "time limit", lambda row: _span(row.job.time_limit_s), right=True),
    _column("left", "LEFT", "time left to the limit", _left, right=True),
    _column("where", "WHERE / WHY", "nodes, or why it waits", where_text, least=16),
    _column("nodes", "NODES", "nodes it runs on", lambda row: fold(row.job.nodes) or "-", least=8),
    _column("gpu_indices", "GPU INDICES", "which GPUs of its nodes", _indices, least=8),
    _column(
        "reason", "REASON", "why it waits or ended", lambda row: row.job.reason or "-", least=8
    ),
    _column(
        "position",
        "POS",
        "place in the policy's order",
        lambda row: _number(row.job.position),
        right=True,
    ),
    _column("priority", "PRIORITY", "priority", lambda row: _number(row.job.priority), right=True),
    _column("submitted", "SUBMITTED", "when", lambda row: local_text(row.job.submitted_at)),
    _column(
        "started",
        "STARTED",
        "when its present run started",
        lambda row: local_text(row.job.started_at),
    ),
    _column(
        "first_started",
        "FIRST STARTED",
        "when its first run started",
        lambda row: local_text(row.job.first_started_at),
    ),
    _column("ended", "ENDED", "when", lambda row: local_text(row.job.ended_at)),
    _column("begin", "BEGIN", "not before", lambda row: local_text(row.job.begin_at)),
    _column("deadline", "DEADLINE", "to be done by", lambda row: local_text(row.job.deadline_at)),
    _column(
        "start",
        "START",
        "(first) predicted start",
        lambda row: local_text(row.job.predicted_start_at),
    ),
    _column(
        "end",
        "END",
        "predicted end",
        lambda row: local_text(row.job.predicted_end_at),
    ),
    _column(
        "basis", "BASIS", "what the prediction rests on", lambda row: row.job.predicted_basis or "-"
    ),
    _column(
        "start_error",
        "START ERROR",
        "actual minus first predicted start",
        _start_error,
        right=True,
    ),
    _column(
        "gpu_hours",
        "GPU-HOURS",
        "GPUs times hours",
        lambda row: "-" if row.job.gpu_s is None else f"{row.job.gpu_s / 3600:.2f}",
        right=True,
    ),
    _column("jct", "JCT", "from submission to end", _jct, right=True),
    _column("delay", "DELAY", "from submission to first start", _delay, right=True),
    _column("starts", "STARTS", "how often started", lambda row: str(row.job.starts), right=True),
    _column(
        "preempted",
        "PREEMPTED",
        "how often preempted",
        lambda row: str(row.job.preemptions),
        right=True,
    ),
    _column(
        "migrated", "MIGRATED", "how often moved", lambda row: str(row.job.migrations), right=True
    ),
    _column(
        "failures", "FAILURES", "runs that failed", lambda row: str(row.job.failures), right=True
    ),
    _column("lost", "LOST", "time executed in vain", lambda row: _span(row.job.lost_s), right=True),
    _column(
        "restart",
        "RESTART",
        "what a start took until the first step, where measured",
        lambda row: _span(row.job.restart_s),
        right=True,
    ),
    _column(
        "progress",
        "STEPS",
        "steps, as the job tells",
        lambda row: _number(row.job.progress),
        right=True,
    ),
    _column(
        "depends", "DEPENDS ON", "dependencies", lambda row: ",".join(row.job.dependencies) or "-"
    ),
    _column("model", "MODEL", "what is trained", lambda row: row.job.model or "-"),
    _column("comment", "COMMENT", "comment", lambda row: row.job.comment or "-", least=8),
)
COLUMNS: dict[str, Column[Row]] = {column.name: column for column in _ALL}
QUEUE = "id,name,user,vc,st,gpus,type,time,where"
HISTORY = "id,name,user,vc,state,exit,gpus,type,time,gpu_hours,jct,delay,starts,preempted,ended"
