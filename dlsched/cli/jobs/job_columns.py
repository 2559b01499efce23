"""The columns of `queue` and `history`, by name."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

from dlsched.cli.jobs.predicted import interval_text
from dlsched.cli.output.listing import Column
from dlsched.cli.output.times import clock_text, column_text
from dlsched.client.job_records import Folded, Job, Queue, shown_id
from dlsched.client.listed_jobs import ListedJobs
from dlsched.client.submission.durations import duration_text
from dlsched.host_lists import fold
from dlsched.record import Record
from dlsched.rpc.columns import Column as Values
from dlsched.rpc.columns import combined

T = TypeVar("T")
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
ENDED_STATES = (
    "COMPLETED",
    "FAILED",
    "TIMEOUT",
    "CANCELLED",
    "NODE_FAIL",
    "PREEMPTED",
    "OUT_OF_MEMORY",
    "GPU_FAIL",
    "DEADLINE",
)
_STYLES = {
    **dict.fromkeys(("RUNNING", "STARTING", "COMPLETED", "COMPLETING"), "good"),
    **dict.fromkeys(("PENDING", "SUSPENDED", "SUSPENDING", "MIGRATING", "PREEMPTED"), "wait"),
}


class Row(Record, kw_only=False):
    """A line of a listing: a job, or the first of several array elements that wait alike."""

    job: Job
    now: float
    tasks: str = ""
    count: int = 1
    predicted: bool = False

    @property
    def shown_id(self) -> str:
        """`11160_[2-9%2]` for folded elements."""
        return COLUMNS["id"].text(self)


OWN = {"now", "tasks", "count", "predicted"}  # fields of rows; all others are a job's


class OfFields(Generic[T]):
    """What is made of some fields of a row: for one row, or for a whole list by column."""

    __slots__ = ("fields", "make")

    def __init__(self, fields: str, make: Callable[..., T]) -> None:
        """Take the names of the fields, and what makes something of their values."""
        self.fields = fields.split()
        self.make = make

    def __call__(self, row: Row) -> T:
        """What is made of one row."""
        return self.make(*(getattr(row if name in OWN else row.job, name) for name in self.fields))

    def each(self, jobs: ListedJobs) -> Values:
        """What is made of each job of a list."""
        return combined([jobs.column(name) for name in self.fields], jobs.count, self.make)


def lines_of(found: Queue, *, predicted: bool) -> Callable[[Any], Values]:
    """What a column's text or style is for all lines of a queue, as of now."""
    own = {"now": Values([time.time()]), "predicted": Values([predicted])}
    jobs = found.lines.with_columns(**own)

    def of_rows(part: OfFields[Any]) -> Values:
        return part.each(jobs)

    return of_rows


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


def _id(job_id: int, array_job_id: int | None, task: int | None, tasks: str | None) -> str:
    """`11160_[2-9%2]` for folded elements."""
    return f"{array_job_id or job_id}_[{tasks}]" if tasks else shown_id(job_id, array_job_id, task)


def _where(
    state: str, ended_at: float | None, reason: str | None, nodes: Sequence[str], *told: Any
) -> str:
    """Where it runs; why it does not."""
    if Job.waits(state, ended_at):
        return _why(reason, *told)
    where = fold(nodes)
    return f"{where} ({reason})" if reason and where else where or reason or "-"


def _why(
    reason: str | None,
    predicted: bool,
    now: float,
    start_at: float | None,
    basis: str | None,
    least: float | None,
    most: float | None,
) -> str:
    parts = [reason or "-"]
    if predicted:
        if start_at is None:
            parts.append("start not predicted")
        else:
            told = [basis] if basis else []
            if least is not None:
                told.insert(0, interval_text(least, most, now))
            in_brackets = f" ({'; '.join(told)})" if told else ""
            parts.append(f"starts ~{clock_text(start_at, now)}{in_brackets}")
    return "; ".join(parts)


def _gpus(gang: Sequence[int], gpus: int) -> str:
    """`8`; `2x4` for 4 on each of two nodes; `4+2` for uneven gangs."""
    if len(gang) < 2:
        return str(gpus)
    if len(set(gang)) == 1:
        return f"{len(gang)}x{gang[0]}"
    return "+".join(map(str, gang))


def _indices(gpu_indices: Mapping[str, Sequence[int]]) -> str:
    from dlsched.jobs.task_sets import fold_tasks  # noqa: PLC0415

    pairs = gpu_indices.items()
    return ",".join(f"{node}[{fold_tasks(gpus, steps=True)}]" for node, gpus in pairs) or "-"


def _span(seconds: float | None) -> str:
    return "-" if seconds is None else duration_text(seconds)


def ran(
    state: str, ended_at: float | None, run_s: float | None, started_at: float | None, now: float
) -> str:
    """How long a job has run; `-` while it waits for its first run."""
    waits = Job.waits(state, ended_at)
    if run_s is None and started_at is not None and not waits:
        return _span((ended_at or now) - started_at)
    return "-" if not run_s and waits else _span(run_s)


def _left(limit_s: float | None, run_s: float | None) -> str:
    return "-" if limit_s is None else _span(limit_s - (run_s or 0.0))


def _delay(
    submitted_at: float | None, started_at: float | None, ended_at: float | None, now: float
) -> str:
    return "-" if submitted_at is None else _span((started_at or ended_at or now) - submitted_at)


def _later(at: float | None, than: float | None) -> str:
    return "-" if at is None or than is None else _difference(at - than)


