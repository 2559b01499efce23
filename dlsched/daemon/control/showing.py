"""Everything about some jobs: what was asked for, the runs, the events, and why it waits."""

from __future__ import annotations

from functools import partial

from dlsched.daemon.cluster import Cluster
from dlsched.daemon.control.choosing import chosen_ids, live, names_jobs, no_such
from dlsched.daemon.control.learning import training_view
from dlsched.daemon.control.views import Views, foretell, stored_view
from dlsched.daemon.launching import expand_pattern, output_pattern
from dlsched.daemon.trainings import Training
from dlsched.db.filters import ArrayElements, Filter
from dlsched.db.reading import StoredJob
from dlsched.db.records import JobSpec
from dlsched.protocol.ledger import Job, JobStatus
from dlsched.protocol.messages import JobId, Share
from dlsched.rpc.conversion import ENUMS, to_wire, wire_name
from dlsched.rpc.identity import Identity
from dlsched.rpc.v1 import control_pb2

__all__ = ["show"]

MOST = 100  # jobs in one answer
PATIENCE_S = 2.0  # with predictions: what is known by then is shown


async def show(
    cluster: Cluster, views: Views, request: control_pb2.ShowRequest, caller: Identity
) -> control_pb2.ShowReply:
    """The jobs that a filter names, live or ended.

    Raises:
        NotFound: when one of them does not exist.
    """
    reply = control_pb2.ShowReply()
    if not names_jobs(request.filter):
        rows, _ = live(cluster, request.filter, caller)
        for row in rows[:MOST]:
            reply.jobs.append(await _live_detail(cluster, views, row, caller, request.why_order))
        return reply
    found = chosen_ids(cluster, request.filter)
    for row in list(found.rows.values())[:MOST]:
        reply.jobs.append(await _live_detail(cluster, views, row, caller, request.why_order))
    for name, job in found.missing:
        stored = await cluster.shell.read(partial(_stored, cluster, name, job))
        if not stored:
            raise no_such(name)
        for each in stored[: MOST - len(reply.jobs)]:
            detail = control_pb2.JobDetail(job=stored_view(each))
            if each.spec is not None:
                _asked(detail, each.job, each.spec, caller)
            checkpoint = each.facts.checkpoint
            if checkpoint is not None:
                detail.last_checkpoint = checkpoint.path
                detail.last_checkpoint_step = checkpoint.step
            await _learns(detail, cluster, each.job.job)
            await _past(cluster, detail, each.job.job)
            reply.jobs.append(detail)
    return reply


def _stored(cluster: Cluster, name: str, job: JobId) -> list[StoredJob]:
    first, _, task = name.partition("_")
    some = ArrayElements(array_job=JobId(int(first)), tasks=(int(task),) if task else ())
    jobs = (job,) if job else ()
    wanted = Filter(jobs=jobs, elements=(some,))
    ended: list[StoredJob] = cluster.shell.store.history(wanted, limit=MOST)
    return ended


async def _live_detail(
    cluster: Cluster, views: Views, row: Job, caller: Identity, why_order: bool
) -> control_pb2.JobDetail:
    table = cluster.shell.table
    spec, facts = table.spec(row), table.of(row.job)
    detail = control_pb2.JobDetail(job=views.of(row))
    _asked(detail, row, spec, caller)
    if facts.checkpoint is not None:
        detail.last_checkpoint = facts.checkpoint.path
        detail.last_checkpoint_step = facts.checkpoint.step
    await _learns(detail, cluster, row.job)
    detail.beside.extend(cluster.board.beside(row.job))
    if row.status is JobStatus.PENDING:
        if cluster.board.position(row.job) is not None:  # a round has left it waiting
            starts = await cluster.predictions.starts(PATIENCE_S)
            foretell(detail.job, starts, cluster.predictions.ends)
        detail.why_pending.extend(_why(cluster, views, row))
    else:  # nobody waits for a forecast that a running job's end is only a part of
        foretell(detail.job, {}, cluster.predictions.ends)
    if why_order:
        position = cluster.board.position(row.job)
        detail.order_numbers["policy"] = cluster.board.settings.policy
        if position is not None:
            detail.order_numbers["position"] = str(position)
    await _past(cluster, detail, row.job)
    return detail


