"""Reports of runs that share a transaction."""

from __future__ import annotations

from dlsched.db.records import Progress
from dlsched.db.store import Store
from dlsched.protocol.ledger import Attach
from dlsched.protocol.messages import Epoch, JobId
from tests.db.ledgers import assign, key, node, submit


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
