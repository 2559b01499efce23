"""Jobs as users see them: one message a job, from the committed ledger and the job table.

A view is made again only when the job, its reason or its place in the order has changed; running
times are filled in as it goes out. So listing ten thousand jobs twice costs one making.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dlsched.daemon.clock import boottime
from dlsched.daemon.cluster import Cluster
from dlsched.daemon.predictions import Foretold
from dlsched.db.records import JobSpec
from dlsched.db.rows import state_word
from dlsched.protocol.ledger import Job, JobStatus, Run, RunStatus
from dlsched.protocol.messages import JobId, StopReason
from dlsched.rpc.v1 import control_pb2

__all__ = ["Views", "foretell", "stored_view", "word"]

LEAVING = {
    StopReason.MIGRATE: "MIGRATING",
    StopReason.RESIZE: "MIGRATING",
}


def word(row: Job, run: Run | None) -> str:
    """The word for a job's state."""
    if row.status is JobStatus.STOPPING and run is not None and run.stop is not None:
        return LEAVING.get(run.stop, "COMPLETING")
    if row.status is JobStatus.RUNNING and run is not None and run.status is RunStatus.PREPARING:
        return "STARTING"
    if row.status is JobStatus.SUSPENDED and run is not None and run.gives_way and not run.is_away:
        return "SUSPENDING"
    return state_word(row)


class Views:
    """Makes and keeps views."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._made: dict[JobId, tuple[Any, control_pb2.JobView]] = {}

    def forget(self) -> None:
        """Drop views of jobs that have left memory."""
        jobs = self._cluster.shell.committed.jobs
        if len(self._made) > len(jobs) + 1000:
            self._made = {job: kept for job, kept in self._made.items() if job in jobs}

    def of(self, row: Job) -> control_pb2.JobView:
        """The view of a job in memory, with its times up to now."""
        cluster = self._cluster
        shell, board = cluster.shell, cluster.board
        facts = shell.table.of(row.job)
        pending = row.status is JobStatus.PENDING
        gave_way = row.status is JobStatus.SUSPENDED and board.home(row.job) is not None
        reason = self.reason(row) if pending or gave_way else row.reason
        position = board.position(row.job) if pending else None
        key = (row, facts.version, reason, position)
        kept = self._made.get(row.job)
        if kept is not None and kept[0][0] is row and kept[0][1:] == key[1:]:
            view = kept[1]
        else:
            view = self._make(row, reason, position)
            self._made[row.job] = (key, view)
        if facts.running_since is not None:
            now = boottime()
            view.run_s = facts.executed_now(now)
            if facts.started_at is not None:
                since = max(0.0, cluster.now - facts.started_at)
                view.gpu_s = facts.gpu_s + since * view.gpus
        return view

    def reason(self, row: Job) -> str:
        """Why a pending job waits; never empty."""
        recovering = self._cluster.shell.state.reserved.jobs.get(row.job)
        if recovering is not None and recovering.reason.startswith("Orphan"):
            return recovering.reason
        known = self._cluster.board.reason(row.job)
        return known or self._cluster.shell.refusals.get(row.job) or row.reason or "Resources"

    def _make(self, row: Job, reason: str, position: int | None) -> control_pb2.JobView:
        shell = self._cluster.shell
        ledger, table = shell.committed, shell.table
        spec, facts = table.spec(row), table.of(row.job)
        run = ledger.live_run(row.job)
        view = base_view(row, spec, {name: table.field(row, name) for name in SHOWN})
        view.state = word(row, run)
        view.reason = reason
        _put(
            view,
            first_started_at=facts.first_started_at,
            started_at=facts.started_at if run is not None or row.status.is_terminal else None,
            ended_at=facts.ended_at,
        )
        view.run_s = facts.executed_now(boottime())
        view.gpu_s = facts.gpu_s
        view.starts, view.migrations, view.resizes = facts.starts, facts.migrations, facts.resizes
        view.held = bool(facts.held)
        view.array_limit = table.array_limit(row)
        view.lost_s = facts.lost_s
        view.starting_s = facts.starting_s + facts.run_restart_s
        _put(view, restart_s=facts.restart_s)
        view.cancelled_by = facts.cancelled_by
        if facts.step is not None:
            view.progress = facts.step
        if position is not None:
            view.position = position
        last = run if run is not None else self._last_run(row)
        if last is not None:
            view.nodes.extend(last.members)
        if run is not None:
            held = 0
            for member in run.members.values():
                node = ledger.nodes[member.node]
                places = {gpu: k for k, gpu in enumerate(node.gpus)}
                held += len(member.gpus)
                view.where.add(
                    node=member.node, gpus=sorted(places[g] for g in member.gpus if g in places)
                )
            view.gpus = held
        return view

    def _last_run(self, row: Job) -> Run | None:
        runs = self._cluster.shell.committed.runs_of_job(row.job)
        return runs[-1] if runs and row.status.is_terminal else None


def _put(view: control_pb2.JobView, **values: float | None) -> None:
    """Set what is known."""
    for name, value in values.items():
        if value is not None:
            setattr(view, name, value)


SHOWN = (
    "name", "vc", "account", "partition", "priority", "priority_class", "time_limit_s", "begin_at",
    "deadline_at", "comment", "gpu_types", "gpus", "dependencies",
)  # fmt: skip


def base_view(row: Job, spec: JobSpec, now: dict[str, Any]) -> control_pb2.JobView:
    """What a view has of the ledger's row and the body, updates included."""
    view = control_pb2.JobView(
        job=row.job,
        name=now["name"],
        user=spec.user,
        vc=now["vc"] or "",
        account=now["account"] or "",
        partition=now["partition"] or "",
        gpus=now["gpus"],
        gang=spec.body.gang or (),
        gpu_types=now["gpu_types"],
        submitted_at=spec.submitted_at,
        preemptions=row.preemptions,
        failures=row.failures,
        time_limit_s=now["time_limit_s"],
        priority=now["priority"],
        priority_class=now["priority_class"] or "",
        begin_at=now["begin_at"],
        deadline_at=now["deadline_at"],
        run=row.runs,
        comment=now["comment"] or "",
        model=spec.body.model,
        gpu_share=spec.body.share,
    )
    if spec.array is not None and spec.task is not None:
        view.array_job = row.job - spec.index
        view.array_task = spec.task
        view.array_limit = spec.array.limit
    if row.exit is not None:
        view.code, view.signal = row.exit.code, row.exit.signal
    for each in now["dependencies"]:
        view.dependencies.add(
            kind=each.kind, job=each.job, delay_s=each.delay_s, or_next=each.or_next
        )
    return view


