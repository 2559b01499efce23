"""From the wire's messages to the client's values: zero and empty become None where not known."""

from __future__ import annotations

from typing import Any

from dlsched.client.views import (
    Detail,
    Event,
    ExpectedGoodput,
    Folded,
    Gpu,
    Job,
    Node,
    Queue,
    Run,
    Summary,
    Training,
    Usage,
)

__all__ = [
    "detail_of",
    "job_of",
    "node_of",
    "queue_of",
    "usage_of",
]


def job_of(view: Any) -> Job:
    """A `JobView`."""
    known = view.HasField
    return Job(
        job_id=view.job,
        array_job_id=view.array_job if known("array_job") else None,
        array_task_id=view.array_task if known("array_task") else None,
        name=view.name or None,
        user=view.user or None,
        account=view.account or None,
        vc=view.vc or None,
        partition=view.partition or None,
        priority_class=view.priority_class or None,
        state=view.state or "PENDING",
        reason=view.reason or None,
        gpus=view.gpus,
        gang=tuple(view.gang),
        gpu_types=tuple(view.gpu_types),
        nodes=tuple(view.nodes),
        gpu_indices={each.node: tuple(each.gpus) for each in view.where},
        submitted_at=view.submitted_at or None,
        first_started_at=view.first_started_at if known("first_started_at") else None,
        started_at=view.started_at if known("started_at") else None,
        ended_at=view.ended_at if known("ended_at") else None,
        run_s=view.run_s if known("run_s") else None,
        gpu_s=view.gpu_s if known("gpu_s") else None,
        lost_s=view.lost_s,
        restart_s=view.restart_s if known("restart_s") else None,
        starting_s=view.starting_s,
        gpu_share=view.gpu_share if known("gpu_share") else None,
        run=view.run or None,
        starts=view.starts,
        preemptions=view.preemptions,
        migrations=view.migrations,
        resizes=view.resizes,
        failures=view.failures,
        exit_code=view.code if known("code") else None,
        exit_signal=view.signal if known("signal") else None,
        cancelled_by=view.cancelled_by or None,
        time_limit_s=view.time_limit_s if known("time_limit_s") else None,
        begin_at=view.begin_at if known("begin_at") else None,
        deadline_at=view.deadline_at if known("deadline_at") else None,
        priority=view.priority if known("priority") else None,
        held=view.held,
        position=view.position if known("position") else None,
        predicted_start_at=view.predicted_start_at if known("predicted_start_at") else None,
        predicted_basis=view.predicted_basis or None,
        predicted_end_at=view.predicted_end_at if known("predicted_end_at") else None,
        array_limit=view.array_limit or None,
        dependencies=tuple(_dependency(each) for each in view.dependencies),
        progress=view.progress if known("progress") else None,
        model=view.model or None,
        comment=view.comment or None,
    )


def queue_of(pages: list[Any]) -> Queue:
    """The pages of one answer."""
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
        else Summary(
            running=last.running,
            running_gpus=last.running_gpus,
            pending=last.pending,
            pending_gpus=last.pending_gpus,
            gpus=last.gpus,
            busy_gpus=last.busy_gpus,
            policy=last.policy or None,
            round=last.round or None,
            round_s=last.round_s if last.round else None,
            others=last.others,
        ),
    )


def detail_of(message: Any) -> Detail:
    """A `JobDetail`."""
    return Detail(
        job=job_of(message.job),
        command=tuple(message.request.argv),
        has_script=bool(message.request.script),
        runs=tuple(_run(view) for view in message.runs),
        events=tuple(
            Event(
                at=view.at,
                kind=view.kind,
                actor=view.actor or None,
                text=view.text or None,
                run=view.run or None,
                node=view.node or None,
            )
            for view in message.events
        ),
        why_pending=tuple(message.why_pending),
        order_numbers=dict(sorted(message.order_numbers.items())),
        working_directory=message.working_directory or message.request.working_directory or None,
        output=message.output or message.request.output or None,
        error=message.error or message.request.error or None,
        last_checkpoint=message.last_checkpoint or None,
        last_checkpoint_step=message.last_checkpoint_step if message.last_checkpoint else None,
        training=_training(message.training) if message.HasField("training") else None,
        beside=tuple(message.beside),
    )


