"""Jobs as users see them: one message a job, from the committed ledger and the job table.

Views are made when they are asked for and not kept, which would cost more memory than all else of
a waiting job; fields that were not said cost next to nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from operator import attrgetter
from typing import Any

from dlsched.daemon.cluster import Cluster
from dlsched.daemon.predictions import JobForecast
from dlsched.daemon.training.current import values_now
from dlsched.db.reading.loading import JobFacts
from dlsched.db.reading.queries import StoredJob
from dlsched.db.records import JobSpec
from dlsched.db.rows import state_word
from dlsched.jobs.fields import FIELDS
from dlsched.protocol.ledger import Job, JobStatus, Run, RunStatus, with_cause, without_words
from dlsched.protocol.messages import RunId, StepRecord, StopReason
from dlsched.rpc.conversion import to_wire
from dlsched.rpc.identity import Identity
from dlsched.rpc.job_fields import put_fields
from dlsched.rpc.v1 import control_pb2
from dlsched.system.clock import boottime

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


def for_caller(view: control_pb2.JobView, caller: Identity) -> None:
    """Leave out of a copy of a view what only the owner of the job and operators see."""
    if caller.is_operator or view.user == caller.name:
        return
    view.ClearField("steps")
    view.ClearField("working_directory")
    if view.reason:
        view.reason = without_words(view.reason)


class Views:
    """Makes views."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def of(self, row: Job, *, brief: bool = False) -> control_pb2.JobView:
        """The view of a job in memory, with its times up to now; `brief`: without `asked`."""
        cluster = self._cluster
        driver, live = cluster.driver, cluster.live
        spec, facts = driver.table.spec(row), driver.table.of(row.job)
        pending = row.status is JobStatus.PENDING
        run = None if pending else driver.committed.live_run(row.job)
        gave_way = row.status is JobStatus.SUSPENDED and live.claims.home(row.job) is not None
        view = base_view(row, spec, facts.updated, brief=brief)
        if run is not None:
            _put_calls(view, facts.calls, run)
        view.state = word(row, run)
        view.reason = self.reason(row) if pending or gave_way else self.doubt(row) or row.reason
        view.array_limit = driver.table.array_limit(row)
        _put_facts(view, facts)
        view.run_s = facts.executed_now(boottime())
        view.held = bool(facts.held)
        _put(view, progress=facts.step, position=live.position(row.job) if pending else None)
        if run is None and not row.status.is_terminal:
            view.ClearField("started_at")
        if not pending:
            self._put_run(view, row, run)
            _put_range(view, spec)
        if run is not None and facts.clock.running_since is not None:
            since = 0.0 if facts.started_at is None else cluster.now - facts.started_at
            view.gpu_s = facts.gpu_s + max(0.0, since) * driver.committed.gpus_of(run)
        mine = cluster.curves.jobs.get(row.job)
        if mine is not None or run is not None:
            _put(view.training, **values_now(cluster, row.job, run))
            if mine is not None:
                view.training.not_finite.extend(sorted(mine.not_finite))
        return view

    def _put_run(self, view: control_pb2.JobView, row: Job, run: Run | None) -> None:
        """Put in where a job runs, or ran."""
        ledger = self._cluster.driver.committed
        last = run if run is not None else self._last_run(row)
        if last is not None:
            view.nodes.extend(last.members)
        if run is None:
            return
        held = 0
        for member in run.members.values():
            node = ledger.nodes[member.node]
            places = {gpu: k for k, gpu in enumerate(node.gpus)}
            held += len(member.gpus)
            view.where.add(
                node=member.node, gpus=sorted(places[g] for g in member.gpus if g in places)
            )
        view.gpus = held

    def reason(self, row: Job) -> str:
        """Why a pending job waits; never empty."""
        recovering = self._cluster.driver.state.reserved.jobs.get(row.job)
        if recovering is not None and recovering.reason.startswith("Orphan"):
            return recovering.reason
        known = self._cluster.live.reason(row.job)
        if known.startswith("BackOff") and row.reason:
            return f"{known}; {row.reason}"
        return known or self._cluster.driver.refusals.get(row.job) or row.reason or "Resources"

    def doubt(self, row: Job) -> str:
        """Why it is not known whether a job's run is over; empty where there is no doubt."""
        driver = self._cluster.driver
        run = driver.committed.live_run(row.job) if driver.state.in_doubt else None
        if run is None:
            return ""
        nodes = driver.state.doubtful_nodes(run)
        return f"KeeperLost({', '.join(nodes)}: processes may be alive)" if nodes else ""

    def _last_run(self, row: Job) -> Run | None:
        ledger = self._cluster.driver.committed
        began = [run for run in ledger.runs_of_job(row.job) if run.follows is None]
        return began[-1] if began and row.status.is_terminal else None


def _put(view: Any, **values: float | None) -> None:
    """Set what is known."""
    for name, value in values.items():
        if value is not None:
            setattr(view, name, value)


def _put_range(view: control_pb2.JobView, spec: JobSpec) -> None:
    """Put in what a job on a range of nodes has, or had, on the nodes of its latest run."""
    gang = spec.body.gang
    if not spec.body.max_nodes or not gang or not view.nodes:
        return
    view.gang[:] = gang[:1] * len(view.nodes)
    view.gpus = sum(view.gang)
    if spec.body.cpus is not None and view.HasField("asked"):
        view.asked.cpus = spec.body.cpus * len(view.nodes) // len(gang)


