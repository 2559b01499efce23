"""What starts took, beside what was lost: no second is both."""

from __future__ import annotations

from dlsched.db.reading.loading import JobFacts
from dlsched.db.records import CheckpointCommitted, Progress
from dlsched.db.store import Store
from dlsched.protocol.ledger import Attach, StopRun
from dlsched.protocol.messages import Epoch, JobId, StopReason
from tests.db.ledgers import assign, ended, key, node, submit


class Ledger:
    """Job 1 on one node, a transaction a call."""

    def __init__(self, store: Store, epoch: Epoch) -> None:
        self.store, self.epoch, self.number = store, epoch, 0
        self(node("n1"), submit(1), submit(2))

    def __call__(self, *writes: object) -> None:
        self.number += 1
        rows = [
            w if type(w).__module__ == "dlsched.protocol.ledger.writes" else Attach(w)
            for w in writes
        ]
        self.store.persist(self.epoch, self.number, rows, float(self.number))  # type: ignore[arg-type]

    def run(self, run: int, starts_s: float | None, saved_s: float | None, ran_s: float) -> None:
        """A run that was preempted."""
        run_id = key(1, run).run_id
        self(assign(1, ("n1", (0,)), run=run))
        self(Progress(run_id=run_id, step=1, executed_s=1.0, restart_s=starts_s))
        self(Progress(run_id=run_id, step=9, executed_s=2.0))  # which says nothing of the start
        if saved_s is not None:
            self(
                CheckpointCommitted(
                    job=JobId(1), run_id=run_id, at=2.0, path="/c", step=7, size_bytes=9,
                    sha256="ab", executed_s=saved_s,
                )
            )  # fmt: skip
        self(
            StopRun(run_id, StopReason.PREEMPT),
            ended(1, "n1", run=run, code=143, ran_s=ran_s, stop=StopReason.PREEMPT),
        )


def spent(facts: JobFacts) -> tuple[float, int, float | None, float, float]:
    return (
        facts.lost_s, facts.restarts, facts.restart_s, facts.starting_s, facts.run_restart_s,
    )  # fmt: skip


def test_starts_of_runs_whose_work_lasts_are_counted_apart_from_what_is_lost(
    store: Store, epoch: Epoch
) -> None:
    job = Ledger(store, epoch)

    def now() -> tuple[float, int, float | None, float, float]:
        return spent(store.load().jobs[JobId(1)])

    job.run(1, starts_s=10.0, saved_s=30.0, ran_s=50.0)
    assert now() == (20.0, 1, 10.0, 10.0, 0.0)
    job.run(2, starts_s=40.0, saved_s=None, ran_s=60.0)  # all of it in vain, its start too
    assert now() == (80.0, 2, 25.0, 10.0, 0.0)
    job.run(3, starts_s=None, saved_s=9.0, ran_s=9.0)
    assert now() == (80.0, 2, 25.0, 10.0, 0.0)
    job(assign(1, ("n1", (0,)), run=4))
    job(Progress(run_id=key(1, 4).run_id, step=1, executed_s=8.0, restart_s=7.0))
    assert now() == (80.0, 3, 19.0, 10.0, 7.0)
    job(ended(1, "n1", run=4, ran_s=100.0))
    (stored,) = store.jobs([JobId(1)])
    assert spent(stored.facts) == (80.0, 3, 19.0, 17.0, 0.0)
    (other,) = store.jobs([JobId(2)])
    assert spent(other.facts) == (0.0, 0, None, 0.0, 0.0)


def test_runs_that_tell_different_things_share_a_transaction(store: Store, epoch: Epoch) -> None:
    job = Ledger(store, epoch)
    job(assign(1, ("n1", (0,))), assign(2, ("n1", (1,))))
    first, second = key(1).run_id, key(2).run_id
    job(
        Progress(run_id=first, step=1, executed_s=3.0, restart_s=2.0),
        Progress(run_id=second, step=1, executed_s=3.0),
        Progress(run_id=first, step=2, executed_s=4.0, loss=0.5),
    )
    told = [store.load().jobs[JobId(k)].progress for k in (1, 2)]
    assert told == [
        Progress(run_id=first, step=2, executed_s=4.0, restart_s=2.0, loss=0.5),
        Progress(run_id=second, step=1, executed_s=3.0),
    ]
