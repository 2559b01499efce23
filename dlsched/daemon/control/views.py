"""Jobs as users see them, from the committed ledger and the job table.

Views are by column: a list sends them so, and other calls make a message of each job. They are made
when they are asked for and not kept, which would cost more memory than all else of a waiting job.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

from dlsched.core.service_clock import NEW
from dlsched.daemon.cluster import Cluster
from dlsched.daemon.job_table import Facts, JobTable
from dlsched.daemon.predictions import JobForecast
from dlsched.daemon.training.current import values_now
from dlsched.db.reading.loading import JobFacts
from dlsched.db.reading.queries import StoredJob
from dlsched.db.records import Dependency, JobSpec, layout_of
from dlsched.db.rows import state_word
from dlsched.jobs.fields import FIELDS
from dlsched.protocol.leader import unkillable
from dlsched.protocol.ledger import Job, JobStatus, Run, RunStatus, with_cause, without_words
from dlsched.protocol.messages import JobId, StopReason
from dlsched.rpc.conversion import to_wire
from dlsched.rpc.identity import Identity
from dlsched.rpc.job_fields import put_fields
from dlsched.rpc.v1 import control_pb2
from dlsched.system.clock import wall

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


class Views(dict[str, list[Any]]):
    """The values of some jobs by the names of a `JobView`'s fields; None: not set."""

    def __init__(self, count: int, columns: Mapping[str, list[Any]]) -> None:
        """Take the columns of `count` jobs."""
        super().__init__(columns)
        self.count = count

    def put(self, place: int, **values: Any) -> None:
        """Set fields of one of the jobs, by its number from 0."""
        for name, value in values.items():
            if name not in self:
                self[name] = [None] * self.count
            self[name][place] = value

    def messages(self) -> list[control_pb2.JobView]:
        """A message of each job."""
        jobs = zip(*self.values(), strict=True)
        return [control_pb2.JobView(**dict(zip(self, values, strict=True))) for values in jobs]

    def hide_from(self, caller: Identity) -> None:
        """Leave out what only the owner of a job and operators see."""
        if caller.is_operator:
            return
        others = {reason: without_words(reason) for reason in set(self["reason"])}
        for place, user in enumerate(self["user"]):
            if user != caller.name:
                self["reason"][place] = others[self["reason"][place]]
                for name in self.keys() & {"steps", "working_directory"}:
                    self[name][place] = None

    def predict(self, starts: Mapping[int, JobForecast], ends: Mapping[int, JobForecast]) -> None:
        """Put in when waiting jobs are thought to start, and when they and running ones end."""
        for place, (job, state) in enumerate(zip(self["job"], self["state"], strict=True)):
            end = ends.get(job) if state in ("PENDING", "RUNNING") else None
            if end is not None:
                self.put(
                    place,
                    predicted_end_at=end.end_at,
                    predicted_end_p10_at=_known(end.end_p10),
                    predicted_end_p90_at=_known(end.end_p90),
                )
            told = starts.get(job) if state == "PENDING" else None
            if told is not None:
                self.put(
                    place,
                    predicted_start_at=told.at,
                    predicted_basis=told.basis,
                    predicted_start_p10_at=_known(told.p10),
                    predicted_start_p90_at=_known(told.p90),
                )


def _known(at: float) -> float | None:
    return None if math.isnan(at) else at


