"""Whatever a clock counts is stored and read back; a new figure needs no line here."""

from __future__ import annotations

import math

from sqlalchemy import func, select

from dlsched.core.service_clock import NEW, Account, Received
from dlsched.db import schema
from dlsched.db.engine import reading
from dlsched.db.records import ClockMoved
from dlsched.db.served import JobServed, RunServed
from dlsched.db.store import Store
from dlsched.protocol.ledger import Attach
from dlsched.protocol.messages import Epoch, JobId
from tests.db.ledgers import assign, ended, key, node, submit

ALL = Received(*(k + 1 / 3 for k in range(len(Received._fields))))
ACCOUNT = Account(*(type(v)(k + 1 / 7) for k, v in enumerate(NEW)))  # type: ignore[arg-type]


def test_every_figure_of_a_run_is_stored_as_it_is_and_summed(store: Store, epoch: Epoch) -> None:
    store.persist(epoch, 1, [node("n1"), submit(1), submit(2)], 1.0)
    runs = [(1, 0), (2, 1)]
    store.persist(epoch, 2, [assign(job, ("n1", (gpu,))) for job, gpu in runs], 2.0)
    rows = [Attach(RunServed(run_id=key(job).run_id, received=ALL)) for job, _ in runs]
    store.persist(epoch, 3, [*rows, ended(1, "n1"), ended(2, "n1")], 3.0)
    for job, _ in runs:
        [run] = store.runs(JobId(job))
        assert run.received == ALL
        [stored] = store.jobs([JobId(job)])
        assert stored.facts.received == (key(job).run_id, ALL)
    with reading(store.engine) as connection:
        sums = connection.execute(select(func.sum(schema.runs.c.lost_s))).scalar_one()
    assert sums == 2 * ALL.lost_s
    assert [each.gpu_s for each in store.usage(by="user")[0]] == [2 * ALL.attained]


def test_every_figure_of_a_job_is_stored_as_it_is(store: Store, epoch: Epoch) -> None:
    served = [
        JobServed(
            job=JobId(job), run_id="r", holds=True, account=account, measured_starts=2,
            failed_starts=1, not_before=waits,
        )
        for job, account, waits in ((1, ACCOUNT, 7.5), (2, NEW._replace(since=1.0), -math.inf))
    ]  # fmt: skip
    store.persist(epoch, 1, [submit(1), submit(2), submit(3), *map(Attach, served)], 1.0)
    jobs = store.load().jobs
    assert jobs[JobId(1)].served == served[0]
    assert repr(jobs[JobId(2)].served) == repr(served[1])  # NaN is not equal to itself
    assert jobs[JobId(3)].served is None
    store.persist(epoch, 2, [Attach(ClockMoved(by_s=60.0))], 2.0)
    assert store.load().jobs[JobId(1)].served == served[0].moved(60.0)
