"""Leaders: one at a time, a new epoch each, and a deposed leader writes nothing."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from dlsched.core.errors import BadInput
from dlsched.db import engine as engine_module
from dlsched.db import schema
from dlsched.db.engine import file_system, reading, writing
from dlsched.db.errors import Deposed, StoreUnavailable
from dlsched.db.leadership import lock_term
from dlsched.db.store import Store
from dlsched.protocol.messages import Epoch, JobId
from dlsched.protocol.timing import STALE_S
from tests.db.ledgers import submit


def test_a9_two_daemons_on_one_database_and_one_leads(url: str) -> None:
    with Store.open(url) as first, Store.open(url) as second:
        term = first.contend("daemon-1")
        assert term is not None
        assert term.epoch == 1
        assert second.contend("daemon-2") is None
        assert first.confirm(term.epoch)
        assert not second.confirm(Epoch(1))
        first.persist(term.epoch, 1, [submit(1)], 1.0)
        first.leadership.close()
        later = second.contend("daemon-2")
        assert later is not None
        assert later.epoch == 2
        with pytest.raises(Deposed):
            first.persist(term.epoch, 2, [submit(2)], 1.0)
        assert not first.confirm(term.epoch)
        assert second.confirm(later.epoch)
        assert [job.job.job for job in second.queue()] == [1]
        assert first.contend("daemon-1") is None


def test_a_leader_that_contends_again_begins_a_new_term(store: Store, epoch: Epoch) -> None:
    again = store.contend("daemon-1")
    assert again is not None
    assert again.epoch == epoch + 1
    assert store.confirm(again.epoch)
    assert not store.confirm(epoch)


def test_the_leader_row_is_in_every_write(store: Store, epoch: Epoch) -> None:
    """Whatever the lock says, the epoch in the row decides."""
    with writing(store.engine) as connection:
        connection.execute(schema.leader.update().values(epoch=epoch + 1, name="daemon-9"))
    with pytest.raises(Deposed, match="daemon-9 leads with epoch 2"):
        store.persist(epoch, 1, [submit(1)], 1.0)
    assert not store.confirm(epoch)


def test_a_session_that_does_not_beat_is_ended(
    postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A paused leader holds its lock; a standby ends the session on the database's clock."""
    with Store.open(postgres_url) as paused, Store.open(postgres_url) as standby:
        term = paused.contend("daemon-1")
        assert term is not None
        assert standby.contend("daemon-2") is None
        with writing(standby.engine) as connection:
            connection.execute(text("UPDATE leader SET beat_at = beat_at - 8"))
        later = standby.contend("daemon-2")
        assert later is not None
        assert later.epoch == term.epoch + 1
        [quiet_s] = re.findall(r"no heartbeat of the leader for (\d+) s", caplog.text)
        assert int(quiet_s) >= 8
        with pytest.raises(Deposed):
            paused.persist(term.epoch, 1, [submit(1)], 1.0)
        assert not paused.confirm(term.epoch)
        assert standby.confirm(later.epoch)


def test_a_long_transaction_delays_no_heartbeat_and_no_term_begins_in_it(
    postgres_url: str,
) -> None:
    with Store.open(postgres_url) as leader, Store.open(postgres_url) as standby:
        term = leader.contend("daemon-1")
        assert term is not None
        with writing(leader.engine) as transaction:
            assert lock_term(transaction, term.epoch)
            assert leader.confirm(term.epoch)
            beat = "SELECT extract(epoch from clock_timestamp()) - beat_at FROM leader"
            with reading(standby.engine) as look:
                assert look.execute(text(beat)).scalar_one() < STALE_S
            leader.leadership.close()  # as if the machine had lost its other connection
            with writing(standby.engine) as contender:
                contender.execute(text("SET lock_timeout = '50ms'"))
                with pytest.raises(OperationalError, match="lock timeout"):
                    contender.execute(schema.leader.select().with_for_update())
                contender.rollback()
        later = standby.contend("daemon-2")
        assert later is not None
        with writing(leader.engine) as transaction:
            assert not lock_term(transaction, term.epoch)


