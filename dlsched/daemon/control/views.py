"""Jobs as users see them, from the committed ledger and the job table.

A view is the fields of a `JobView` by name, where None is not set: `message` makes a message of it,
and a list sends many views by column. Views are made when they are asked for and not kept, which
would cost more memory than all else of a waiting job.
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
from dlsched.db.records import JobSpec, layout_of
from dlsched.db.rows import state_word
from dlsched.jobs.fields import FIELDS
from dlsched.protocol.ledger import Job, JobStatus, Run, RunStatus, with_cause, without_words
from dlsched.protocol.messages import RunId, StepRecord, StopReason
from dlsched.rpc.conversion import to_wire
from dlsched.rpc.identity import Identity
from dlsched.rpc.job_fields import put_fields
from dlsched.rpc.v1 import control_pb2
from dlsched.system.clock import boottime

View = dict[str, Any]
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


def message(view: View) -> control_pb2.JobView:
    """The message of a view."""
    return control_pb2.JobView(**view)


def for_caller(view: View, caller: Identity) -> None:
    """Leave out of a view what only the owner of the job and operators see."""
    if caller.is_operator or view["user"] == caller.name:
        return
    view["steps"] = view["working_directory"] = None
    if view["reason"]:
        view["reason"] = without_words(view["reason"])


class Views:
    """Makes views."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def of(self, row: Job, *, brief: bool = False) -> View:
        """The view of a job in memory, with its times up to now; `brief`: without `asked`."""
        cluster = self._cluster
        driver, live = cluster.driver, cluster.live
        spec, facts = driver.table.spec(row), driver.table.of(row.job)
        pending = row.status is JobStatus.PENDING
        run = None if pending else driver.committed.live_run(row.job)
        gave_way = row.status is JobStatus.SUSPENDED and live.claims.home(row.job) is not None
        view = base_view(row, spec, facts, brief=brief)
        if run is not None:
            _put_calls(view, facts.calls, run)
        view["state"] = word(row, run)
        view["reason"] = self.reason(row) if pending or gave_way else self._held_up(row, run)
        view["array_limit"] = driver.table.array_limit(row)
        view["run_s"] = facts.executed_now(boottime())
        view["held"] = bool(facts.held)
        view["progress"] = facts.step
        if run is None and not row.status.is_terminal:
            view["started_at"] = None
        if pending:
            view["position"] = live.position(row.job)
        else:
            self._put_run(view, row, run)
            _put_range(view, spec)
        if run is not None and facts.clock.running_since is not None:
            since = 0.0 if facts.started_at is None else cluster.now - facts.started_at
            view["gpu_s"] = facts.gpu_s + max(0.0, since) * driver.committed.gpus_of(run)
        mine = cluster.curves.jobs.get(row.job)
        if mine is not None or run is not None:
            values: dict[str, Any] = {**values_now(cluster, row.job, run)}
            not_finite = () if mine is None else sorted(mine.not_finite)
            if values or not_finite:
                view["training"] = control_pb2.TrainingNow(**values, not_finite=not_finite)
        return view

    def _put_run(self, view: View, row: Job, run: Run | None) -> None:
        """Put in where a job runs, or ran."""
        ledger = self._cluster.driver.committed
        last = run if run is not None else self._last_run(row)
        if last is not None:
            view["nodes"] = list(last.members)
        if run is None:
            return
        held, view["where"] = 0, []
        for member in run.members.values():
            node = ledger.nodes[member.node]
            places = {gpu: k for k, gpu in enumerate(node.gpus)}
            held += len(member.gpus)
            gpus = sorted(places[g] for g in member.gpus if g in places)
            view["where"].append(control_pb2.GpusOnNode(node=member.node, gpus=gpus))
        view["gpus"] = held

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

    def _held_up(self, row: Job, run: Run | None) -> str:
        """What is wrong with a job that does not wait; empty: nothing."""
        told = []
        for name in run.members if run is not None else ():
            described = self._cluster.agents.described.get(name)
            if described is not None and self._cluster.is_overdue(name):
                told += [f"{name}: {each}" for each in described.problems]
        return self.doubt(row) or "; ".join(told) or row.reason

    def _last_run(self, row: Job) -> Run | None:
        ledger = self._cluster.driver.committed
        began = [run for run in ledger.runs_of_job(row.job) if run.follows is None]
        return began[-1] if began and row.status.is_terminal else None


def _put_range(view: View, spec: JobSpec) -> None:
    """Put in what a job on a range of nodes has, or had, on the nodes of its latest run."""
    gang, nodes = spec.body.gang, view.get("nodes")
    if not spec.body.max_nodes or not gang or not nodes:
        return
    view["gang"] = gang[:1] * len(nodes)
    view["gpus"] = sum(view["gang"])
    if spec.body.cpus is not None and "asked" in view:
        view["asked"].cpus = spec.body.cpus * len(nodes) // len(gang)


