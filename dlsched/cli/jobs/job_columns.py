"""The columns of `queue` and `history`, by name."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from dlsched.cli.jobs.predicted import interval_text
from dlsched.cli.output.listing import Column
from dlsched.cli.output.times import clock_text, column_text
from dlsched.client.records import Folded, Job
from dlsched.client.submission.durations import duration_text
from dlsched.core.cluster.host_lists import fold

LITTLE_S = 0.5  # a difference that is shown as none

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
            told = [job.predicted_basis] if job.predicted_basis else []
            if job.predicted_start_p10_at is not None:
                least, most = job.predicted_start_p10_at, job.predicted_start_p90_at
                told.insert(0, interval_text(least, most, row.now))
            basis = f" ({'; '.join(told)})" if told else ""
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
    return _difference(job.first_started_at - job.predicted_start_at)


def _late(row: Row) -> str:
    job = row.job
    if job.ended_at is None or job.deadline_at is None:
        return "-"
    return _difference(job.ended_at - job.deadline_at)


def _reward(row: Row) -> str:
    """What the end has earned: a job that did not complete has its curve's last word."""
    from dlsched.core.rewards import RewardCurve  # noqa: PLC0415

    job = row.job
    text = job.asked.get("sla")
    if not isinstance(text, str) or not text or job.ended_at is None or job.submitted_at is None:
        return "-"
    completed = job.state == "COMPLETED"
    took = job.ended_at - job.submitted_at if completed else math.nan
    return f"{RewardCurve.of_text(text).earned(took):.4g}"


def _difference(seconds: float) -> str:
    return ("-" if seconds <= -LITTLE_S else "") + _span(abs(seconds))


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


def brief(value: float | None) -> str:
    """A measured number with four digits, or `-`."""
    return "-" if value is None else f"{value:.4g}"


def gib(size: float | None) -> str:
    """Bytes as `31.2G`, or `-`."""
    return "-" if size is None else f"{size / 2**30:.1f}G"


def percent(part: float | None) -> str:
    """A part of 1 as `84%`, or `-`."""
    return "-" if part is None else f"{part:.0%}"


def _loss(row: Row) -> str:
    return "nan" if "loss" in row.job.not_finite else brief(row.job.loss)


def _text(value: str | None) -> str:
    return value or "-"


def _style(row: Row) -> str | None:
    return _STYLES.get(row.job.state, "bad")


def _field(
    name: str,
    title: str,
    doc: str,
    field: str,
    shown: Callable[[Any], str] = _text,
    *,
    least: int | None = None,
) -> Column[Row]:
    """A column of one field of jobs; numbers and durations stand at the right."""
    right = shown in (_number, _span, str, brief, gib, percent)
    return Column(
        name, title, doc, lambda row: shown(getattr(row.job, field)), right=right, least=least
    )


