"""Transactions: whole or not at all, once, under an epoch that stands; what fails is told."""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from typing import Any

import pytest
from sqlalchemy import create_engine, event, func, select, text
from sqlalchemy.pool import NullPool

from dlsched.core.errors import InvariantBroken
from dlsched.db import engine as engine_module
from dlsched.db import schema
from dlsched.db import store as store_module
from dlsched.db.engine import writing
from dlsched.db.errors import Deposed, StoreUnavailable
from dlsched.db.records import Event
from dlsched.db.store import Store
from dlsched.protocol.ledger import (
    IS_GONE,
    Attach,
    CancelJob,
    MemberOver,
    RaiseEpoch,
    StopRun,
    apply_all,
)
from dlsched.protocol.messages import Epoch, ExitReason, JobId, NodeName, StopReason
from tests.db.ledgers import assign, content_of, ended, key, node, submit, submit_array
from tests.postgres import PostgresCluster
from tests.protocol.simulation.truth import live_part


def count(store: Store, table: str) -> int:
    with store.engine.connect() as connection:
        query = select(func.count()).select_from(schema.METADATA.tables[table])
        return int(connection.execute(query).scalar_one())


def test_what_is_loaded_is_what_the_ledger_says(store: Store, epoch: Epoch) -> None:
    before = store.load().ledger
    writes = [node("n1"), submit(1), submit(2, gang=(2,)), *submit_array(3, 4)]
    writes += [assign(1, ("n1", (0,))), ended(1, "n1"), assign(2, ("n1", (0, 1)))]
    store.persist(epoch, 1, writes, 100.0)
    assert store.load().ledger == live_part(apply_all(before, writes))
    assert store.load().ledger.leader == "daemon-1"


@pytest.mark.parametrize("stop", [StopReason.MIGRATE, StopReason.CANCEL])
def test_the_next_leader_knows_of_a_process_that_cannot_be_killed(
    store: Store, epoch: Epoch, stop: StopReason
) -> None:
    """Its run is over for its user, whose job waits or has ended."""
    writes = [node("n1"), submit(1), assign(1, ("n1", (0,))), StopRun(key(1).run_id, stop)]
    end = ended(1, "n1", reason=ExitReason.UNKILLABLE, stop=stop)
    store.persist(epoch, 1, [*writes, end], 100.0)
    found = store.load().ledger
    stuck = found.stuck_run(JobId(1))
    assert stuck is not None
    assert (stuck.is_over, stuck.stuck_on) == (True, ["n1"])
    assert found.busy(NodeName("n1")) == {"n1-g0"}
    store.persist(epoch, 2, [MemberOver(key(1).run_id, NodeName("n1"), presumed=IS_GONE)], 101.0)
    found = store.load().ledger
    assert (found.runs, found.busy(NodeName("n1"))) == ({}, set())
    assert found.jobs.keys() == ({1} if stop is StopReason.MIGRATE else set())


def test_one_persist_is_one_transaction(store: Store, epoch: Epoch) -> None:
    begun: list[object] = []
    event.listen(store.engine, "begin", begun.append)
    rows = [Attach(Event(at=1.0, kind="submit", job=JobId(k))) for k in range(1, 51)]
    store.persist(epoch, 1, [node("n1"), *(submit(k) for k in range(1, 51)), *rows], 1.0)
    assert len(begun) == store.transactions == 1
    assert count(store, "jobs") == 50
    assert count(store, "events") == 51  # and the node's


def test_a_repeated_number_is_stored_once(store: Store, epoch: Epoch) -> None:
    writes = [submit(1), Attach(Event(at=1.0, kind="submit", job=JobId(1)))]
    for _ in range(3):
        store.persist(epoch, 1, writes, 1.0)
    assert (count(store, "jobs"), count(store, "events"), store.transactions) == (1, 1, 1)