def _reward(
    asked: Mapping[str, Any], state: str, submitted_at: float | None, ended_at: float | None
) -> str:
    """What the end has earned: a job that did not complete has its curve's last word."""
    text = asked.get("sla")
    if not isinstance(text, str) or not text or ended_at is None or submitted_at is None:
        return "-"
    from dlsched.core.rewards import RewardCurve  # noqa: PLC0415

    took = ended_at - submitted_at if state == "COMPLETED" else math.nan
    return f"{RewardCurve.of_text(text).earned(took):.4g}"


def _difference(seconds: float) -> str:
    return ("-" if seconds <= -LITTLE_S else "") + _span(abs(seconds))


def _jct(submitted_at: float | None, ended_at: float | None) -> str:
    return "-" if submitted_at is None or ended_at is None else _span(ended_at - submitted_at)


def _state(state: str, by: str | None) -> str:
    return f"{state} by {by}" if state == "CANCELLED" and by else state


def exit_text(job: Job) -> str:
    """`3:0`, `0:11`, or `-`."""
    return _exit(job.exit_code, job.exit_signal)


def _exit(code: int | None, signal: int | None) -> str:
    return "-" if code is None and signal is None else f"{code or 0}:{signal or 0}"


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


def _loss(loss: float | None, not_finite: Sequence[str]) -> str:
    return "nan" if "loss" in not_finite else brief(loss)


def _text(value: str | None) -> str:
    return value or "-"


def _code(state: str) -> str:
    return STATE_CODES.get(state, state)


def _style_of(state: str) -> str | None:
    return _STYLES.get(state, "bad")


_style = OfFields("state", _style_of)


def _field(
    name: str,
    title: str,
    doc: str,
    fields: str,
    shown: Callable[..., str] = _text,
    *,
    right: bool = False,
    least: int | None = None,
    style: Callable[[Row], str | None] | None = None,
) -> Column[Row]:
    """A column of some fields of rows; numbers and durations stand at the right."""
    right = right or shown in (_number, _span, str, brief, gib, percent)
    text = OfFields(fields, shown)
    return Column(name, title, doc, text, right=right, least=least, style=style)


_OF_WHERE = (
    "state ended_at reason nodes predicted now predicted_start_at predicted_basis"
    " predicted_start_p10_at predicted_start_p90_at"
)
_ALL: tuple[Column[Row], ...] = (
    _field(
        "id",
        "ID",
        "job, array element, or elements that wait alike",
        "job_id array_job_id array_task_id tasks",
        _id,
        right=True,
    ),
    _field("name", "NAME", "name", "name", least=8),
    _field("user", "USER", "owner", "user", least=6),
    _field("account", "ACCOUNT", "account", "account"),
    _field("vc", "VC", "virtual cluster", "vc", least=6),
    _field("partition", "PARTITION", "partition", "partition"),
    _field("class", "CLASS", "priority class", "priority_class"),
    _field(
        "st",
        "ST",
        "state in two or three letters",
        "state",
        _code,
        style=_style,
    ),
    _field("state", "STATE", "state", "state cancelled_by", _state, style=_style, least=9),
    _field("exit", "EXIT", "code:signal", "exit_code exit_signal", _exit, right=True),
    _field("gpus", "GPUS", "GPUs: in all, or nodes x GPUs", "gang gpus", _gpus, right=True),
    _field(
        "type",
        "TYPE",
        "GPU types asked for",
        "gpu_types gpus_by_type",
        lambda types, by_type: by_type or "|".join(types) or "any",
        least=5,
    ),
    _field(
        "time",
        "TIME",
        "time executed",
        "state ended_at run_s started_at now",
        ran,
        right=True,
    ),
    _field("limit", "LIMIT", "time limit", "time_limit_s", _span),
    _field("left", "LEFT", "time left to the limit", "time_limit_s run_s", _left, right=True),
    _field("where", "WHERE / WHY", "nodes, or why it waits", _OF_WHERE, _where, least=24),
    _field(
        "nodes", "NODES", "nodes it runs on", "nodes", lambda nodes: fold(nodes) or "-", least=8
    ),
    _field(
        "gpu_indices",
        "GPU INDICES",
        "which GPUs of its nodes",
        "gpu_indices",
        _indices,
        least=8,
    ),
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
    _field(
        "late",
        "LATE",
        "end minus deadline; negative: before it",
        "ended_at deadline_at",
        _later,
        right=True,
    ),
    _field(
        "reward",
        "REWARD",
        "earned by its reward curve (--sla)",
        "asked state submitted_at ended_at",
        _reward,
        right=True,
    ),
    _field("start", "START", "(first) predicted start", "predicted_start_at", column_text),
    _field("end", "END", "predicted end", "predicted_end_at", column_text),
    _field("basis", "BASIS", "what the prediction rests on", "predicted_basis"),
    _field(
        "start_error",
        "START ERROR",
        "actual minus first predicted start",
        "first_started_at predicted_start_at",
        _later,
        right=True,
    ),
    _field(
        "gpu_hours",
        "GPU-HOURS",
        "GPUs times hours",
        "gpu_s",
        lambda gpu_s: "-" if gpu_s is None else f"{gpu_s / 3600:.2f}",
        right=True,
    ),
    _field("jct", "JCT", "from submission to end", "submitted_at ended_at", _jct, right=True),
    _field(
        "delay",
        "DELAY",
        "from submission to first start",
        "submitted_at first_started_at ended_at now",
        _delay,
        right=True,
    ),
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
    _field(
        "loss",
        "LOSS",
        "the newest loss that it has reported",
        "loss not_finite",
        _loss,
        right=True,
    ),
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
