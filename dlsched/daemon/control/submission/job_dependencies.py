"""The dependencies of a new or changed job: on jobs that exist, and never in a circle."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from dlsched.core.errors import BadInput, not_known
from dlsched.daemon.control import bounds
from dlsched.db.reading.queries import StoredJob
from dlsched.db.records import Dependency, JobSpec
from dlsched.protocol.messages import JobId
from dlsched.rpc.v1 import control_pb2

if TYPE_CHECKING:
    from dlsched.daemon.cluster import Cluster

KINDS = frozenset({"after", "afterok", "afterany", "afternotok", "aftercorr", "singleton"})
MOST = 1000
OF_CALL = JobId(0)  # stands for a job of the same call until that has its id
Tasks = Sequence[int | None]  # of the array element that each dependency names


def read_dependencies(
    asked: Sequence[control_pb2.Dependency], *, of_call: bool = False
) -> tuple[tuple[Dependency, ...], tuple[int | None, ...]]:
    """Read dependencies from the wire; returns them, and the array task that each one names.

    Args:
        asked: the dependencies.
        of_call: may they name other jobs of the call, whose ids are not known yet? These get
            `OF_CALL` for a job.

    Raises:
        BadInput: there are too many, or one is of an unknown kind.
    """
    bounds.check_count("dependencies", len(asked), MOST)
    found = []
    for each in asked:
        if each.kind not in KINDS:
            bounds.check_text("dependency", each.kind)
            raise not_known("dependency", each.kind, sorted(KINDS))
        if each.in_call and (each.job or each.HasField("task") or not of_call):
            raise BadInput("dependency: a job of the same call is named by its place there alone")
        if each.kind != "singleton" and not each.in_call:
            bounds.check_whole("dependency's job", each.job, 1, (1 << 62))
        delay = bounds.check_number("dependency's delay", each.delay_s) or 0.0
        found.append(
            Dependency(kind=each.kind, job=JobId(each.job), delay_s=delay, or_next=each.or_next)
        )
    return tuple(found), tuple(d.task if d.HasField("task") else None for d in asked)


async def resolved(
    cluster: Cluster, asked: Sequence[Dependency], tasks: Tasks
) -> tuple[Dependency, ...]:
    """Resolve dependencies to ids of jobs that exist.

    `tasks` has for each the task number of the array's element; None for the job itself.

    Raises:
        BadInput: for a job that does not exist.
    """
    driver = cluster.driver
    named = {each.job for each in asked if each.kind != "singleton"} - {OF_CALL}
    stored = await _read_ended(cluster, named)
    gone: set[JobId] = set()
    for known in stored.values():
        spec = known.spec
        if spec is not None and spec.array is not None and spec.index == 0:
            gone.update(JobId(known.job.job + k) for k in range(1, len(spec.array.tasks)))
    await _read_ended(cluster, gone - stored.keys())
    found = []
    for each, task in zip(asked, tasks, strict=True):
        if each.kind == "singleton" or each.job == OF_CALL:
            found.append(each)
            continue
        row = driver.reserved.jobs.get(each.job)
        if row is None and each.job not in stored:
            raise BadInput(f"dependency {each.kind}:{each.job}: there is no such job")
        spec = driver.table.spec(row) if row is not None else stored[each.job].spec
        found.append(_element(each, task, spec))
    return tuple(found)


def places_of(asked: Sequence[control_pb2.Dependency], number: int) -> tuple[int, ...]:
    """The places of other jobs of a call that a job's dependencies name; 0 for one that names none.

    Args:
        asked: its dependencies.
        number: its own place; the others come before it, so none waits for itself.

    Returns:
        one place for each dependency; empty where none names a job of the call.

    Raises:
        BadInput: the other job does not come before it.
    """
    places = tuple(each.in_call for each in asked)
    for place in places:
        if not 0 <= place < number:
            raise BadInput(f"dependency on job {place} of the call, which does not come before it")
    return places if any(places) else ()


async def _read_ended(cluster: Cluster, jobs: Iterable[JobId]) -> dict[JobId, StoredJob]:
    """Those of some jobs that are not in memory, noted for the jobs that depend on them."""
    driver = cluster.driver
    ids = [job for job in jobs if job not in driver.reserved.jobs]
    if not ids:
        return {}
    found = {each.job.job: each for each in await driver.read(partial(driver.store.jobs, ids))}
    for each in found.values():
        cluster.live.note_ended(each)
    return found


def _element(dependency: Dependency, task: int | None, spec: JobSpec | None) -> Dependency:
    if task is None:
        return dependency
    tasks = spec.array.tasks if spec is not None and spec.array is not None else ()
    if task not in tasks:
        raise BadInput(f"dependency {dependency.kind}:{dependency.job}_{task}: no such element")
    return replace(dependency, job=JobId(dependency.job + tasks.index(task)))


def refuse_circle(cluster: Cluster, job: JobId, wanted: Sequence[Dependency]) -> None:
    """Refuse dependencies under which a job would wait for itself.

    No job can depend on a new job yet, so only changes can close a circle.

    Raises:
        BadInput: one line that names the job through which it would.
    """
    table, jobs = cluster.driver.table, cluster.driver.reserved.jobs
    mine = {job}
    spec = table.spec(jobs[job])
    if spec.array is not None:
        mine.add(JobId(job - spec.index))  # a job that depends on an array depends on its elements
    seen: set[JobId] = set()
    ahead = [(each.job, each.job) for each in wanted if each.kind != "singleton"]
    while ahead:
        through, at = ahead.pop()
        if at in mine:
            raise BadInput(f"it would wait for itself, through job {through}")
        row = jobs.get(at)
        if at in seen or row is None or row.status.is_terminal:
            continue
        seen.add(at)
        spec = table.spec(row)
        ids = [at]
        if spec.array is not None and spec.index == 0:
            ids = [JobId(at + k) for k in range(len(spec.array.tasks))]
            if job in ids:
                raise BadInput(f"it would wait for itself, as an element of job {at}")
        for each in ids:
            if each in jobs:
                further = table.field(jobs[each], "dependencies")
                ahead += [(through, d.job) for d in further if d.kind != "singleton"]


def written(dependencies: Sequence[Dependency]) -> str:
    """Dependencies as users write them."""
    words = []
    for place, each in enumerate(dependencies):
        delay = f"+{each.delay_s / 60:g}" if each.delay_s else ""
        words.append(each.kind if each.kind == "singleton" else f"{each.kind}:{each.job}{delay}")
        if place < len(dependencies) - 1:
            words.append("?" if each.or_next else ",")
    return "".join(words)