_ALL: tuple[Column[Row], ...] = (
    Column(
        "id",
        "ID",
        "job, array element, or elements that wait alike",
        lambda row: row.shown_id,
        right=True,
    ),
    _field("name", "NAME", "name", "name", least=8),
    _field("user", "USER", "owner", "user", least=6),
    _field("account", "ACCOUNT", "account", "account"),
    _field("vc", "VC", "virtual cluster", "vc", least=6),
    _field("partition", "PARTITION", "partition", "partition"),
    _field("class", "CLASS", "priority class", "priority_class"),
    Column(
        "st",
        "ST",
        "state in two or three letters",
        lambda row: STATE_CODES.get(row.job.state, row.job.state),
        style=_style,
    ),
    Column("state", "STATE", "state", _state, style=_style, least=9),
    Column("exit", "EXIT", "code:signal", lambda row: exit_text(row.job), right=True),
    Column("gpus", "GPUS", "GPUs: in all, or nodes x GPUs", _gpus, right=True),
    _field(
        "type",
        "TYPE",
        "GPU types asked for",
        "gpu_types",
        lambda types: "|".join(types) or "any",
        least=5,
    ),
    Column("time", "TIME", "time executed", _ran, right=True),
    _field("limit", "LIMIT", "time limit", "time_limit_s", _span),
    Column("left", "LEFT", "time left to the limit", _left, right=True),
    Column("where", "WHERE / WHY", "nodes, or why it waits", where_text, least=24),
    _field(
        "nodes", "NODES", "nodes it runs on", "nodes", lambda nodes: fold(nodes) or "-", least=8
    ),
    Column("gpu_indices", "GPU INDICES", "which GPUs of its nodes", _indices, least=8),
    _field("reason", "REASON", "why it waits or ended", "reason", least=8),
    _field("position", "POS", "place in the policy's order", "position", _number),
    _field("priority", "PRIORITY", "priority", "priority", _number),
    _field("submitted", "SUBMITTED", "when", "submitted_at", column_text),
    _field("started", "STARTED", "when its present run started", "started_at", column_text),
    _field(
        "first_started",
        "FIRST STARTED",
        "when its first run started",
        "first_started_at",
        column_text,
    ),
    _field("ended", "ENDED", "when", "ended_at", column_text),
    _field("begin", "BEGIN", "not before", "begin_at", column_text),
    _field("deadline", "DEADLINE", "to be done by", "deadline_at", column_text),
    Column("late", "LATE", "end minus deadline; negative: before it", _late, right=True),
    Column("reward", "REWARD", "earned by its reward curve (--sla)", _reward, right=True),
    _field("start", "START", "(first) predicted start", "predicted_start_at", column_text),
    _field("end", "END", "predicted end", "predicted_end_at", column_text),
    _field("basis", "BASIS", "what the prediction rests on", "predicted_basis"),
    Column(
        "start_error",
        "START ERROR",
        "actual minus first predicted start",
        _start_error,
        right=True,
    ),
    Column(
        "gpu_hours",
        "GPU-HOURS",
        "GPUs times hours",
        lambda row: "-" if row.job.gpu_s is None else f"{row.job.gpu_s / 3600:.2f}",
        right=True,
    ),
    Column("jct", "JCT", "from submission to end", _jct, right=True),
    Column("delay", "DELAY", "from submission to first start", _delay, right=True),
    _field("starts", "STARTS", "how often started", "starts", str),
    _field("preempted", "PREEMPTED", "how often preempted", "preemptions", str),
    _field("migrated", "MIGRATED", "how often moved", "migrations", str),
    _field("failures", "FAILURES", "runs that failed", "failures", str),
    _field("lost", "LOST", "time executed in vain", "lost_s", _span),
    _field(
        "restart",
        "RESTART",
        "what a start took until the first step, where measured",
        "restart_s",
        _span,
    ),
    _field("progress", "STEPS", "steps, as the job tells", "progress", _number),
    _field(
        "depends", "DEPENDS ON", "dependencies", "dependencies", lambda all_: ",".join(all_) or "-"
    ),
    Column("loss", "LOSS", "the newest loss that it has reported", _loss, right=True),
    _field("steps_s", "STEPS/S", "steps a second", "steps_s", brief),
    _field("samples_s", "SAMPLES/S", "samples a second, of all ranks", "samples_s", brief),
    _field("gpu_memory", "GPU MEM", "memory in use on its fullest GPU", "gpu_memory_bytes", gib),
    _field("gpu_use", "GPU USE", "how busy its GPUs are, the mean", "gpu_utilization", percent),
    _field("gpu_used", "GPU USED", "how busy its GPUs were, over its life", "gpu_used", percent),
    _field("idle", "IDLE", "since when its GPUs do next to nothing", "gpu_idle_s", _span),
    _field("report_age", "REPORTED", "time since its last report", "report_age_s", _span),
    _field("model", "MODEL", "what is trained", "model"),
    _field("comment", "COMMENT", "comment", "comment", least=8),
)
COLUMNS: dict[str, Column[Row]] = {column.name: column for column in _ALL}
QUEUE = "id,name,user,vc,st,gpus,type,time,where"
IDLE = "id,name,user,vc,gpus,time,gpu_use,idle,where"
HISTORY = "id,name,user,vc,state,exit,gpus,type,time,gpu_hours,jct,delay,starts,preempted,ended"
NARROW_HISTORY = "id,name,user,state,exit,gpus,time,ended"  # on a terminal of 80 columns
