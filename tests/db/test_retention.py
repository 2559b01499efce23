"""What the history lets go of, and what it keeps although it is old."""

from __future__ import annotations

from sqlalchemy import func, select, text

from dlsched.db import schema
from dlsched.db.checkpoints import DELETED, CheckpointsMarked
from dlsched.db.engine import writing
from dlsched.db.records import CheckpointCommitted, Dependency, Event
from dlsched.db.retention import JobsRemoved, LinesRemoved
from dlsched.db.store import Store
from dlsched.protocol.ledger import Attach, CancelJob
from dlsched.protocol.messages import Epoch, JobId, RunId
from tests.db.histories import add_history
from tests.db.ledgers import assign, content_of, ended, node, submit, submit_array

LATER = 1e9
OF_JOBS = (
    *(schema.jobs, schema.job_bodies, schema.job_environments, schema.job_story, schema.runs),
    *(schema.run_members, schema.progress, schema.predictions, schema.arrays, schema.dependencies),
)


def rows_of(store: Store) -> dict[str, int]:
    """How many rows each table has about jobs."""
    with store.engine.connect() as connection:
        return {
            table.name: connection.execute(select(func.count()).select_from(table)).scalar_one()
            for table in OF_JOBS
        }


def remove(store: Store, epoch: Epoch, number: int) -> list[JobId]:
    found = store.removable_jobs(LATER, 100)
    store.persist(epoch, number, [Attach(JobsRemoved(jobs=tuple(found)))], 5.0)
    return found


def test_a_job_leaves_with_all_that_is_known_of_it(store: Store, epoch: Epoch) -> None:
    work = [node("n1"), submit(1), content_of(1, environment={"A": "1"}), assign(1, ("n1", (0,)))]
    store.persist(epoch, 1, [*work, *submit_array(2, 3)], 1.0)
    store.persist(epoch, 2, [ended(1, "n1"), *(CancelJob(JobId(k)) for k in (2, 3, 4))], 2.0)
    add_history(store, 60)
    assert store.removable_jobs(1.5, 100) == [1_000_001]  # its end was at second 1
    assert store.removable_jobs(2.0, 100) == [1_000_001]
    before = rows_of(store)
    assert (before["jobs"], before["job_bodies"], before["arrays"]) == (64, 62, 1)
    assert remove(store, epoch, 3)[:5] == [1_000_001, 1, 2, 3, 4]
    assert set(rows_of(store).values()) == {0}
    assert store.jobs([JobId(1)]) == store.history() == []
    assert store.events(JobId(1)) == []


def test_a_shared_body_stays_with_the_last_job_that_has_it(store: Store, epoch: Epoch) -> None:
    store.persist(epoch, 1, submit_array(1, 3), 1.0)
    store.persist(epoch, 2, [CancelJob(JobId(k)) for k in (1, 2, 3)], 2.0)
    store.persist(epoch, 3, [Attach(JobsRemoved(jobs=(JobId(1), JobId(2))))], 3.0)
    assert (rows_of(store)["job_bodies"], rows_of(store)["arrays"]) == (1, 1)
    assert [each.job.job for each in store.history()] == [3]


def test_live_jobs_and_what_they_need_stay(store: Store, epoch: Epoch) -> None:
    needs = (Dependency(kind="afterok", job=JobId(2)),)
    writes = [submit(1), submit(2), submit(3, dependencies=needs), *submit_array(4, 2), submit(9)]
    store.persist(epoch, 1, writes, 1.0)
    store.persist(epoch, 2, [CancelJob(JobId(k)) for k in (1, 2, 4)], 2.0)
    assert store.removable_jobs(LATER, 100) == [1]  # job 3 depends on 2, and 5 is of 4's array
    # a job that is live by now is not removed
    store.persist(epoch, 3, [Attach(JobsRemoved(jobs=(JobId(9),)))], 3.0)
    assert {each.job.job for each in store.queue()} == {3, 5, 9}
    store.persist(epoch, 4, [CancelJob(JobId(k)) for k in (3, 5)], 4.0)
    assert remove(store, epoch, 5) == [1, 2, 4, 3, 5]


def test_a_job_stays_as_long_as_files_of_its_checkpoints(store: Store, epoch: Epoch) -> None:
    def saved(job: int, source: int | None) -> CheckpointCommitted:
        return CheckpointCommitted(
            job=JobId(job),
            run_id=RunId("r1"),
            at=1.0,
            path="/c/1",
            step=5,
            size_bytes=7,
            sha256="",
            loss=None,
            source=None if source is None else JobId(source),
        )

    writes = [submit(1), submit(2), Attach(saved(1, None)), Attach(saved(2, 1))]
    store.persist(epoch, 1, [*writes, CancelJob(JobId(1)), CancelJob(JobId(2))], 1.0)
    assert store.removable_jobs(LATER, 100) == []
    for number, (job, row) in enumerate(((1, 1), (2, 2)), start=2):
        gone = CheckpointsMarked(job=JobId(job), ids=(row,), paths=("/c/1",), state=DELETED)
        store.persist(epoch, number, [Attach(gone)], 2.0)
        assert store.removable_jobs(LATER, 100) == ([] if job == 1 else [1, 2])


def test_old_events_and_rounds_leave_in_parts(store: Store, epoch: Epoch) -> None:
    lines = [Attach(Event(at=float(k), kind="reload", actor="ann")) for k in range(10)]
    store.persist(epoch, 1, lines, 1.0)
    with writing(store.engine) as connection:
        connection.execute(
            text(
                "INSERT INTO rounds (number, at, mode, policy, wall_s, cpu_s, pending, running, "
                "starts, stops) VALUES (1, 3.0, 'full', 'fifo', 0, 0, 0, 0, 0, 0)"
            )
        )
    left = []
    number = 2
    while store.has_old_lines(7.0):
        store.persist(epoch, number, [Attach(LinesRemoved(before=7.0, most=3))], 2.0)
        left.append(len(store.events()))
        number += 1
    assert left == [7, 4, 3]
    assert [each.event.at for each in store.events()] == [7.0, 8.0, 9.0]
