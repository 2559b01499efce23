"""From messages to records; zero and empty become None if they mean "not known".

The messages are a client's or protobuf's: both have the same attributes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from functools import cache
from typing import Any, TypeVar

from dlsched.client.records import (
    Checkpoint,
    Detail,
    Event,
    ExpectedGoodput,
    Folded,
    Gpu,
    Job,
    Metrics,
    Node,
    Point,
    Queue,
    Run,
    Rung,
    Share,
    Shares,
    Step,
    Summary,
    Sweep,
    SweptJob,
    Training,
    Usage,
)
from dlsched.client.submission.texts import wrapped_line
from dlsched.jobs.field import Value
from dlsched.jobs.sweep import Halving
from dlsched.rpc import messages
from dlsched.rpc.job_fields import SENT, get_fields, said_fields
from dlsched.rpc.messages import message_class

T = TypeVar("T")

# fields of records that have another name in the message
_THEIRS: dict[type, dict[str, str]] = {
    Job: {
        "job_id": "job",
        "array_job_id": "array_job",
        "array_task_id": "array_task",
        "exit_code": "code",
        "exit_signal": "signal",
    },
    Checkpoint: {"job_id": "job", "array_job_id": "array_job", "array_task_id": "array_task"},
    Run: {"run_s": "executed_s"},
    SweptJob: {"job_id": "job", "array_task_id": "task"},
    Node: {"reason": "why", "reason_by": "why_actor", "reason_at": "why_at"},
    Gpu: {"reason": "why"},
    Training: {
        "gpus": "replicas",
        "initial_batch": "initial",
        "maximum_batch": "maximum",
        "batch_is_fixed": "fixed",
        "ignored_reports": "ignored",
    },
}


@cache
def _names(kind: type, message: str) -> dict[int, tuple[str, bool]]:
    """A record's name of each field of its message, by the field's number, and: is it a list?"""
    theirs = _THEIRS.get(kind, {})
    ours = {theirs.get(each.name, each.name): each.name for each in fields(kind)}
    return {
        each.number: (ours[each.name], each.is_repeated)
        for each in message_class(message).fields_by_name.values()
        if each.name in ours
    }


@cache
def _unsaid(kind: type, message: str) -> dict[str, Any]:
    """What a record has of an empty message."""
    made = message_class(message)
    empty, unknown = made(), {each.name for each in fields(kind) if each.default is None}
    found: dict[str, Any] = {}
    for number, (ours, is_list) in _names(kind, message).items():
        default = getattr(empty, made.fields_by_number[number].name)
        found[ours] = () if is_list else None if ours in unknown else default
    return found


def _said(kind: type, view: Any) -> dict[str, Any]:
    """The fields of a record that its message says."""
    names = _names(kind, type(view).__name__)
    found = {}
    for field, value in view.ListFields():
        known = names.get(field.number)
        if known is not None:
            found[known[0]] = tuple(value) if known[1] else value
    return found


def _read(kind: type, view: Any) -> dict[str, Any]:
    """The fields of a record that its message has, said or not."""
    return _unsaid(kind, type(view).__name__) | _said(kind, view)


def _record(kind: type[T], view: Any, **own: Any) -> T:
    """The record of a message; `own` are the fields that are not as the message has them."""
    return kind(**(_read(kind, view) | own))


_VIEW = message_class("JobView").fields_by_name
# fields that the message has itself and a `Job` only among those asked for
_FURTHER = {row.name for row in SENT if row.name in _VIEW}
_FURTHER -= set(Job.__dataclass_fields__)


def _counts(name: str, value: Value) -> bool:
    """Whether a field of a request is shown of a job that has it."""
    return value not in (None, "", ()) and name not in Job.__dataclass_fields__


_UNSAID = get_fields(messages.JobRequest())
_QUIET = {name: value for name, value in _UNSAID.items() if _counts(name, value)}


def _asked(request: Any) -> dict[str, Value]:
    """The fields of a `JobRequest` that are said and that a `Job` has not itself, by name."""
    said = said_fields(request)
    found = {name: value for name, value in _QUIET.items() if name not in said}
    return found | {name: value for name, value in said.items() if _counts(name, value)}


def _of_training(view: Any) -> dict[str, Any]:
    return _said(Job, view) | {"metrics": dict(sorted(view.metrics.items()))}


_PLAIN = {n: name for n, (name, is_list) in _names(Job, "JobView").items() if not is_list}
_READ: dict[str, Callable[[Any], dict[str, Any]]] = {
    "gang": lambda gang: {"gang": tuple(gang)},
    "gpu_types": lambda types: {"gpu_types": tuple(types)},
    "nodes": lambda nodes: {"nodes": tuple(nodes)},
    "where": lambda where: {"gpu_indices": {each.node: tuple(each.gpus) for each in where}},
    "dependencies": lambda those: {"dependencies": tuple(map(_dependency, those))},
    "steps": lambda steps: {"steps": tuple(_record(Step, each) for each in steps)},
    "training": _of_training,
}
_PARTS = {_VIEW[name].number: read for name, read in _READ.items()}


def job_of(view: Any) -> Job:
    """Return the record of a `JobView`.

    Ten thousand of them make a list, so only the few fields that the message says are looked at
    and set: the others are the class's defaults.
    """
    found: dict[str, Any] = {"job_id": view.job, "gpu_indices": {}, "metrics": {}}
    for field, value in view.ListFields():
        number = field.number
        if number in _PLAIN:
            found[_PLAIN[number]] = value
        elif number in _PARTS:
            found |= _PARTS[number](value)
    found["asked"] = {name: getattr(view, name) for name in _FURTHER if view.HasField(name)}
    if view.HasField("asked"):
        found["asked"] |= _asked(view.asked)
    job = object.__new__(Job)
    vars(job).update(found)
    return job


def queue_page_of(page: Any) -> Queue:
    """Return the record of one `QueuePage`; only the last one has a summary."""
    last = page.summary
    return Queue(
        jobs=tuple(map(job_of, page.jobs)),
        folded=tuple(
            Folded(first=job_of(each.first), tasks=each.tasks, count=each.count)
            for each in page.folded
        ),
        summary=_record(Summary, last, round_s=last.round_s if last.round else None),
    )


def queue_of(pages: list[Queue]) -> Queue:
    """Return the record of an answer in pages."""
    return Queue(
        jobs=tuple(job for page in pages for job in page.jobs),
        folded=tuple(line for page in pages for line in page.folded),
        summary=pages[-1].summary if pages else Summary(),
    )


def detail_of(message: Any) -> Detail:
    """Return the record of a `JobDetail`."""
    request = message.request
    return _record(
        Detail,
        message,
        job=replace(job_of(message.job), asked=_asked(request)),
        extra=dict(sorted(request.extra.items())),
        parameters=dict(
            zip(
                request.sweep.columns,
                (v for r in request.sweep.rows for v in r.values),
                strict=False,
            )
        ),
        command=tuple(request.argv),
        has_script=bool(request.script),
        wrap=wrapped_line(request.script),
        runs=tuple(_run(view) for view in message.runs),
        events=tuple(_record(Event, view) for view in message.events),
        order_numbers=dict(sorted(message.order_numbers.items())),
        working_directory=message.working_directory or request.working_directory or None,
        output=message.output or request.output or None,
        error=message.error or request.error or None,
        last_checkpoint_step=message.last_checkpoint_step if message.last_checkpoint else None,
        training=_training(message.training) if message.HasField("training") else None,
    )


MODEL = ("alpha_c", "beta_c", "alpha_n", "beta_n", "alpha_r", "beta_r")  # seconds, then gamma


def _training(view: Any) -> Training:
    """Return the record of a `TrainingView`; times of the model in milliseconds."""
    model = {name: 1e3 * seconds for name, seconds in zip(MODEL, view.model[:6], strict=False)}
    if len(view.model) > len(MODEL):
        model["gamma"] = view.model[len(MODEL)]
    noisy = view.HasField("gradient_sqr") and view.gradient_sqr > 0
    passes = view.batch.accumulation + 1
    return _record(
        Training,
        view,
        model_ms=model,
        noise_scale=view.initial * view.gradient_var / view.gradient_sqr if noisy else None,
        batch_size=view.replicas * view.batch.local * passes,
        local_batch=view.batch.local,
        passes=passes,
        sizes=tuple(
            _record(
                ExpectedGoodput,
                size,
                batch_size=size.gpus * size.batch.local * (size.batch.accumulation + 1),
            )
            for size in view.sizes
        ),
    )


def node_of(view: Any) -> Node:
    """Return the record of a `NodeView`."""
    return _record(Node, view, devices=tuple(_record(Gpu, each) for each in view.devices))


def metrics_of(reply: Any) -> Metrics:
    """Return the record of a `MetricsReply`."""
    return Metrics(
        curves={
            each.name: tuple(
                Point(at=at, step=step, value=value)
                for at, step, value in zip(each.at, each.step, each.value, strict=True)
            )
            for each in reply.curves
        },
        left_out=reply.left_out,
    )


def sweep_of(reply: Any) -> Sweep:
    """Return the record of a `SweepReply`."""
    table, rule = reply.table, reply.table.halving
    return Sweep(
        name=reply.name,
        columns=tuple(table.columns),
        jobs=tuple(
            _record(
                SweptJob,
                each,
                array_job_id=reply.job,
                parameters=dict(zip(table.columns, each.values, strict=False)),
                metrics=dict(sorted(each.metrics.items())),
                rungs=tuple(_record(Rung, rung) for rung in each.rungs),
            )
            for each in reply.elements
        ),
        halving=_record(Halving, rule) if table.HasField("halving") else None,
    )


def checkpoint_of(view: Any) -> Checkpoint:
    """Return the record of a `CheckpointView`."""
    return _record(Checkpoint, view)


def usage_of(view: Any) -> Usage:
    """Return the record of a `UsageView`."""
    return _record(Usage, view)


def shares_of(reply: Any) -> Shares:
    """Return the tree of fair shares of a `UsageReply`."""
    rows = [
        Share(**{field.name: getattr(each, field.name) for field in fields(Share)})
        for each in reply.shares
    ]
    return Shares(rows=rows, half_life_s=reply.half_life_s, level=reply.level)


def _run(view: Any) -> Run:
    over = view.HasField("ended_at")
    return _record(
        Run,
        view,
        nodes=tuple(share.node for share in view.layout),
        gpus=sum(len(share.gpus) for share in view.layout),
        exit_code=view.code if over else None,
        exit_signal=view.signal if over else None,
    )


def _dependency(view: Any) -> str:
    if not view.job:
        return str(view.kind)
    task = f"_{view.task}" if view.HasField("task") else ""
    delay = f"+{view.delay_s / 60:g}" if view.delay_s else ""
    return f"{view.kind}:{view.job}{task}{delay}{'?' if view.or_next else ''}"