class LiveViews:
    """Makes views of jobs in memory."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def of(self, rows: Sequence[Job], *, brief: bool = False) -> Views:
        """The views of some jobs, with their times up to now; `brief`: without `asked`."""
        cluster, at = self._cluster, wall()
        table, position = cluster.driver.table, cluster.live.position
        specs = list(map(JobTable.spec, rows))
        facts = [table.of(row.job) for row in rows]
        views = base_views(rows, specs, facts, brief=brief)
        positions: list[int | None] = [None] * len(rows)
        reasons = [""] * len(rows)
        views |= {"state": ["PENDING"] * len(rows), "reason": reasons, "position": positions}
        views["held"] = [bool(each.held) for each in facts]
        views["progress"] = [each.step for each in facts]
        waiting = [row for row in rows if row.status is JobStatus.PENDING]
        why = iter(self.reasons(waiting))
        for place, (row, spec, mine) in enumerate(zip(rows, specs, facts, strict=True)):
            if row.status is JobStatus.PENDING:
                reasons[place], positions[place] = next(why), position(row.job)
                views["started_at"][place] = None
                if row.job in cluster.curves.jobs:
                    views.put(place, training=self._training(row.job, None))
            else:
                views.put(place, **self._started(row, mine, at))
                _put_range(views, place, spec)
            if spec.array is not None or mine.updated:
                views.put(place, array_limit=table.array_limit(row))
        return views

    def _started(self, row: Job, facts: Facts, at: float) -> dict[str, Any]:
        """What else is to be said of a job that does not wait."""
        cluster, ledger = self._cluster, self._cluster.driver.committed
        run, home = ledger.live_run(row.job), cluster.live.claims.home(row.job)
        gave_way = row.status is JobStatus.SUSPENDED and home is not None
        found: dict[str, Any] = {"state": word(row, run)}
        found["reason"] = self.reasons([row])[0] if gave_way else self._held_up(row, run)
        found["training"] = self._training(row.job, run)
        found["run_s"] = facts.executed_now(at)
        if run is None:
            if not row.status.is_terminal:
                found["started_at"] = None
            elif runs := [each for each in ledger.runs_of_job(row.job) if each.follows is None]:
                found["nodes"] = list(runs[-1].members)
            return found
        found |= {"nodes": list(run.members), "gpus": 0, "where": []}
        for member in run.members.values():
            places = {gpu: k for k, gpu in enumerate(ledger.nodes[member.node].gpus)}
            gpus = sorted(places[gpu] for gpu in member.gpus if gpu in places)
            found["where"].append(control_pb2.GpusOnNode(node=member.node, gpus=gpus))
            found["gpus"] += len(member.gpus)
        found |= dict.fromkeys((*_USED, "steps"))  # those of its last run
        if facts.calls is not None and facts.calls[0] == run.key.run_id:
            found["steps"] = list(map(to_wire, facts.calls[1]))
        found["gpu_s"] = facts.gpu_s + facts.held_since(at) * ledger.gpus_of(run)
        return found

    def _training(self, job: JobId, run: Run | None) -> control_pb2.TrainingNow | None:
        """What is known of its training and of its GPUs."""
        values: dict[str, Any] = {**values_now(self._cluster, job, run)}
        mine = self._cluster.curves.jobs.get(job)
        not_finite = () if mine is None else sorted(mine.not_finite)
        if not values and not not_finite:
            return None
        return control_pb2.TrainingNow(**values, not_finite=not_finite)

    def reasons(self, rows: Sequence[Job]) -> list[str]:
        """Why pending jobs wait; never empty."""
        recovering = self._cluster.driver.state.reserved.jobs
        found = self._cluster.live.reasons([row.job for row in rows])
        for place, (row, known) in enumerate(zip(rows, found, strict=True)):
            other = recovering.get(row.job)
            if other is not None and other.reason.startswith("Orphan"):
                found[place] = other.reason
            elif known.startswith("BackOff") and row.reason:
                found[place] = f"{known}; {row.reason}"
        return found

    def doubt(self, row: Job) -> str:
        """Why it is not known whether a job's run is over; empty where there is no doubt."""
        driver = self._cluster.driver
        run = driver.committed.live_run(row.job) if driver.state.in_doubt else None
        if run is None:
            return ""
        nodes = driver.state.doubtful_nodes(run)
        told = [f"KeeperLost({', '.join(nodes)}: processes may be alive)"] if nodes else []
        return "; ".join([*told, unkillable(run)] if told and run.stuck_on else told)

    def _held_up(self, row: Job, run: Run | None) -> str:
        """What is wrong with a job that does not wait; empty: nothing."""
        told = []
        for name in run.members if run is not None else ():
            described = self._cluster.agents.described.get(name)
            if described is not None and self._cluster.is_overdue(name):
                told += [f"{name}: {each}" for each in described.problems]
        return self.doubt(row) or "; ".join(told) or row.reason


# of the last run that is over
_USED = ("cpu_s", "peak_memory_bytes", "script_cpu_s", "script_peak_bytes")
_FACTS = (
    *("first_started_at", "started_at", "ended_at", "starts", "migrations", "resizes"),
    "cancelled_by",
)
_KEPT = tuple(row for row in FIELDS if row.kept != "no" and row.form != "own")
_OF_BODY = tuple(row.name for row in _KEPT if row.kept == "body")
_SHOWN = {row.name for row in _KEPT if row.shown}
_IS_HERE = _SHOWN & set(control_pb2.JobView.DESCRIPTOR.fields_by_name)
_ELSEWHERE = _SHOWN - _IS_HERE  # the fields that a view has in its `asked`
_HERE = (*sorted(_IS_HERE), "gang", "dependencies")
_values_of_body = attrgetter(*_OF_BODY)


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


