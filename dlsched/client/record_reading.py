"""From protobuf messages to records; zero and empty become None if they mean "not known"."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from functools import cache
from operator import attrgetter
from typing import Any, TypeVar

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message_factory import GetMessageClass

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
from dlsched.rpc.job_fields import SENT, get_fields, said_fields
from dlsched.rpc.v1 import control_pb2

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
def _readers(kind: type, message: Descriptor) -> tuple[tuple[str, Callable[[Any], Any]], ...]:
    """How each field of a record is read from its message, by the record's name of it."""
    theirs = _THEIRS.get(kind, {})
    return tuple(
        (each.name, _reader(message.fields_by_name[name], is_unknown=each.default is None))
        for each in fields(kind)
        if (name := theirs.get(each.name, each.name)) in message.fields_by_name
    )


def _reader(field: FieldDescriptor, *, is_unknown: bool) -> Callable[[Any], Any]:
    """How a message's field is read; `is_unknown` where a record has None for what is not said."""
    name: str = field.name
    if field.is_repeated:
        return lambda view: tuple(getattr(view, name))
    if not is_unknown:
        return attrgetter(name)
    if field.has_presence:
        return lambda view: getattr(view, name) if view.HasField(name) else None
    return lambda view: getattr(view, name) or None


@cache
def _unsaid(
    kind: type, message: Descriptor
) -> tuple[dict[str, Any], dict[str, tuple[str, Callable[[Any], Any]]]]:
    """What a record has of an empty message, and how the fields that are set are read.

    The first by the record's names, the second by the message's.
    """
    empty = GetMessageClass(message)()
    theirs = _THEIRS.get(kind, {})
    readers = _readers(kind, message)
    return (
        {name: read(empty) for name, read in readers},
        {theirs.get(name, name): (name, read) for name, read in readers},
    )


def _read(kind: type, view: Any) -> dict[str, Any]:
    """The fields of a record that a message has; only those that are set are looked at."""
    unsaid, readers = _unsaid(kind, view.DESCRIPTOR)
    found = dict(unsaid)
    for said, _ in view.ListFields():
        known = readers.get(said.name)
        if known is not None:
            found[known[0]] = known[1](view)
    return found


def _record(kind: type[T], view: Any, **own: Any) -> T:
    """The record of a message; `own` are the fields that are not as the message has them."""
    return kind(**(_read(kind, view) | own))


# fields that the message has itself and a `Job` only among those asked for
_FURTHER = {row.name for row in SENT if row.name in control_pb2.JobView.DESCRIPTOR.fields_by_name}
_FURTHER -= set(Job.__dataclass_fields__)


def _counts(name: str, value: Value) -> bool:
    """Whether a field of a request is shown of a job that has it."""
    return value not in (None, "", ()) and name not in Job.__dataclass_fields__


_UNSAID = get_fields(control_pb2.JobRequest())
_QUIET = {name: value for name, value in _UNSAID.items() if _counts(name, value)}


def job_of(view: Any) -> Job:
    """Return the record of a `JobView`."""
    known = {name: getattr(view, name) for name in _FURTHER if view.HasField(name)}
    now = view.training
    return _record(
        Job,
        view,
        **_read(Job, now) | {"metrics": dict(sorted(now.metrics.items()))},
        state=view.state or "PENDING",
        gpu_indices={each.node: tuple(each.gpus) for each in view.where},
        steps=tuple(_record(Step, each) for each in view.steps),
        dependencies=tuple(_dependency(each) for each in view.dependencies),
        asked=known | _said(view.asked) if view.HasField("asked") else known,
    )


def _said(request: Any) -> dict[str, Value]:
    """The fields of a `JobRequest` that are said and that a `Job` has not itself, by name."""
    said = said_fields(request)
    found = {name: value for name, value in _QUIET.items() if name not in said}
    return found | {name: value for name, value in said.items() if _counts(name, value)}


def queue_of(pages: list[Any]) -> Queue:
    """Return the record of an answer in pages."""
    last = pages[-1].summary if pages else None
    return Queue(
        jobs=tuple(job_of(view) for page in pages for view in page.jobs),
        folded=tuple(
            Folded(first=job_of(each.first), tasks=each.tasks, count=each.count)
            for page in pages
            for each in page.folded
        ),
        summary=Summary()
        if last is None
        else _record(Summary, last, round_s=last.round_s if last.round else None),
    )


def detail_of(message: Any) -> Detail:
    """Return the record of a `JobDetail`."""
    request = message.request
    return _record(
        Detail,
        message,
        job=replace(job_of(message.job), asked=_said(request)),
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