def _put_calls(view: View, calls: tuple[RunId, tuple[StepRecord, ...]] | None, run: Run) -> None:
    """Put in the calls of `srun` of a run that goes on, in place of the last one's."""
    view |= dict.fromkeys(_USED)
    known = calls is not None and calls[0] == run.key.run_id
    view["steps"] = [to_wire(each) for each in calls[1]] if calls is not None and known else None


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
_IS_HERE = set(_HERE)
_ELSEWHERE = _SHOWN - _IS_HERE  # the fields that a view has in its `asked`
_values_of_body, _values_here = attrgetter(*_OF_BODY), attrgetter(*_HERE)
_values_of_facts = attrgetter(*_FACTS)


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


def base_view(row: Job, spec: JobSpec, facts: JobFacts, *, brief: bool = False) -> View:
    """What a view has of the ledger's row, the body with its updates, and the facts."""
    updated = facts.updated
    view: View = dict(zip(_HERE, _values_here(spec.body), strict=True))
    view |= zip(_FACTS, _values_of_facts(facts), strict=True)
    view["name"] = spec.name
    for name in updated.keys() & _IS_HERE:
        view[name] = updated[name]
    view |= {
        "job": row.job,
        "user": spec.user,
        "gang": layout_of(updated.get("gang", spec.body.gang), view["gpus"], view["gpus_by_type"]),
        "submitted_at": spec.submitted_at,
        "preemptions": row.preemptions,
        "failures": row.failures,
        "run": row.runs,
        "interactive": bool(spec.body.terminal),
        "starting_s": facts.starting_s + facts.run_restart_s,
    }
    if not brief:
        values = fields_now(row, spec, updated)
        asked = view["asked"] = control_pb2.JobRequest()
        put_fields(asked, {name: values[name] for name in _ELSEWHERE})
    if spec.array is not None and spec.task is not None:
        view["array_job"] = row.job - spec.index
        view["array_task"] = spec.task
        view["array_limit"] = spec.array.limit
    if row.exit is not None:
        view["code"], view["signal"] = row.exit.code, row.exit.signal
        view["steps"] = [to_wire(step) for step in row.exit.steps]
        if row.exit.peak_memory_bytes:  # older agents do not measure
            view |= {name: getattr(row.exit, name) for name in _USED}
    dependencies = updated.get("dependencies", spec.body.dependencies)
    if dependencies:
        view["dependencies"] = [
            control_pb2.Dependency(
                kind=each.kind, job=each.job, delay_s=each.delay_s, or_next=each.or_next
            )
            for each in dependencies
        ]
    return view


def add_prediction(
    view: View, starts: Mapping[int, JobForecast], ends: Mapping[int, JobForecast]
) -> None:
    """Put in when a waiting job is thought to start, and when it or a running one ends."""
    job, state = view["job"], view["state"]
    if job in ends and state in ("PENDING", "RUNNING"):
        end = ends[job]
        view["predicted_end_at"] = end.end_at
        view["predicted_end_p10_at"] = _known(end.end_p10)
        view["predicted_end_p90_at"] = _known(end.end_p90)
    told = starts.get(job) if state == "PENDING" else None
    if told is not None:
        view["predicted_start_at"], view["predicted_basis"] = told.at, told.basis
        view["predicted_start_p10_at"] = _known(told.p10)
        view["predicted_start_p90_at"] = _known(told.p90)


def _known(at: float) -> float | None:
    return None if math.isnan(at) else at


def stored_view(stored: StoredJob) -> View:
    """The view of a job that only the database has."""
    row, facts, spec = stored.job, stored.facts, stored.spec
    if spec is None:
        return {"job": row.job, "user": row.request.user, "state": stored.state, "reason": ""}
    view = base_view(row, spec, facts)
    view["state"] = stored.state
    reason = row.reason or (stored.end if stored.state != "COMPLETED" else "")
    view["reason"] = with_cause(reason, stored.cause)
    view["run_s"] = facts.executed_s
    if stored.first_prediction is not None:
        view["predicted_start_at"] = stored.first_prediction.start_at
        view["predicted_basis"] = stored.first_prediction.basis
    view["nodes"] = stored.nodes
    if row.status.is_terminal:
        _put_range(view, spec)
    view["gpu_used"] = stored.gpu_used
    if facts.progress is not None:
        view["progress"] = facts.progress.step
        if facts.progress.loss is not None:
            view["training"] = control_pb2.TrainingNow(loss=facts.progress.loss)
    return view