def foretell(
    view: control_pb2.JobView, starts: Mapping[int, Foretold], ends: Mapping[int, float]
) -> None:
    """Put in when a waiting job is thought to start, and when it or a running one ends."""
    if view.job in ends and view.state in ("PENDING", "RUNNING"):
        view.predicted_end_at = ends[view.job]
    told = starts.get(view.job) if view.state == "PENDING" else None
    if told is not None:
        view.predicted_start_at, view.predicted_basis = told.at, told.basis


def stored_view(stored: Any) -> control_pb2.JobView:
    """The view of a job that only the database has."""
    row, facts, spec = stored.job, stored.facts, stored.spec
    if spec is None:
        return control_pb2.JobView(job=row.job, user=row.request.user, state=stored.state)
    body = spec.body
    view = base_view(row, spec, {n: facts.updated.get(n, getattr(body, n)) for n in SHOWN})
    view.state = stored.state
    view.reason = row.reason or (stored.end if view.state != "COMPLETED" else "")
    _put(
        view,
        first_started_at=facts.first_started_at,
        started_at=facts.started_at,
        ended_at=facts.ended_at,
    )
    view.run_s, view.gpu_s, view.starts = facts.executed_s, facts.gpu_s, facts.starts
    view.migrations, view.resizes = facts.migrations, facts.resizes
    view.lost_s = facts.lost_s
    view.starting_s = facts.starting_s + facts.run_restart_s
    _put(view, restart_s=facts.restart_s)
    if stored.foretold is not None:
        view.predicted_start_at = stored.foretold.start_at
        view.predicted_basis = stored.foretold.basis
    view.cancelled_by = facts.cancelled_by
    view.nodes.extend(stored.nodes)
    if facts.progress is not None:
        view.progress = facts.progress.step
    return view
