"""Everything about some jobs: what was asked for, the runs, the events, and why it waits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from dlsched.daemon.cluster import Cluster
from dlsched.daemon.control.checkpoint_lists import unsaved_view
from dlsched.daemon.control.job_filters import (
    check_filter,
    chosen_ids,
    live_jobs,
    names_jobs,
    no_such,
    stored_names,
)
from dlsched.daemon.control.sweeps import put_table
from dlsched.daemon.control.views import LiveViews, fields_now, stored_views
from dlsched.daemon.enforcing.host_shares import shown_share
from dlsched.daemon.launching import expand_pattern, output_pattern
from dlsched.daemon.live.nodes import LiveNodes
from dlsched.daemon.predictions import JobForecast, Predictions
from dlsched.daemon.reported.curves import OURS
from dlsched.daemon.reported.training_profiles import Expected, Place, TrainingProfile
from dlsched.daemon.turns import in_turns
from dlsched.db.contents import JobContent
from dlsched.db.reading.queries import JobPast, StoredJob
from dlsched.db.records import CheckpointCommitted, JobSpec
from dlsched.jobs.fields import BY_NAME
from dlsched.protocol.ledger import Job, JobStatus, Run, with_cause, without_words
from dlsched.protocol.messages import JobId, NodeName, Share
from dlsched.rpc.conversion import to_wire
from dlsched.rpc.identity import Identity
from dlsched.rpc.job_fields import put_fields
from dlsched.rpc.v1 import control_pb2

MOST = 100  # jobs in one answer
MOST_BYTES = 8 << 20  # of their scripts and arguments, beside those of the first one
OWNERS_ONLY = ("cause", "stacks", "checkpoint-failed")  # events whose text is from inside the job
PATIENCE_S = 2.0  # with predictions: what is known by then is shown


@dataclass(eq=False, slots=True)
class JobDetails:
    """Everything about some jobs."""

    cluster: Cluster
    views: LiveViews
    predictions: Predictions

    async def show(
        self, request: control_pb2.ShowRequest, caller: Identity
    ) -> control_pb2.ShowReply:
        """A page of the jobs that a filter names, live ones first, and their number.

        A page costs as many reads of the database as one job: other calls find its readers free.

        Raises:
            NotFound: when one of them does not exist.
        """
        cluster, reply = self.cluster, control_pb2.ShowReply()
        if request.order_only:
            jobs, terms = cluster.live.order()
            reply.order.policy = cluster.round_state.settings.policy
            reply.order.jobs.extend(jobs)
            for name, values in terms.items():
                reply.order.terms.add(name=name, values=values)
            return reply
        check_filter(request.filter)
        if not names_jobs(request.filter):
            rows, missing = (await live_jobs(cluster, request.filter, caller))[0], []
        else:
            found = chosen_ids(cluster, request.filter)
            rows, missing = list(found.rows.values()), found.missing
        named = await stored_names(cluster, missing)
        for name, found_ids in named.items():
            if not found_ids:
                raise no_such(name)
        ids = list(dict.fromkeys(job for some in named.values() for job in some))
        reply.total = len(rows) + len(ids)
        skip, store = max(request.skip, 0), cluster.driver.store
        rows, ids = rows[skip : skip + MOST], ids[max(skip - len(rows), 0) :]
        ids = ids[: MOST - len(rows)]
        stored = await cluster.driver.read(partial(store.jobs, ids)) if ids else []
        rows, ids = self._within(rows, ids, stored)
        stored = [each for each in stored if each.job.job in ids]
        pasts = await cluster.driver.read(partial(store.pasts, [*(row.job for row in rows), *ids]))
        position = cluster.live.position
        if any(position(row.job) is not None for row in rows if row.status is JobStatus.PENDING):
            starts = await self.predictions.starts(PATIENCE_S)
        else:
            starts = {}
        mine = [
            row.job
            for row in (*rows, *(each.job for each in stored))
            if caller.is_operator or caller.name == row.request.user
        ]
        contents = await cluster.driver.read(partial(store.contents, mine)) if mine else {}
        async for row in in_turns(rows):
            reply.jobs.append(self._live_detail(row, caller, starts, pasts[row.job]))
            _put_content(reply.jobs[-1], row, contents.get(row.job))
            if request.why_order:
                self._put_order(reply.jobs[-1], row)
        for each in stored:
            reply.jobs.append(self._stored_detail(each, caller, pasts[each.job.job]))
            _put_content(reply.jobs[-1], each.job, contents.get(each.job.job))
        return reply

    def _within(
        self, rows: list[Job], ids: list[JobId], stored: Sequence[StoredJob]
    ) -> tuple[list[Job], list[JobId]]:
        """The first of some jobs, live ones and `ids`, whose scripts one answer may have."""
        table, total = self.cluster.driver.table, 0
        specs = {each.job.job: each.spec for each in stored}
        for place, spec in enumerate((*map(table.spec, rows), *map(specs.get, ids))):
            if spec is not None:
                shared = len(spec.array.tasks) if spec.array is not None else 1
                total += spec.content_bytes * shared
            if place and total > MOST_BYTES:
                return rows[:place], ids[: max(place - len(rows), 0)]
        return rows, ids

    def _stored_detail(
        self, stored: StoredJob, caller: Identity, past: JobPast
    ) -> control_pb2.JobDetail:
        views = stored_views([stored])
        views.hide_from(caller)
        detail = control_pb2.JobDetail(job=views.messages()[0])
        spec = stored.spec
        mine = caller.is_operator or caller.name == stored.job.request.user
        if spec is not None:
            _put_request(detail, stored.job, spec, stored.facts.updated, mine)
        self._put_past(detail, stored.job.job, past, stored.facts.checkpoint, mine)
        return detail

    def _live_detail(
        self, row: Job, caller: Identity, starts: Mapping[int, JobForecast], past: JobPast
    ) -> control_pb2.JobDetail:
        live, table, ends = self.cluster.live, self.cluster.driver.table, self.predictions.ends
        spec, facts = table.spec(row), table.of(row.job)
        views, pending = self.views.of([row]), row.status is JobStatus.PENDING
        views.hide_from(caller)
        if not pending:  # the known end of a running job is shown, without a new forecast
            views.predict({}, ends)
        elif live.position(row.job) is not None:  # a round has left it waiting
            views.predict(starts, ends)
        detail = control_pb2.JobDetail(job=views.messages()[0])
        mine = caller.is_operator or caller.name == spec.user
        _put_request(detail, row, spec, facts.updated, mine)
        curves = self.cluster.curves.jobs.get(row.job)
        if mine and curves is not None:
            detail.job.training.metrics.update(
                {name: curves.newest[name] for name in curves.newest if name not in OURS}
            )
        if past.gpu_used is not None:
            detail.job.gpu_used = past.gpu_used
        detail.beside.extend(live.co_located(row.job))
        detail.awaited_by.extend(live.eligibility.awaited_by(row.job, spec))
        detail.host_share = shown_share(self.cluster.driver, row, self._without_limits(row))
        if pending:
            why = self._why(row)
            detail.why_pending.extend(why if mine else map(without_words, why))
        self._put_past(detail, row.job, past, facts.checkpoint, mine)
        return detail

    def _without_limits(self, row: Job) -> list[str]:
        """The nodes of a job that cannot limit the processors and memory of their jobs."""
        where, nodes = self.cluster.live.where(row.job), self.cluster.live.nodes
        names = [] if where is None else [NodeName(nodes.names[node]) for node in where.nodes]
        known = self.cluster.agents.described
        return [n for n in names if n in known and "limits" not in known[n].facts.capabilities]

    def _put_order(self, detail: control_pb2.JobDetail, row: Job) -> None:
        detail.order_numbers["policy"] = self.cluster.round_state.settings.policy
        position = self.cluster.live.position(row.job)
        if position is not None:
            detail.order_numbers["position"] = str(position)
            for name, points in self.cluster.live.order_terms(row.job).items():
                form = ".3g" if 0 < abs(points) < 1 else ".1f"
                detail.order_numbers[name] = format(points, form)

    def _why(self, row: Job) -> list[str]:
        """The lines that say why a pending job waits."""
        cluster = self.cluster
        lines = self.views.reasons([row])
        position = cluster.live.position(row.job)
        if position is not None:
            policy = cluster.round_state.settings.policy
            lines.append(f"place {position} in the order of policy {policy}")
        refused = cluster.driver.refusals.get(row.job)
        if refused and refused not in lines[0]:
            lines.append(f"its last placement was refused: {refused}")
        if row.reason and row.reason != "Resources" and row.reason not in lines[0]:
            lines.append(f"after its last run: {row.reason}")
        return lines

    def _put_past(
        self,
        detail: control_pb2.JobDetail,
        job: JobId,
        past: JobPast,
        checkpoint: CheckpointCommitted | None,
        mine: bool,
    ) -> None:
        """Put in a job's checkpoint, training profile, runs and events.

        Args:
            detail: to put it in.
            job: its id.
            past: what the database knows of it.
            checkpoint: its newest one.
            mine: whether the caller may know where it is.
        """
        if checkpoint is not None:
            detail.last_checkpoint = checkpoint.path if mine else ""
            detail.last_checkpoint_step = checkpoint.step
        if past.unsaved is not None:
            detail.unsaved.CopyFrom(unsaved_view(past.unsaved, mine=mine))
        training = self.cluster.trainings.trainings.get(job)
        if training is None and past.training is not None:
            training = TrainingProfile.of_known(past.training.known)
        if training is not None:
            live_run = self.cluster.driver.committed.live_run(job)
            _put_training(detail, training, self.cluster.live.nodes, live_run)
        for each in past.runs:
            view = detail.runs.add(
                run=each.run.key.run,
                started_at=each.released_at or each.assigned_at,
                end=each.end if mine else without_words(each.end),
                executed_s=each.received.held_s,
            )
            if each.ended_at is not None:
                view.ended_at = each.ended_at
            for member in each.run.members.values():
                view.layout.append(to_wire(Share(node=member.node, gpus=member.gpus)))
                if member.exit is not None and (member.exit.code or member.exit.signal):
                    view.code, view.signal = member.exit.code, member.exit.signal
            if each.progress is not None:
                view.last_step = each.progress.step
        for stored in past.events:
            event = stored.event
            text = "" if event.kind in OWNERS_ONLY else without_words(event.text)
            text = event.text if mine else text
            if event.kind == "cause":
                detail.cause = text
                is_newest = bool(past.runs) and event.run_id == past.runs[-1].run.key.run_id
                if mine and is_newest and detail.job.state == "FAILED":  # as stored jobs tell it
                    detail.job.reason = with_cause(detail.job.reason, text)
            detail.events.add(
                at=event.at,
                kind=event.kind,
                actor=event.actor,
                text=text,
                node=event.node or "",
            )


def _put_request(
    detail: control_pb2.JobDetail, row: Job, spec: JobSpec, updated: Mapping[str, Any], mine: bool
) -> None:
    """Put in what was asked for; other users see no path and no further column."""
    body, shown = spec.body, fields_now(row, spec, updated)
    put_fields(
        detail.request, {name: v for name, v in shown.items() if mine or BY_NAME[name].shown}
    )
    if mine:
        if spec.sweep is not None:
            put_table(detail.request.sweep, spec.sweep, [spec.index])
        detail.working_directory = body.working_directory
        detail.output = output_pattern(row.job, spec)
        detail.error = expand_pattern(body.error, row.job, spec)
        for key, value in body.extra.items():
            detail.request.extra[key] = value


def _put_content(detail: control_pb2.JobDetail, row: Job, content: JobContent | None) -> None:
    """Put in the command and script of a job that the caller may see."""
    spec = row.request.spec
    if content is not None and isinstance(spec, JobSpec):
        detail.request.argv.extend(map(spec.filled, content.argv))
        detail.request.script = content.script


def _put_training(
    detail: control_pb2.JobDetail, training: TrainingProfile, nodes: LiveNodes, run: Run | None
) -> None:
    """Put in a training profile, if it has any report.

    Without a live run, the profile is shown for the place of the last run.
    """
    limits = training.limits
    if limits is None or training.place is None:
        return
    place = training.place if run is None else nodes.place_of(run)
    view = control_pb2.TrainingView(
        gpu_type=place.gpu_type,
        observations=training.observations,
        initial=int(limits.initial),
        maximum=int(limits.maximum),
        local_min=int(limits.local_min),
        local_max=int(limits.local_max),
        may_accumulate=bool(limits.accumulation),
        fixed=bool(limits.fixed),
        batch=control_pb2.Batch(local=training.local, accumulation=training.accumulation),
        nodes=training.place.nodes,
        replicas=training.place.gpus,
        progress=training.progress,
        ignored=training.ignored,
    )
    model = training.models.get(place.gpu_type)
    if model is not None:
        view.model.extend(float(number) for number in model)
    if training.gradients is not None:
        view.gradient_sqr, view.gradient_var = (float(x) for x in training.gradients)
    if training.restarts:
        view.restart_s = training.restart_s
    if training.saves:
        view.save_s = training.save_s
    for gpus in (place.gpus - 1, place.gpus, place.gpus + 1):
        expected = training.expected(_with_gpus(nodes, place, gpus))
        if expected is not None:
            view.sizes.append(_size(expected))
    detail.training.CopyFrom(view)


def _with_gpus(nodes: LiveNodes, place: Place, gpus: int) -> Place:
    """A place with another number of GPUs, on as few nodes as possible."""
    if gpus == place.gpus:
        return place
    largest = max((len(n.gpus) for n in nodes.all() if n.gpu_type == place.gpu_type), default=1)
    return place._replace(nodes=max(-(-gpus // max(largest, 1)), 1), gpus=gpus)


def _size(expected: Expected) -> control_pb2.ExpectedGoodput:
    return control_pb2.ExpectedGoodput(
        gpus=expected.place.gpus,
        nodes=expected.place.nodes,
        goodput=expected.goodput,
        throughput=expected.throughput,
        batch=control_pb2.Batch(local=expected.local, accumulation=expected.accumulation),
    )
