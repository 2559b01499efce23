"""Versions of the tables, and rows that cannot be read: said by name, never skipped."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import inspect, select, text

from dlsched.core.errors import BadInput, DlschedError
from dlsched.core.service_clock import NOTHING, Account, Received
from dlsched.db import schema
from dlsched.db.__main__ import main
from dlsched.db.backup import backup, restored
from dlsched.db.contents import JobContent, program_of
from dlsched.db.engine import open_engine, writing
from dlsched.db.errors import SchemaMismatch, StoreCorrupt
from dlsched.db.migrations import newest
from dlsched.db.records import CheckpointCommitted, PolicySet, Progress
from dlsched.db.retention import LinesRemoved
from dlsched.db.store import Store
from dlsched.db.stored_bytes import EVENT_BYTES, ROW_BYTES
from dlsched.db.versions import migrate, version
from dlsched.protocol.ledger import Adopt, Attach, CancelJob, StopRun, Write
from dlsched.protocol.messages import Epoch, HeldRun, JobId, NodeName, Phase, StopReason
from tests.db.first_version import make_first_version, take_back_0021, take_back_0022
from tests.db.ledgers import assign, content_of, ended, key, node, submit, submit_array


def execute(url: str, statement: str) -> None:
    engine = open_engine(url)
    with writing(engine) as connection:
        connection.exec_driver_sql(statement)
    engine.dispose()


def test_a_new_database_gets_its_tables_at_once(url: str) -> None:
    assert version(url) is None
    Store.open(url).close()
    assert version(url) == schema.VERSION == newest()
    assert migrate(url) == (schema.VERSION, schema.VERSION)


def test_migrations_lead_to_the_same_tables(url: str) -> None:
    make_first_version(url)
    assert migrate(url) == (schema.FIRST, schema.VERSION)
    engine = open_engine(url)
    with writing(engine) as connection:
        found = compare_metadata(MigrationContext.configure(connection), schema.METADATA)
        tables = set(inspect(connection).get_table_names())
    engine.dispose()
    assert found == []
    assert tables == {*schema.METADATA.tables, "alembic_version"}
    with Store.open(url) as store:
        term = store.contend("daemon-1")
        assert term is not None
        store.persist(term.epoch, 1, [submit(1)], 1.0)


def test_migrated_and_created_databases_have_the_same_statements(tmp_path: Path) -> None:
    def statements(path: Path) -> dict[str, str]:
        engine = open_engine(f"sqlite:///{path}")
        with engine.connect() as connection:
            rows = connection.execute(text("SELECT name, sql FROM sqlite_master WHERE sql <> ''"))
            found = {name: " ".join(sorted(re.findall(r"\w+", sql))) for name, sql in rows}
        engine.dispose()
        return found

    Store.open(f"sqlite:///{tmp_path}/created.db").close()
    make_first_version(f"sqlite:///{tmp_path}/migrated.db")
    migrate(f"sqlite:///{tmp_path}/migrated.db")
    assert statements(tmp_path / "created.db") == statements(tmp_path / "migrated.db")


APART = ("job_bodies", "programs", "scripts", "stored_bytes", "notices")  # by 0021


def rows_of(url: str, name: str) -> list[tuple[object, ...]]:
    """The rows of a table, in the order of their text."""
    engine = open_engine(url)
    table = schema.METADATA.tables[name]
    with engine.connect() as connection:
        found = sorted((tuple(row) for row in connection.execute(select(table))), key=repr)
    engine.dispose()
    return found


def test_what_jobs_execute_is_taken_out_of_their_bodies(url: str) -> None:
    """Scripts of two users, arguments, an array, a body without a program, stray characters."""

    def job(number: int, user: str, **content: Any) -> list[Write]:
        program = program_of(JobContent(**content), "/home")
        body = {"program": program, "working_directory": "/home", "notify": "all"}
        return [content_of(number, **content), submit(number, user=user, **body)]

    script, long = b"#!/bin/bash\n\xff\n", b"x" * 3000
    with Store.open(url) as store:
        term = store.contend("d")
        assert term is not None
        writes = [
            *job(1, "ann", script=script, argv=("a", "b")),
            *job(2, "ann", script=script, argv=("c",)),
            *job(3, "bob", script=script),
            *job(4, "bob", argv=("python", "train.py", "--name", "n\u00e4\udcff")),
            content_of(5, script=long, environment={"SECRET": "1"}),
            *submit_array(5, 3, program=program_of(JobContent(script=long), "")),
            submit(8, user="eve"),
            *(CancelJob(JobId(number)) for number in (1, 3)),
        ]
        store.persist(term.epoch, 1, writes, 10.0)
        of_jobs = store.contents(map(JobId, range(1, 9)))
    before = {name: rows_of(url, name) for name in APART}
    assert all(before.values())
    take_back_0022(url)
    take_back_0021(url)
    assert migrate(url) == ("0020", schema.VERSION)
    assert {name: rows_of(url, name) for name in APART} == before
    with Store.open(url) as store:
        assert store.contents(map(JobId, range(1, 9))) == of_jobs


def kept_of(url: str, user: str) -> int:
    """How many bytes of a user are counted."""
    engine = open_engine(url)
    query = text("SELECT COALESCE(SUM(bytes), 0) FROM stored_bytes WHERE user_name = :user")
    with engine.connect() as connection:
        found = int(connection.execute(query, {"user": user}).scalar_one())
    engine.dispose()
    return found


def test_what_jobs_had_received_is_counted_from_their_runs(url: str) -> None:
    """A preempted run with a checkpoint, one that costs a start, and one that goes on."""
    with Store.open(url) as store:
        term = store.contend("d")
        assert term is not None
        first = key(1, 1).run_id
        store.persist(term.epoch, 1, [node("n1"), submit(1), submit(2)], 10.0)
        store.persist(term.epoch, 2, [assign(1, ("n1", (0, 1)))], 20.0)
        told = Progress(run_id=first, step=1, executed_s=9.0, restart_s=10.0)
        saved = CheckpointCommitted(
            job=JobId(1), run_id=first, at=80.0, path="c", step=5, size_bytes=1, sha256="",
            executed_s=60.0,
        )  # fmt: skip
        store.persist(term.epoch, 3, [Attach(told), Attach(saved)], 80.0)
        stopped = StopRun(first, StopReason.PREEMPT)
        over = ended(1, "n1", code=143, ran_s=100.0, stop=StopReason.PREEMPT, at=120.0)
        store.persist(term.epoch, 4, [stopped, over], 120.0)
        store.persist(term.epoch, 5, [assign(1, ("n1", (3,)), run=2)], 200.0)
    take_back_0022(url)
    for statement in (
        "UPDATE runs SET executed_s = 100, gpu_s = 200 WHERE run = 1",
        "UPDATE jobs SET executed_s = 100, gpu_s = 200 WHERE job = 1",
        # what the versions of before did not count
        "INSERT INTO events (at, kind, actor, text, job) VALUES (90, 'hold', 'user1', 'abc', 1)",
        "INSERT INTO events (at, kind, actor, text, job) VALUES (95, 'requeue', 'op', '', 1)",
        "INSERT INTO events (at, kind, actor, text, job) VALUES (96, 'requeue', 'node n1', '', 1)",
    ):
        execute(url, statement)
    users = ("user1", "op", "node n1")
    before = [kept_of(url, user) for user in users]
    assert migrate(url) == ("0021", schema.VERSION)
    with Store.open(url) as store:
        facts, runs = store.load().jobs, store.runs(JobId(1))
        after = [store.stored_bytes(user) for user in users]
        more = [EVENT_BYTES + 3, ROW_BYTES, 0]
        assert [now - then for now, then in zip(after, before, strict=True)] == more
        store.persist(term.epoch, 6, [Attach(LinesRemoved(before=99.0, most=9000))], 210.0)
        assert [store.stored_bytes(user) for user in users] == before
    assert [run.received for run in runs] == [
        Received(100.0, 90.0, lost_s=40.0, overhead_s=10.0, restart_s=10.0, attained=200.0),
        NOTHING,
    ]
    assert facts[JobId(1)].restart_s == facts[JobId(1)].starting_s == 10.0
    assert facts[JobId(2)].served is None
    served = facts[JobId(1)].served
    assert served is not None
    assert served.run_id == ""
    assert served.account == Account(
        since=120.0, progress_from=120.0, first_start=20.0, held_s=100.0, executed=50.0,
        saved=50.0, attained=200.0, lost_s=40.0, overhead_s=10.0, restart_s=10.0, gpus_now=0,
        largest_scale=2, starts=2, preemptions=1, migrations=0, resizes=0,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("other", "hint"),
    [
        ("0019", " and converts 0020 or later; docs/database.md says what brings it to 0020"),
        ("9999", ""),
    ],
)
def test_a13_another_version_is_refused(url: str, other: str, hint: str) -> None:
    Store.open(url).close()
    execute(url, f"UPDATE alembic_version SET version_num = '{other}'")
    said = f"^database is at {other}, this program needs {schema.VERSION}{hint}$"
    with pytest.raises(SchemaMismatch, match=said):
        Store.open(url)
    with pytest.raises(SchemaMismatch, match=said):
        migrate(url)  # neither is known here
    assert version(url) == other


def test_an_older_database_says_what_brings_it_here(url: str) -> None:
    make_first_version(url)
    with pytest.raises(SchemaMismatch, match=r"; `dlsched daemon --migrate` brings it there$"):
        Store.open(url)


def test_a_database_of_another_program_is_not_touched(url: str) -> None:
    execute(url, "CREATE TABLE theirs (id INTEGER)")
    with pytest.raises(StoreCorrupt, match=r"tables of another program \(theirs\)"):
        Store.open(url)


def test_several_programs_may_open_an_empty_database_at_once(url: str) -> None:
    with ThreadPoolExecutor(4) as pool:
        stores = list(pool.map(Store.open, [url] * 4))
    leaders = [store.contend(f"d{k}") for k, store in enumerate(stores)]
    assert [term.epoch for term in leaders if term is not None] == [1]
    for store in stores:
        store.close()


def test_f8_a_restored_database_leaps_over_the_ids_that_were_lost(url: str) -> None:
    with Store.open(url) as store:
        term = store.contend("daemon-1")
        assert term is not None
        store.persist(term.epoch, 1, [submit(1), submit(2)], 1.0)
        with pytest.raises(DlschedError, match="a daemon leads with this database: stop it"):
            restored(url)  # it would go on with the ids that it knows
        assert store.load().ledger.next_job == 3
    assert restored(url) == 1003
    with Store.open(url) as store:
        term = store.contend("daemon-1")
        assert term is not None
        assert store.load().ledger.next_job == 1003
        held = HeldRun(key=key(5000), phase=Phase.RUNNING, gpus=(), nodes=(NodeName("n1"),))
        store.persist(term.epoch, 1, [node("n1"), Adopt(held, NodeName("n1"))], 1.0)
        assert store.load().ledger.next_job == 5001  # never an id that a node has seen


CORRUPT = {
    "UPDATE jobs SET status = 'asleep' WHERE job = 2": "jobs row 2",
    "UPDATE jobs SET request = '{\"gang\":0}' WHERE job = 2": "jobs row 2",
    "UPDATE jobs SET request = 'x' WHERE job = 2": "jobs row 2",
    'UPDATE jobs SET exit = \'{"reason":"bored"}\' WHERE job = 2': "jobs row 2",
    "UPDATE jobs SET updated = '[' WHERE job = 2": "jobs row 2",
    "UPDATE job_bodies SET content = '{\"name\":7}' WHERE body = 2": "job_bodies row 2",
    'UPDATE job_bodies SET content = \'{"name":"x","new":1}\' WHERE body = 2': "job_bodies row 2",
    "UPDATE arrays SET shape = '{}' WHERE \"array\" = 3": "arrays row 3",
    "UPDATE runs SET status = 'x' WHERE job = 2": "runs row run-2-1",
    "UPDATE runs SET stop = 'x' WHERE job = 2": "runs row run-2-1",
    "DELETE FROM run_members WHERE run_id = 'run-2-1'": "runs row run-2-1: it has no run_members",
    "UPDATE run_members SET gpus = '7' WHERE node = 'n1'": "run_members row run-2-1 on n1",
    "UPDATE nodes SET status = 'x'": "nodes row n1",
    "UPDATE orphans SET held = '{}'": "orphans row run-77-1 on n1",
    "UPDATE policy SET chosen = '{}'": "policy row 1",
}


@pytest.mark.parametrize("statement", CORRUPT)
def test_a12_a_row_that_cannot_be_read_is_named(
    tmp_path: Path, statement: str, corruptible: Callable[[Path], str]
) -> None:
    url = corruptible(tmp_path)
    execute(url, statement)
    with Store.open(url) as store:
        with pytest.raises(StoreCorrupt) as raised:
            store.load()
        assert str(raised.value).startswith(f"database: {CORRUPT[statement]}")
        assert "\n" not in str(raised.value)
        assert isinstance(raised.value, DlschedError)
        assert raised.value.exit_code == 1


def test_what_a_job_executes_and_cannot_be_read_is_named_when_it_is(
    tmp_path: Path, corruptible: Callable[[Path], str]
) -> None:
    url = corruptible(tmp_path)
    execute(url, "UPDATE job_environments SET variables = '[]' WHERE body = 2")
    with Store.open(url) as store:
        assert JobId(2) in store.load().ledger.jobs
        assert store.contents([JobId(1)]).keys() == {1}
        with pytest.raises(StoreCorrupt, match="database: job_environments row 2"):
            store.contents([JobId(1), JobId(2)])


@pytest.fixture
def corruptible() -> Callable[[Path], str]:
    """A database in which everything that is loaded has a row."""

    def make(folder: Path) -> str:
        url = f"sqlite:///{folder}/a.db"
        held = HeldRun(key=key(77), phase=Phase.RUNNING, gpus=(), nodes=(NodeName("n1"),))
        chosen = PolicySet(at=1.0, parts={"scheduling": "fifo"}, options=(), actor="root")
        with Store.open(url) as store:
            term = store.contend("daemon-1")
            assert term is not None
            writes = [
                node("n1"),
                submit(1),
                *(submit(2), content_of(2, environment={"A": "1"})),
                *submit_array(3, 2),
                assign(1, ("n1", (0,))),
                ended(1, "n1"),
                assign(2, ("n1", (0,))),
                Adopt(held, NodeName("n1")),
                Attach(chosen),
            ]
            store.persist(Epoch(term.epoch), 1, writes, 1.0)
        return url

    return make


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with Store.open(f"sqlite:///{path}") as store:
        term = store.contend("daemon-1")
        assert term is not None
        store.persist(term.epoch, 1, submit_array(1, 500), 1.0)
    content = bytearray(path.read_bytes())
    content[8192:16384] = b"\xff" * 8192
    path.write_bytes(bytes(content))
    with pytest.raises(StoreCorrupt):
        Store.open(f"sqlite:///{path}")
    path.write_bytes(b"this is no database" * 1000)
    with pytest.raises(StoreCorrupt, match="not a database"):
        Store.open(f"sqlite:///{path}")


# -- backups --------------------------------------------------------------------------------------


def test_a_backup_is_taken_while_the_leader_writes(tmp_path: Path) -> None:
    url, copy = f"sqlite:///{tmp_path}/a.db", tmp_path / "copy.db"
    with Store.open(url) as store:
        term = store.contend("daemon-1")
        assert term is not None
        store.persist(term.epoch, 1, [submit(1)], 1.0)
        backup(url, copy)
        store.persist(term.epoch, 2, [submit(2)], 1.0)
        with pytest.raises(BadInput, match="exists already"):
            backup(url, copy)
    with Store.open(f"sqlite:///{copy}") as store:
        assert [job.job.job for job in store.queue()] == [1]
        term = store.contend("daemon-2")
        assert term is not None
        assert term.epoch == 2  # what nodes have seen is above: they will say so


def test_the_operators_verbs(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version", url]) == 0
    assert main(["migrate", url]) == 0
    assert main(["migrate", url]) == 0
    assert main(["restored", url, "--jump", "50"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"database is at empty, this program needs {schema.VERSION}",
        f"empty -> {schema.VERSION}",
        f"{schema.VERSION} -> {schema.VERSION}",
        "the next job is 51",
    ]
    assert main(["backup", url, str(tmp_path / "x.db")]) == (0 if "sqlite" in url else 2)
    assert main(["backup", url, str(tmp_path / "x.db")]) == 2
    assert main(["version", "nonsense"]) == 2
    said = capsys.readouterr().err.splitlines()
    assert all(line.startswith("error: ") for line in said)
