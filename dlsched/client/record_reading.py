"""From messages to records; zero and empty become None if they mean "not known".

The messages are a client's or protobuf's: both have the same attributes.
"""

from __future__ import annotations

from typing import Any

from dlsched.client.job_reading import job_of
from dlsched.client.record_fields import record_of
from dlsched.client.records import (
    Checkpoint,
    Detail,
    Event,
    ExpectedGoodput,
    Gpu,
    Metrics,
    Node,
    Point,
    Run,
    Rung,
    Share,
    Shares,
    Sweep,
    SweptJob,
    Training,
    Unsaved,
    Usage,
)
from dlsched.client.submission.texts import wrapped_line
from dlsched.jobs.sweep import Halving
from dlsched.record import field_names


def detail_of(message: Any) -> Detail:
    """Return the record of a `JobDetail`."""
    request = message.request
    return record_of(
        Detail,
        message,
        job=job_of(message.job, request),
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
        events=tuple(record_of(Event, view) for view in message.events),
        order_numbers=dict(sorted(message.order_numbers.items())),
        working_directory=message.working_directory or request.working_directory or None,
        output=message.output or request.output or None,
        error=message.error or request.error or None,
        last_checkpoint_step=message.last_checkpoint_step if message.last_checkpoint else None,
        unsaved=unsaved_of(message.unsaved) if message.HasField("unsaved") else None,
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
    return record_of(
        Training,
        view,
        model_ms=model,
        noise_scale=view.initial * view.gradient_var / view.gradient_sqr if noisy else None,
        batch_size=view.replicas * view.batch.local * passes,
        local_batch=view.batch.local,
        passes=passes,
        sizes=tuple(
            record_of(
                ExpectedGoodput,
                size,
                batch_size=size.gpus * size.batch.local * (size.batch.accumulation + 1),
            )
            for size in view.sizes
        ),
    )


def node_of(view: Any) -> Node:
    """Return the record of a `NodeView`."""
    return record_of(Node, view, devices=tuple(record_of(Gpu, each) for each in view.devices))


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
            record_of(
                SweptJob,
                each,
                array_job_id=reply.job,
                parameters=dict(zip(table.columns, each.values, strict=False)),
                metrics=dict(sorted(each.metrics.items())),
                rungs=tuple(record_of(Rung, rung) for rung in each.rungs),
            )
            for each in reply.elements
        ),
        halving=record_of(Halving, rule) if table.HasField("halving") else None,
    )


def unsaved_of(view: Any) -> Unsaved:
    """Return the record of an `UnsavedView`."""
    return record_of(Unsaved, view)


def checkpoint_of(view: Any) -> Checkpoint:
    """Return the record of a `CheckpointView`."""
    return record_of(Checkpoint, view)


def usage_of(view: Any) -> Usage:
    """Return the record of a `UsageView`."""
    return record_of(Usage, view)


def shares_of(reply: Any) -> Shares:
    """Return the tree of fair shares of a `UsageReply`."""
    rows = [
        Share(**{name: getattr(each, name) for name in field_names(Share)}) for each in reply.shares
    ]
    return Shares(rows=rows, half_life_s=reply.half_life_s, level=reply.level)


def _run(view: Any) -> Run:
    over = view.HasField("ended_at")
    return record_of(
        Run,
        view,
        nodes=tuple(share.node for share in view.layout),
        gpus=sum(len(share.gpus) for share in view.layout),
        exit_code=view.code if over else None,
        exit_signal=view.signal if over else None,
    )