def _columns(names: Sequence[str], of: Sequence[object]) -> dict[str, list[Any]]:
    """The values of some attributes of each object, by name."""
    return {name: list(map(attrgetter(name), of)) for name in names}


def base_views(
    rows: Sequence[Job], specs: Sequence[JobSpec], facts: Sequence[JobFacts], *, brief: bool = False
) -> Views:
    """What views have of the ledger's rows, the bodies with their updates, and the facts."""
    views = Views(len(rows), _columns(_HERE, [spec.body for spec in specs]))
    views |= _columns(_FACTS, facts)
    views |= _columns(("job", "preemptions", "failures"), rows)
    views |= _columns(("user",), specs)
    views["submitted_at"] = [
        spec.submitted_at + mine.moved_s for spec, mine in zip(specs, facts, strict=True)
    ]
    views["run"] = [row.runs for row in rows]
    views["interactive"] = [bool(spec.body.terminal) for spec in specs]
    accounts = [NEW if each.served is None else each.served.account for each in facts]
    views["run_s"] = [each.held_s for each in accounts]  # of thousands of jobs: without calls
    views["gpu_s"] = [each.attained for each in accounts]
    views["lost_s"] = [each.lost_s for each in accounts]
    views["starting_s"] = [each.restart_s for each in accounts]
    views["restart_s"] = [None if each.served is None else each.restart_s for each in facts]
    for place, (row, spec, mine) in enumerate(zip(rows, specs, facts, strict=True)):
        if spec.array is not None:
            views.put(
                place,
                name=spec.name,
                array_job=row.job - spec.index,
                array_task=spec.task,
                array_limit=spec.array.limit,
            )
        if mine.updated:
            views.put(place, **{n: v for n, v in mine.updated.items() if n in _HERE})
        if row.exit is not None:
            views.put(
                place,
                code=row.exit.code,
                signal=row.exit.signal,
                steps=list(map(to_wire, row.exit.steps)),
            )
            if row.exit.peak_memory_bytes:  # 0: it was not measured, as on a lost node
                views.put(place, **{name: getattr(row.exit, name) for name in _USED})
        if views["dependencies"][place]:
            views.put(place, dependencies=list(map(_dependency, views["dependencies"][place])))
        if not brief:
            values, asked = fields_now(row, spec, mine.updated), control_pb2.JobRequest()
            put_fields(asked, {name: values[name] for name in _ELSEWHERE})
            views.put(place, asked=asked)
    views["gang"] = list(map(layout_of, views["gang"], views["gpus"], views["gpus_by_type"]))
    return views


def _dependency(each: Dependency) -> control_pb2.Dependency:
    return control_pb2.Dependency(
        kind=each.kind, job=each.job, delay_s=each.delay_s, or_next=each.or_next
    )


def _put_range(views: Views, place: int, spec: JobSpec) -> None:
    """Put in what a job on a range of nodes has, or had, on the nodes of its latest run."""
    gang, nodes = spec.body.gang, "nodes" in views and views["nodes"][place]
    if not spec.body.max_nodes or not gang or not nodes:
        return
    views.put(place, gang=gang[:1] * len(nodes), gpus=gang[0] * len(nodes))
    if spec.body.cpus is not None and "asked" in views:
        views["asked"][place].cpus = spec.body.cpus * len(nodes) // len(gang)


def stored_views(found: Sequence[StoredJob]) -> Views:
    """The views of jobs that only the database has."""
    rows, facts = [each.job for each in found], [each.facts for each in found]
    specs = list(map(JobTable.spec, rows))
    views = base_views(rows, specs, facts)
    views |= _columns(("state", "nodes", "gpu_used"), found)
    for place, (each, spec) in enumerate(zip(found, specs, strict=True)):
        reason = each.job.reason or (each.end if each.state != "COMPLETED" else "")
        views.put(place, reason=with_cause(reason, each.cause))
        if each.first_prediction is not None:
            views.put(
                place,
                predicted_start_at=each.first_prediction.start_at,
                predicted_basis=each.first_prediction.basis,
            )
        if each.job.status.is_terminal:
            _put_range(views, place, spec)
        if (progress := each.facts.progress) is not None:
            views.put(place, progress=progress.step)
            if progress.loss is not None:
                views.put(place, training=control_pb2.TrainingNow(loss=progress.loss))
    return views