async def _learns(detail: control_pb2.JobDetail, cluster: Cluster, job: JobId) -> None:
    """What is believed of a job's training, or was when it ended."""
    shell = cluster.shell
    training, run = cluster.trainings.trainings.get(job), shell.committed.live_run(job)
    if training is None:
        told = await shell.read(partial(shell.store.training, job))
        training = None if told is None else Training.of_known(told.known)
    view = None if training is None else training_view(cluster, training, run)
    if view is not None:
        detail.training.CopyFrom(view)


def _why(cluster: Cluster, views: Views, row: Job) -> list[str]:
    lines = [views.reason(row)]
    position = cluster.board.position(row.job)
    if position is not None:
        policy = cluster.board.settings.policy
        lines.append(f"place {position} in the order of policy {policy}")
    refused = cluster.shell.refusals.get(row.job)
    if refused and refused not in lines[0]:
        lines.append(f"its last placement was refused: {refused}")
    if row.reason and row.reason not in ("Resources", lines[0]):
        lines.append(f"after its last run: {row.reason}")
    return lines


def _asked(detail: control_pb2.JobDetail, row: Job, spec: JobSpec, caller: Identity) -> None:
    body, request = spec.body, row.request
    asked = detail.request
    asked.name = body.name
    for name in ("partition", "vc", "priority_class", "gpu_types", "comment", "model", "notify"):
        value = getattr(body, name)
        if isinstance(value, tuple):
            getattr(asked, name).extend(value)
        else:
            setattr(asked, name, value)
    for name in (
        "gpus", "min_gpus", "max_gpus", "share", "cpus", "memory_bytes", "time_limit_s", "begin_at",
        "deadline_at", "priority", "batch_size", "total_iterations", "weight", "expected_s",
    ):  # fmt: skip
        value = getattr(body, name)
        if value is not None:
            setattr(asked, name, value)
    if row.terms.limits.time_s is not None:
        asked.time_limit_s = row.terms.limits.time_s
    asked.only_nodes.extend(body.only_nodes)
    asked.not_nodes.extend(body.not_nodes)
    asked.exclusive, asked.no_requeue = body.exclusive, not body.requeue
    asked.retries, asked.grace_s = row.terms.retries, row.terms.grace_s
    for field, each in (
        ("mode", request.mode), ("fence", request.fence), ("suspend_level", request.suspend_level),
    ):  # fmt: skip
        setattr(asked, field, ENUMS[type(each)].Value(wire_name(each)))
    mine = caller.is_operator or caller.name == spec.user
    if mine:  # others see no command, path or script
        asked.argv.extend(body.argv)
        asked.script = body.script
        asked.working_directory = body.working_directory
        asked.submit_host = body.submit_host
        detail.working_directory = body.working_directory
        detail.output = output_pattern(row.job, spec)
        detail.error = expand_pattern(body.error, row.job, spec)
        for key, value in body.extra.items():
            asked.extra[key] = value


async def _past(cluster: Cluster, detail: control_pb2.JobDetail, job: JobId) -> None:
    """Runs and events, from the store."""
    shell = cluster.shell
    runs = await shell.read(partial(shell.store.runs, job))
    for each in runs:
        view = detail.runs.add(
            run=each.run.key.run,
            started_at=each.released_at or each.assigned_at,
            end=each.end,
            executed_s=each.executed_s,
        )
        if each.ended_at is not None:
            view.ended_at = each.ended_at
        for member in each.run.members.values():
            view.layout.append(to_wire(Share(node=member.node, gpus=member.gpus)))
            if member.exit is not None and (member.exit.code or member.exit.signal):
                view.code, view.signal = member.exit.code, member.exit.signal
        if each.progress is not None:
            view.last_step = each.progress.step
    for stored in await shell.read(partial(shell.store.events, job)):
        event = stored.event
        detail.events.add(
            at=event.at,
            kind=event.kind,
            actor=event.actor,
            text=event.text,
            node=event.node or "",
        )
