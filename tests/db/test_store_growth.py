"""What has ended costs nothing: live queries go by indices on what lives, whatever the history."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

import pytest
from sqlalchemy import Connection, event

from dlsched.db.reading.filters import Filter
from dlsched.db.store import Store
from dlsched.protocol.messages import Epoch, JobId, RunId
from tests.db.histories import add_history
from tests.db.ledgers import assign, content_of, ended, node, submit

LARGE = {"jobs", "runs", "run_members", "job_story", "events", "exit_history", "job_bodies"}


def live_work(store: Store) -> list[Callable[[], object]]:
    """What a daemon asks while it runs."""
    return [
        store.load,
        store.queue,
        lambda: store.queue(Filter(users=("ann",))),
        lambda: store.jobs([JobId(1)]),
        lambda: store.events(JobId(1)),
        lambda: store.runs(JobId(1)),
        lambda: store.run_lookup([RunId("run-1-1"), RunId("old7")]),
        lambda: store.history(limit=20, newest_first=True),
        lambda: store.history(Filter(users=("ann",)), limit=20),
    ]


def statements_of(store: Store, work: Callable[[], object]) -> list[tuple[str, object]]:
    """The statements that some work executes, with their values."""
    asked: list[tuple[str, object]] = []

    def note(_c: object, _k: object, statement: str, given: object, *_: object) -> None:
        asked.append((statement, given))

    event.listen(store.engine, "before_cursor_execute", note)
    work()
    event.remove(store.engine, "before_cursor_execute", note)
    return asked


def effort(store: Store, work: Callable[[], object]) -> int:
    """What some work costs the database, as a count: SQLite's steps, Postgres' pages."""
    total = 0
    for statement, given in statements_of(store, work):
        if not statement.startswith(("SELECT", "WITH")):
            continue
        with store.engine.connect() as connection:
            if store.kind == "SQLite":
                total += _steps(connection, statement, given)
            else:
                explain = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}"
                plan = connection.exec_driver_sql(explain, first_of(given)).scalar_one()[0]["Plan"]  # type: ignore[arg-type]
                total += plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
    return total


def _steps(connection: Connection, statement: str, given: object) -> int:
    """The steps of SQLite's virtual machine that a statement takes."""
    steps = 0

    def count() -> None:
        nonlocal steps
        steps += 1

    raw = connection.connection.driver_connection
    assert isinstance(raw, sqlite3.Connection)
    raw.set_progress_handler(count, 1)
    try:
        connection.exec_driver_sql(statement, first_of(given)).all()  # type: ignore[arg-type]
    finally:
        raw.set_progress_handler(None, 1)
    return steps


def scans(store: Store, work: Callable[[], object]) -> list[str]:
    """The scans over whole large tables that some work makes."""
    found = []
    with store.engine.connect() as connection:
        for statement, given in statements_of(store, work):
            if not statement.startswith(("SELECT", "UPDATE", "DELETE")):
                continue
            prefix = "EXPLAIN QUERY PLAN " if store.kind == "SQLite" else "EXPLAIN "
            plan = connection.exec_driver_sql(prefix + statement, first_of(given))  # type: ignore[arg-type]
            lines = [" ".join(map(str, row)) for row in plan]
            found += [line for line in lines if is_scan(line, "LIMIT" in statement)]
    return found


def first_of(given: object) -> object:
    """The values of a statement, or the first ones of many."""
    return given[0] if isinstance(given, list) else given


def is_scan(line: str, limited: bool) -> bool:
    """Whether a line of a plan reads all of a table or index that grows with the history."""
    words = line.replace("Seq Scan on", "SCAN").split()
    if "SCAN" not in words or words[words.index("SCAN") + 1] not in LARGE:
        return False
    return not ("INDEX" in words and (limited or "_live_by_" in line))


@pytest.fixture
def busy(store: Store, epoch: Epoch) -> Store:
    """A store with some live work."""
    writes = [node("n1"), *(submit(k) for k in range(1, 51)), assign(1, ("n1", (0,)))]
    store.persist(epoch, 1, writes, 1.0)
    return store


def test_no_live_query_reads_through_the_history(busy: Store, epoch: Epoch) -> None:
    add_history(busy, 20_000)
    assert scans(busy, busy.usage)  # a report over all runs: such a scan would be noticed
    for work in live_work(busy):
        assert scans(busy, work) == []
    changes = [
        [assign(2, ("n1", (1,)))],
        [ended(1, "n1"), ended(2, "n1")],
        [submit(51), content_of(51, environment={"A": "1"})],
    ]
    for number, writes in enumerate(changes, 2):

        def persist(k: int = number, w: list[object] = writes) -> None:  # type: ignore[assignment]
            busy.persist(epoch, k, w, 2.0)  # type: ignore[arg-type]

        assert scans(busy, persist) == []


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "url", ["sqlite", pytest.param("postgres", marks=pytest.mark.exhaustive)], indirect=True
)
def test_b9_a_million_ended_jobs_do_not_slow_live_queries(busy: Store, epoch: Epoch) -> None:
    asked = live_work(busy)[:2]
    before = [effort(busy, work) for work in asked]
    add_history(busy, 1_000_000)
    after = [effort(busy, work) for work in asked]
    for old, new in zip(before, after, strict=True):
        assert 0 < new < old * 1.2 + 50
    for work in live_work(busy):
        assert scans(busy, work) == []
    busy.persist(epoch, 2, [assign(2, ("n1", (1,)))], 2.0)
