"""Short tasks: the lines that come with a submission, checked; and how the tasks stand."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import partial
from itertools import islice

from dlsched.core.errors import BadInput
from dlsched.daemon.cluster import Cluster
from dlsched.daemon.control import bounds
from dlsched.daemon.control.job_filters import owned_job
from dlsched.db.records import ArrayShape
from dlsched.db.task_runs import TaskRun
from dlsched.jobs import short_tasks as limits
from dlsched.protocol.messages import JobId, RunId
from dlsched.rpc.identity import Identity
from dlsched.rpc.v1 import control_pb2

PAGE = 500  # tasks; their lines fit one message


def with_short_tasks(
    wanted: control_pb2.JobRequest, array: ArrayShape | None, *, nodes: int
) -> ArrayShape | None:
    """An array with the short tasks of its request, if it has any.

    Args:
        wanted: the request.
        array: its array; None: it is a plain job.
        nodes: of each token.

    Raises:
        BadInput: one line that names the task, or what it cannot go with.
    """
    lines = tuple(wanted.tasks)
    if not lines:
        return array
    bounds.check_count("short tasks", len(lines), limits.MOST_TASKS)
    if array is None or array.sweep is not None:
        raise BadInput("short tasks: they need an array of tokens, and no sweep")
    if wanted.script or wanted.argv[1:] or wanted.container or nodes > 1:
        raise BadInput("short tasks: no script, command or container; a token is on one node")
    for number, line in enumerate(lines, 1):
        if fault := limits.line_fault(line):
            raise BadInput(f"short task {number}: {fault}")
    size = sum(len(line.encode()) for line in lines)
    bounds.check_count("bytes of the short tasks", size, limits.MOST_BYTES)
    return replace(array, short_tasks=lines, short_task_bytes=size)


async def short_tasks(
    cluster: Cluster, request: control_pb2.TasksRequest, caller: Identity
) -> control_pb2.TasksReply:
    """How the short tasks of a job stand, a page of them in the order of their numbers.

    Raises:
        NotFound: there is no such job.
        NotAllowed: it is another user's.
        BadInput: it has no short tasks.
    """
    driver, named = cluster.driver, JobId(request.job)
    spec = driver.table.spec(await owned_job(cluster, request.job, caller))
    if spec.array is None or not spec.array.short_tasks:
        raise BadInput(f"job {request.job}: no short tasks; `dlsched submit --tasks` makes some")
    array, lines = JobId(named - spec.index), spec.array.short_tasks
    store, after = driver.store, max(request.after, 0)
    counts = await driver.read(partial(store.task_counts, array))
    if request.only_failed:
        page = partial(store.task_runs, array, after=after, failed=PAGE + 1)
    else:
        page = partial(store.task_runs, array, after=after, up_to=after + PAGE)
    known = {each.task: each for each in await driver.read(page)}
    runs = driver.committed.runs
    live = {run_id for run_id in counts.open if run_id in runs and not runs[run_id].is_over}
    reply = control_pb2.TasksReply(
        job=array,
        name=spec.body.name,
        total=len(lines),
        running=sum(counts.open[run_id] for run_id in live),
        done=counts.ended - counts.failed,
        failed=counts.failed,
    )
    if counts.ended:
        reply.mean_s = counts.ran_s / counts.ended
    numbers = known if request.only_failed else range(after + 1, len(lines) + 1)
    for number in islice(numbers, PAGE):
        put_task(reply.tasks.add(number=number, line=lines[number - 1]), known.get(number), live)
    reply.more = len(numbers) > PAGE
    return reply


def put_task(view: control_pb2.TaskView, row: TaskRun | None, live: Collection[RunId]) -> None:
    """Put into a view how a task stands.

    Args:
        view: with its number.
        row: what is stored of it; None: no run has had it.
        live: runs that are not over.
    """
    if row is None or (row.ended_at is None and row.run_id not in live):
        view.state = "waiting"
        return
    view.node = row.node
    if row.ended_at is None:
        view.state = "running"
        return
    view.code, view.signal, view.ran_s = row.code or 0, row.signal or 0, row.ran_s or 0.0
    view.state = "failed" if view.code or view.signal else "done"