def test_a_standby_is_known_by_name_until_it_leads_or_goes(postgres_url: str) -> None:
    with Store.open(postgres_url) as leader, Store.open(postgres_url) as standby:
        assert leader.contend("daemon-1") is not None
        assert leader.standbys() == []
        for _ in range(2):
            assert standby.contend("daemon-2") is None
        assert leader.standbys() == ["daemon-2"]
        leader.leadership.close()
        assert standby.contend("daemon-2") is not None
        assert standby.standbys() == []


def test_a_leader_whose_session_broke_leads_on_if_no_other_came_between(postgres_url: str) -> None:
    with Store.open(postgres_url) as leader, Store.open(postgres_url) as other:
        term = leader.contend("daemon-1")
        assert term is not None
        with writing(other.engine) as connection:
            connection.execute(
                text(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE application_name = 'dlsched leader' AND datname = current_database()"
                )
            )
        assert leader.confirm(term.epoch)
        assert other.contend("daemon-2") is None
        leader.persist(term.epoch, 1, [submit(1)], 1.0)
        assert leader.jobs([JobId(1)])


def test_a_deposed_leader_that_asks_keeps_no_leader_out(url: str) -> None:
    with Store.open(url) as old, Store.open(url) as other:
        term = old.contend("daemon-1")
        assert term is not None
        old.leadership.close()
        assert other.contend("daemon-2") is not None
        other.leadership.close()
        assert not old.confirm(term.epoch)
        assert other.contend("daemon-2") is not None


def test_a_lock_file_that_was_replaced_is_no_lock(tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path}/a.db") as store:
        term = store.contend("daemon-1")
        assert term is not None
        lock = tmp_path / "a.db.leader"
        os.rename(lock, tmp_path / "away")
        lock.touch()
        assert not store.confirm(term.epoch)


def test_a_lock_file_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path}/a.db") as store:
        (tmp_path / "a.db.leader").mkdir()
        with pytest.raises(StoreUnavailable, match=r"a\.db\.leader"):
            store.contend("daemon-1")


# -- where a database may be ----------------------------------------------------------------------


def test_sqlite_is_as_durable_as_promised(tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path}/a.db") as store, store.engine.connect() as connection:
        found = {
            name: connection.execute(text(f"PRAGMA {name}")).scalar_one()
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        }
    assert found == {
        "journal_mode": "wal",
        "synchronous": 2,  # FULL
        "foreign_keys": 1,
        "busy_timeout": 5000,
    }


def test_b8_a_file_on_a_network_file_system_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "file_system", lambda _: "nfs4")
    with pytest.raises(BadInput, match=r"network file system \(nfs4\)"):
        Store.open(f"sqlite:///{tmp_path}/a.db")


def test_a_fuse_file_system_is_a_loud_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(engine_module, "file_system", lambda _: "fuse.mergerfs")
    Store.open(f"sqlite:///{tmp_path}/a.db").close()
    assert "is on fuse.mergerfs" in caplog.text


def test_the_file_system_of_a_folder_is_that_of_the_deepest_mount(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(
        "/dev/a / ext4 rw 0 0\n"
        f"server:/x {tmp_path}/far\\040away nfs4 rw 0 0\n"
        f"tmpfs {tmp_path}/far\\040away/near tmpfs rw 0 0\n"
    )
    kinds = {
        folder: file_system(tmp_path / folder, mounts)
        for folder in ("here", "far away", "far away/x", "far away/near", "far")
    }
    assert kinds == {
        "here": "ext4",
        "far away": "nfs4",
        "far away/x": "nfs4",
        "far away/near": "tmpfs",
        "far": "ext4",
    }
    assert file_system(tmp_path, tmp_path / "missing") == ""


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("nonsense", "not a URL"),
        ("mysql://u:secret@h/d", "neither a SQLite file nor Postgres"),
        ("sqlite://", "neither a SQLite file nor Postgres"),
        ("sqlite:////nowhere/at/all/a.db", "is not a folder"),
    ],
)
def test_another_kind_of_url_is_refused(url: str, said: str) -> None:
    with pytest.raises(BadInput, match=said) as raised:
        Store.open(url)
    assert "secret" not in str(raised.value)