def _put_calls(
    view: control_pb2.JobView, calls: tuple[RunId, tuple[StepRecord, ...]] | None, run: Run
) -> None:
    """Put in the calls of `srun` of a run that goes on, in place of the last one's."""
    for name in (*_USED, "steps"):
        view.ClearField(name)
    if calls is not None and calls[0] == run.key.run_id:
        view.steps.extend(to_wire(each) for each in calls[1])


def _put_facts(view: control_pb2.JobView, facts: JobFacts) -> None:
    """Put in a job's history in numbers."""
    for name in _FACTS:
        value = getattr(facts, name)
        if value is not None:
            setattr(view, name, value)
    view.starting_s = facts.starting_s + facts.run_restart_s


# of the last run that is over
_USED = ("cpu_s", "peak_memory_bytes", "script_cpu_s", "script_peak_bytes")
_FACTS = (
    *("first_started_at", "started_at", "ended_at", "restart_s", "gpu_s"),
    *("starts", "migrations", "resizes", "lost_s", "cancelled_by"),
)
_KEPT = tuple(row for row in FIELDS if row.kept != "no" and row.form != "own")
_OF_BODY = tuple(row.name for row in _KEPT if row.kept == "body")
_SHOWN = {row.name for row in _KEPT if row.shown}
_HERE = tuple(sorted(_SHOWN & set(control_pb2.JobView.DESCRIPTOR.fields_by_name)))
_ELSEWHERE = _SHOWN - set(_HERE)  # the fields that a view has in its `asked`
_values_of_body, _values_here = attrgetter(*_OF_BODY), attrgetter(*_HERE)


def fields_now(row: Job, spec: JobSpec, updated: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a job by name as they stand, updates and terms included."""
    request, terms = row.request, row.terms
    values: dict[str, Any] = dict(zip(_OF_BODY, _values_of_body(spec.body), strict=True))
    return values | {
        "name": spec.name,
        **{name: value for name, value in updated.items() if name in values},
        "retries": terms.retries,
        "grace_s": terms.grace_s,
        "mode": request.mode.value,
        "fence": request.fence.value,
        "suspend_level": request.suspend_level.value,
    }


def base_view(
    row: Job, spec: JobSpec, updated: Mapping[str, Any], *, brief: bool = False
) -> control_pb2.JobView:
    """What a view has of the ledger's row and the body, updates included."""
    here: dict[str, Any] = dict(zip(_HERE, _values_here(spec.body), strict=True))
    here["name"] = spec.name
    for name in updated.keys() & here.keys():
        here[name] = updated[name]
    view = control_pb2.JobView(
        job=row.job,
        user=spec.user,
        gang=spec.body.gang,
        submitted_at=spec.submitted_at,
        preemptions=row.preemptions,
        failures=row.failures,
        run=row.runs,
        interactive=bool(spec.body.terminal),
        **here,
    )
    if not brief:
        values = fields_now(row, spec, updated)
        put_fields(view.asked, {name: values[name] for name in _ELSEWHERE})
    if spec.array is not None and spec.task is not None:
        view.array_job = row.job - spec.index
        view.array_task = spec.task
        view.array_limit = spec.array.limit
    if row.exit is not None:
        view.code, view.signal = row.exit.code, row.exit.signal
        view.steps.extend(to_wire(step) for step in row.exit.steps)
        if row.exit.peak_memory_bytes:  # older agents do not measure
            for name in _USED:
                setattr(view, name, getattr(row.exit, name))
    for each_one in updated.get("dependencies", spec.body.dependencies):
        view.dependencies.add(
            kind=each_one.kind,
            job=each_one.job,
            delay_s=each_one.delay_s,
            or_next=each_one.or_next,
        )
    return view


def add_prediction(
    view: control_pb2.JobView, starts: Mapping[int, JobForecast], ends: Mapping[int, JobForecast]
) -> None:
    """Put in when a waiting job is thought to start, and when it or a running one ends."""
    if view.job in ends and view.state in ("PENDING", "RUNNING"):
        end = ends[view.job]
        view.predicted_end_at = end.end_at
        if not math.isnan(end.end_p10):
            view.predicted_end_p10_at = end.end_p10
        if not math.isnan(end.end_p90):
            view.predicted_end_p90_at = end.end_p90
    told = starts.get(view.job) if view.state == "PENDING" else None
    if told is not None:
        view.predicted_start_at, view.predicted_basis = told.at, told.basis
        if not math.isnan(told.p10):
            view.predicted_start_p10_at = told.p10
        if not math.isnan(told.p90):
            view.predicted_start_p90_at = told.p90


def stored_view(stored: StoredJob) -> control_pb2.JobView:
    """The view of a job that only the database has."""
    row, facts, spec = stored.job, stored.facts, stored.spec
    if spec is None:
        return control_pb2.JobView(job=row.job, user=row.request.user, state=stored.state)
    view = base_view(row, spec, facts.updated)
    view.state = stored.state
    reason = row.reason or (stored.end if view.state != "COMPLETED" else "")
    view.reason = with_cause(reason, stored.cause)
    _put_facts(view, facts)
    view.run_s = facts.executed_s
    if stored.first_prediction is not None:
        view.predicted_start_at = stored.first_prediction.start_at
        view.predicted_basis = stored.first_prediction.basis
    view.nodes.extend(stored.nodes)
    if row.status.is_terminal:
        _put_range(view, spec)
    if stored.gpu_used is not None:
        view.gpu_used = stored.gpu_used
    if facts.progress is not None:
        view.progress = facts.progress.step
        _put(view.training, loss=facts.progress.loss)
    return view
