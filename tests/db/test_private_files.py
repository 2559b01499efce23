"""A SQLite database, what lies beside it and its backups are readable by their owner only."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlsched.core.errors import NotTrusted
from dlsched.db.backup import backup
from dlsched.db.owner import become_owner
from dlsched.db.store import Store


def modes(folder: Path) -> dict[str, int]:
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}


def test_databases_and_backups_are_private_from_the_start(tmp_path: Path) -> None:
    url, before = f"sqlite:///{tmp_path}/d.db", os.umask(0)
    try:
        store = Store.open(url)
        store.contend("here")
        backup(url, tmp_path / "copy.db")
        found = modes(tmp_path)
        store.close()
    finally:
        os.umask(before)
    assert found.keys() >= {"d.db", "d.db-wal", "d.db-shm", "copy.db"}
    assert set(found.values()) == {0o600}


@pytest.mark.parametrize("suffix", ["", "-wal"])
def test_a_database_that_others_can_read_is_refused(tmp_path: Path, suffix: str) -> None:
    url, file = f"sqlite:///{tmp_path}/d.db", tmp_path / f"d.db{suffix}"
    store = Store.open(url)
    store.contend("here")
    file.chmod(0o644)
    with pytest.raises(NotTrusted) as error:
        Store.open(url)
    store.close()
    assert str(error.value) == (
        f"database: {file} can be read by others (mode 0644): chmod 600 {file}"
    )


AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be shut in by other owners")
DAEMON_UID = 1234


@pytest.fixture
def state() -> Iterator[Path]:
    """A folder that other users reach, as pytest's own are not."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@AS_ROOT
def test_a_database_that_root_has_put_back_is_its_daemons(state: Path) -> None:
    url, owner = f"sqlite:///{state}/d.db", (DAEMON_UID, DAEMON_UID)
    Store.open(url).close()
    (state / "d.db").chmod(0o644)  # as cp makes it
    (state / "d.db.leader").touch()  # as root made it before
    os.chown(state, *owner)
    done = subprocess.run(
        [sys.executable, "-m", "dlsched.db", "restored", url],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "the next job is 1001\n"), done.stderr
    assert {(f.stat().st_uid, f.stat().st_gid) for f in state.iterdir()} == {owner}
    assert set(modes(state).values()) == {0o600}


@AS_ROOT
def test_what_a_root_daemon_leaves_belongs_to_the_databases_owner(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/d.db"
    with Store.open(url) as store:
        for name in os.listdir(tmp_path):
            os.chown(tmp_path / name, DAEMON_UID, DAEMON_UID)
        store.contend("here")
        assert {f.stat().st_uid for f in tmp_path.iterdir()} == {DAEMON_UID}


@AS_ROOT
@pytest.mark.parametrize("kind", ["symlink", "second name"])
def test_root_gives_no_other_file_away(tmp_path: Path, kind: str) -> None:
    folder, other = tmp_path / "state", tmp_path / "other"
    folder.mkdir()
    other.write_text("root's own")
    if kind == "symlink":
        (folder / "d.db").symlink_to(other)
    else:
        os.link(other, folder / "d.db")
    os.chown(folder, DAEMON_UID, DAEMON_UID)
    with pytest.raises(NotTrusted, match=r"database: \S+/d\.db"):
        become_owner(f"sqlite:///{folder}/d.db")
    assert (os.geteuid(), other.stat().st_uid) == (0, 0)