def test_a_raised_epoch_goes_on_and_its_transaction_may_be_repeated(
    store: Store, epoch: Epoch
) -> None:
    store.persist(epoch, 1, [RaiseEpoch(Epoch(7)), submit(1)], 1.0)
    store.persist(epoch, 1, [RaiseEpoch(Epoch(7)), submit(1)], 1.0)
    assert store.load().ledger.epoch == 7
    assert store.confirm(Epoch(7))
    store.persist(Epoch(7), 2, [submit(2)], 1.0)
    with pytest.raises(Deposed, match=f"epoch {epoch} is over: daemon-1 leads with epoch 7"):
        store.persist(epoch, 3, [submit(3)], 1.0)


def test_an_impossible_change_leaves_no_trace(store: Store, epoch: Epoch) -> None:
    store.persist(epoch, 1, [submit(1), CancelJob(JobId(1))], 1.0)
    with pytest.raises(InvariantBroken, match="job 1 is cancelled and cannot be"):
        store.persist(epoch, 2, [submit(2), CancelJob(JobId(1))], 1.0)
    assert count(store, "jobs") == 1
    store.persist(epoch, 2, [submit(2)], 1.0)
    assert count(store, "jobs") == 2


def test_the_same_job_twice_is_a_defect(store: Store, epoch: Epoch) -> None:
    store.persist(epoch, 1, [submit(1)], 1.0)
    with pytest.raises(InvariantBroken):
        store.persist(epoch, 2, [submit(1)], 1.0)


def test_b2_a_commit_whose_answer_was_lost_is_found_out(
    store: Store, epoch: Epoch, monkeypatch: pytest.MonkeyPatch
) -> None:
    dialect = store.engine.dialect
    commit = dialect.do_commit
    lost = []

    def commit_then_lose(connection: Any) -> None:
        commit(connection)
        if not lost:
            lost.append(True)
            error = dialect.loaded_dbapi.OperationalError("the connection is lost")
            if store.kind == "Postgres":
                connection.dbapi_connection.close()
            else:
                error.sqlite_errorcode = sqlite3.SQLITE_IOERR
            raise error

    monkeypatch.setattr(dialect, "do_commit", commit_then_lose)
    writes = [submit(1), Attach(Event(at=1.0, kind="submit", job=JobId(1)))]
    store.persist(epoch, 1, writes, 1.0)
    assert lost
    assert (count(store, "jobs"), count(store, "events")) == (1, 1)


def test_b3_a_lock_that_is_held_is_waited_for(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "BUSY_S", 0.05)
    waits: list[float] = []
    with Store.open(url) as store, Store.open(url) as other:
        term = store.contend("daemon-1")
        assert term is not None
        with writing(other.engine) as held:
            held.execute(schema.leader.select().with_for_update())  # as a contender does
            monkeypatch.setattr(time, "sleep", waits.append)
            with pytest.raises(StoreUnavailable, match="cannot store"):
                store.persist(term.epoch, 1, [submit(1)], 1.0)
        assert len(waits) >= 3
        assert all(0 <= wait <= 0.5 for wait in waits)

        transaction = other.engine.connect()
        locked = transaction.execution_options(dlsched_write=True)
        locked.begin()
        locked.execute(schema.leader.select().with_for_update())
        monkeypatch.setattr(time, "sleep", lambda _: transaction.rollback())
        store.persist(term.epoch, 1, [submit(1)], 1.0)
        transaction.close()
        assert store.jobs([JobId(1)])


def test_b4_a_full_database_refuses_and_recovers(
    store: Store, epoch: Epoch, request: pytest.FixtureRequest
) -> None:
    def limit(full: bool) -> None:
        if store.kind == "SQLite":
            store.engine.dispose()  # the bound belongs to a connection
            pages = "PRAGMA page_count"
            with store.engine.connect() as connection:
                now = connection.execute(text(pages)).scalar_one()
            bounds["pages"] = now if full else 1 << 30
            return
        cluster: PostgresCluster = request.getfixturevalue("postgres_cluster")
        name = store.engine.url.database
        cluster.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = {full}")
        cluster.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            f"WHERE datname = '{name}' AND application_name = 'dlsched'"
        )

    bounds: dict[str, int] = {}
    if store.kind == "SQLite":

        @event.listens_for(store.engine, "checkout")
        def bound(connection: Any, *_: object) -> None:
            connection.execute(f"PRAGMA max_page_count={bounds.get('pages', 1 << 30)}")

    store.persist(epoch, 1, [submit(1)], 1.0)
    limit(True)
    large = [*submit_array(2, 300), content_of(2, script=b"x" * 100_000)]
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="cannot store"):
            store.persist(epoch, 2, large, 1.0)
    assert [job.job.job for job in store.queue()] == [1]  # reads go on
    limit(False)
    store.persist(epoch, 2, large, 1.0)
    assert len(store.queue()) == 301