MODEL = ("alpha_c", "beta_c", "alpha_n", "beta_n", "alpha_r", "beta_r")  # seconds, then gamma


def _training(view: Any) -> Training:
    """A `TrainingView`."""
    model = {name: 1e3 * seconds for name, seconds in zip(MODEL, view.model[:6], strict=False)}
    if len(view.model) > len(MODEL):
        model["gamma"] = view.model[len(MODEL)]
    noisy = view.HasField("gradient_sqr") and view.gradient_sqr > 0
    passes = view.batch.accumulation + 1
    return Training(
        gpu_type=view.gpu_type or None,
        model_ms=model,
        observations=view.observations,
        noise_scale=view.initial * view.gradient_var / view.gradient_sqr if noisy else None,
        gpus=view.replicas,
        nodes=view.nodes,
        batch_size=view.replicas * view.batch.local * passes,
        local_batch=view.batch.local,
        passes=passes,
        initial_batch=view.initial,
        maximum_batch=view.maximum,
        batch_is_fixed=view.fixed,
        progress=view.progress,
        sizes=tuple(
            ExpectedGoodput(
                gpus=size.gpus,
                nodes=size.nodes,
                goodput=size.goodput,
                throughput=size.throughput,
                batch_size=size.gpus * size.batch.local * (size.batch.accumulation + 1),
            )
            for size in view.sizes
        ),
        restart_s=view.restart_s if view.HasField("restart_s") else None,
        save_s=view.save_s if view.HasField("save_s") else None,
        ignored_reports=view.ignored,
    )


def node_of(view: Any) -> Node:
    """A `NodeView`."""
    known = view.HasField
    return Node(
        name=view.name,
        state=view.state,
        reason=view.why or None,
        reason_by=view.why_actor if known("why_actor") else None,
        reason_at=view.why_at if known("why_at") else None,
        gpu_type=view.gpu_type or None,
        gpus=view.gpus,
        busy_gpus=view.busy_gpus,
        cpus=view.cpus if known("cpus") else None,
        memory_bytes=view.memory_bytes if known("memory_bytes") else None,
        partitions=tuple(view.partitions),
        jobs=tuple(view.jobs),
        heard_ago_s=view.heard_ago_s if known("heard_ago_s") else None,
        address=view.address or None,
        agent_version=view.agent_version or None,
        launcher=view.launcher or None,
        capabilities=tuple(view.capabilities),
        devices=tuple(_gpu(each) for each in view.devices),
    )


def usage_of(view: Any) -> Usage:
    """A `UsageView`."""
    return Usage(
        name=view.name,
        gpu_s=view.gpu_s,
        gpus_now=view.gpus_now,
        entitlement=view.entitlement if view.HasField("entitlement") else None,
        pending=view.pending,
    )


def _run(view: Any) -> Run:
    known, over = view.HasField, view.HasField("ended_at")
    return Run(
        run=view.run,
        nodes=tuple(share.node for share in view.layout),
        gpus=sum(len(share.gpus) for share in view.layout),
        started_at=view.started_at or None,
        ended_at=view.ended_at if over else None,
        end=view.end or None,
        exit_code=view.code if over else None,
        exit_signal=view.signal if over else None,
        run_s=view.executed_s if known("executed_s") else None,
        last_step=view.last_step or None,
    )


def _gpu(view: Any) -> Gpu:
    known = view.HasField
    return Gpu(
        index=view.index,
        uuid=view.uuid or None,
        type=view.type or None,
        state=view.state or None,
        reason=view.why or None,
        jobs=tuple(view.jobs),
        utilization=view.utilization if known("utilization") else None,
        memory_used_bytes=view.memory_used_bytes if known("memory_used_bytes") else None,
        memory_bytes=view.memory_bytes if known("memory_bytes") else None,
        temperature_c=view.temperature_c if known("temperature_c") else None,
    )


def _dependency(view: Any) -> str:
    if not view.job:
        return str(view.kind)
    task = f"_{view.task}" if view.HasField("task") else ""
    delay = f"+{view.delay_s / 60:g}" if view.delay_s else ""
    return f"{view.kind}:{view.job}{task}{delay}{'?' if view.or_next else ''}"
