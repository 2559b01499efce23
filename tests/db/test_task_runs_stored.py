"""Short tasks are stored with the run that has them; their first end stays."""

from __future__ import annotations

from dataclasses import replace

from dlsched.db.records import ArrayShape, JobSpec
from dlsched.db.retention import JobsRemoved
from dlsched.db.store import Store
from dlsched.db.task_runs import TaskEnd, TasksEnded, TasksGiven
from dlsched.protocol.ledger import Attach, CancelJob, Submit
from dlsched.protocol.messages import Epoch, JobId, NodeName, RunId
from tests.db.ledgers import submit_array

LINES = ("true", "echo 'é' | wc", "false", "true")
FIRST = TasksGiven(job=JobId(1), run_id=RunId("a"), node=NodeName("n1"), tasks=(1, 2, 3), at=5.0)


def ended(run: str, at: float, *ends: tuple[int, int]) -> Attach:
    made = tuple(TaskEnd(task=task, code=code, signal=0, ran_s=2.0) for task, code in ends)
    return Attach(TasksEnded(job=JobId(1), run_id=RunId(run), ends=made, at=at))


def tokens() -> list[Submit]:
    shape, found = ArrayShape(tasks=(0, 1), short_tasks=LINES), []
    for each in submit_array(1, 2):
        spec = each.request.spec
        assert isinstance(spec, JobSpec)
        found.append(replace(each, request=replace(each.request, spec=replace(spec, array=shape))))
    return found


def test_ends_count_once_and_for_the_run_that_has_the_task(store: Store, epoch: Epoch) -> None:
    store.persist(epoch, 1, [*tokens(), Attach(FIRST)], 1.0)
    [spec, _] = [job.request.spec for job in store.load().ledger.jobs.values()]
    assert isinstance(spec, JobSpec)
    assert spec.array is not None
    assert spec.array.short_tasks == LINES
    store.persist(epoch, 2, [ended("a", 7.0, (1, 0), (2, 3)), ended("b", 7.0, (3, 9))], 2.0)
    store.persist(epoch, 3, [ended("a", 9.0, (1, 8))], 3.0)  # told again, and not the same
    again = replace(FIRST, run_id=RunId("b"), node=NodeName("n2"), tasks=(1, 3, 4), at=11.0)
    store.persist(epoch, 4, [Attach(again)], 4.0)
    rows = store.task_runs(JobId(1))
    assert [(r.task, r.run_id, r.node, r.code, r.ended_at) for r in rows] == [
        (1, "a", "n1", 0, 7.0),
        (2, "a", "n1", 3, 7.0),
        (3, "b", "n2", None, None),
        (4, "b", "n2", None, None),
    ]
    counts = store.task_counts(JobId(1))
    assert (counts.ended, counts.failed, counts.ran_s, counts.open) == (2, 1, 4.0, {"b": 2})
    assert [r.task for r in store.task_runs(JobId(1), failed=9)] == [2]
    assert [r.task for r in store.task_runs(JobId(1), after=1, up_to=3)] == [2, 3]
    assert store.task_counts(JobId(7)).ended == 0


def test_tasks_leave_the_database_with_their_job(store: Store, epoch: Epoch) -> None:
    writes = [*tokens(), Attach(FIRST), CancelJob(JobId(1), "user"), CancelJob(JobId(2), "user")]
    store.persist(epoch, 1, writes, 1.0)
    store.persist(epoch, 2, [Attach(JobsRemoved(jobs=(JobId(1), JobId(2))))], 2.0)
    assert store.task_runs(JobId(1)) == []