def test_b1_a_database_that_is_away_says_so(tmp_path: Any) -> None:
    with pytest.raises(StoreUnavailable, match="cannot store: postgresql"):
        Store.open(f"postgresql+psycopg://nobody:secret@/none?host={tmp_path}")


def test_a_connection_that_was_cut_is_made_anew(
    store: Store, epoch: Epoch, request: pytest.FixtureRequest
) -> None:
    if store.kind == "SQLite":
        pytest.skip("SQLite has no connection to cut")
    cluster: PostgresCluster = request.getfixturevalue("postgres_cluster")
    store.persist(epoch, 1, [submit(1)], 1.0)
    cluster.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        f"WHERE datname = '{store.engine.url.database}' AND application_name = 'dlsched'"
    )
    store.persist(epoch, 2, [submit(2)], 1.0)
    assert [job.job.job for job in store.queue()] == [1, 2]


def test_ten_thousand_jobs_are_one_transaction_of_few_statements(
    store: Store, epoch: Epoch
) -> None:
    statements = Counter[str]()

    def note(_c: object, _k: object, statement: str, *_: object) -> None:
        statements[statement] += 1

    def persist(first: int, number: int, jobs: int) -> int:
        """Persist jobs and an event of each in one call; how many statements that takes."""
        ids = range(first, first + jobs)
        rows = [Attach(Event(at=1.0, kind="submit", job=JobId(k))) for k in ids]
        before, transactions = statements.total(), store.transactions
        store.persist(epoch, number, [*map(submit, ids), *rows], 1.0)
        assert store.transactions == transactions + 1
        return statements.total() - before

    event.listen(store.engine, "before_cursor_execute", note)
    few, many = persist(1, 1, 100), persist(101, 2, 10_000)
    event.remove(store.engine, "before_cursor_execute", note)
    # a statement takes thousands of rows at once, so that their number hardly grows with the jobs
    assert many <= few + 60, statements.most_common(5)
    assert count(store, "jobs") == count(store, "events") == 10_100


def test_what_a_database_cannot_hold_is_replaced_not_refused(store: Store, epoch: Epoch) -> None:
    """One job with a stray byte must not keep a whole transaction from being stored."""
    name = "nul \0 and half a surrogate \udc80, é, 漢"
    store.persist(epoch, 1, [submit(1, name=name, comment=name)], 1.0)
    (job,) = store.jobs([JobId(1)])
    assert job.spec is not None
    assert job.spec.body.name == job.spec.body.comment == name  # JSON holds it exactly


def test_old_transactions_are_forgotten_but_not_the_last(
    store: Store, epoch: Epoch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "REMEMBERED", 8)
    for number in range(1, 40):
        store.persist(epoch, number, [], 1.0)
    assert 8 <= count(store, "transactions") <= 17
    store.persist(epoch, 39, [submit(1)], 1.0)  # still known
    assert count(store, "jobs") == 0


def test_another_program_can_read_while_a_transaction_is_open(store: Store, epoch: Epoch) -> None:
    other = create_engine(store.engine.url, poolclass=NullPool)
    store.persist(epoch, 1, [submit(1)], 1.0)
    with writing(store.engine) as connection:
        connection.execute(schema.jobs.update().values(reason="busy"))
        with other.connect() as reader:
            assert reader.execute(select(schema.jobs.c.reason)).scalar_one() == "Resources"
