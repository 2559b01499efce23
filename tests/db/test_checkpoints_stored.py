"""The registry of checkpoints: what is there, what a job begins at, and old tables."""

from __future__ import annotations

from dlsched.db.checkpoints import ASIDE, DELETED, CheckpointsMarked, Unsaved
from dlsched.db.reading.filters import Filter
from dlsched.db.records import CheckpointCommitted, EnvironmentGiven
from dlsched.db.store import Store
from dlsched.protocol.ledger import Attach, CancelJob, JobStatus, Restart
from dlsched.protocol.messages import Epoch, JobId, RunId
from tests.db.ledgers import content_of, submit

ONE, TWO = JobId(1), JobId(2)


def saved(job: int, step: int, source: int | None = None) -> CheckpointCommitted:
    return CheckpointCommitted(
        job=JobId(job),
        run_id=RunId("r1"),
        at=1.0,
        path=f"/c/{source or job}/{step}",
        step=step,
        size_bytes=7,
        sha256="",
        loss=0.5,
        source=None if source is None else JobId(source),
    )


def test_a_job_begins_at_the_newest_that_is_kept(store: Store, epoch: Epoch) -> None:
    rows = [Attach(saved(1, 5)), Attach(saved(1, 10)), Attach(saved(2, 10, source=1))]
    store.persist(epoch, 1, [submit(1), submit(2), *rows], 1.0)
    loaded = store.load()
    assert [loaded.jobs[job].checkpoint for job in (ONE, TWO)] == [saved(1, 10), saved(2, 10, 1)]
    assert loaded.borrowed == {TWO: (ONE, "/c/1/10")}
    last, first = store.checkpoints(Filter(jobs=(ONE,)))
    assert (last.step, first.step, last.source, last.user) == (10, 5, None, "ann")
    aside = CheckpointsMarked(job=ONE, ids=(last.id,), paths=(last.path,), state=ASIDE)
    store.persist(epoch, 2, [Attach(aside)], 2.0)
    assert store.load().jobs[ONE].checkpoint == saved(1, 5)
    assert [row.state for row in store.checkpoints(Filter(jobs=(ONE,)))] == ["aside", "kept"]
    (borrowed,) = store.checkpoints(Filter(jobs=(TWO,)))
    assert (borrowed.owner, borrowed.source) == (ONE, ONE)
    gone = CheckpointsMarked(job=TWO, ids=(borrowed.id,), paths=("/c/1/10",), state=DELETED)
    store.persist(epoch, 3, [Attach(gone)], 3.0)
    assert store.load().borrowed == {}
    assert store.checkpoints(Filter(jobs=(TWO,))) == []


def test_an_ended_job_is_live_again_with_an_environment(store: Store, epoch: Epoch) -> None:
    store.persist(epoch, 1, [submit(1), content_of(1, environment={"A": "1"}), CancelJob(ONE)], 1.0)
    assert store.load().ledger.jobs == {}
    renewed = EnvironmentGiven(job=ONE, variables={"A": "2"})
    store.persist(epoch, 2, [Restart(ONE), Attach(renewed)], 2.0)
    loaded = store.load()
    job = loaded.ledger.jobs[ONE]
    assert (job.status, job.reason) == (JobStatus.PENDING, "Requeued")
    assert loaded.jobs[ONE].ended_at is None
    assert store.contents([ONE])[ONE].environment == {"A": "2"}
    assert "2" not in repr(renewed)
    store.persist(epoch, 3, [CancelJob(ONE)], 3.0)
    assert store.jobs([ONE])[0].facts.ended_at == 3.0
    assert store.contents([ONE])[ONE].environment == {}


def unsaved(job: int, step: int, in_a_row: int = 1) -> Unsaved:
    return Unsaved(
        job=JobId(job), run_id=RunId("r1"), at=float(step), step=step, why="full", in_a_row=in_a_row
    )


def test_a_job_that_could_not_save_is_known_with_what_it_has_instead(
    store: Store, epoch: Epoch
) -> None:
    rows = [saved(1, 5), saved(1, 10), unsaved(1, 20), unsaved(2, 30)]
    store.persist(epoch, 1, [submit(1), submit(2), *map(Attach, rows)], 1.0)
    assert store.load().unsaved == (unsaved(2, 30), unsaved(1, 20))
    two, one = store.unsaved(Filter(users=("ann",)), 9)
    assert store.unsaved(Filter(), 1) == [two]
    assert (one.unsaved, one.newest_step, one.newest_at) == (unsaved(1, 20), 10, 1.0)
    assert (two.unsaved, two.newest_step, two.user) == (unsaved(2, 30), None, "ann")
    assert store.pasts([ONE, TWO])[TWO].unsaved == two
    later = [unsaved(1, 40, 2), saved(1, 35), saved(2, 30)]
    store.persist(epoch, 2, list(map(Attach, later)), 2.0)
    assert [each.unsaved for each in store.unsaved(Filter(), 9)] == [unsaved(1, 40, 2)]
