"""A SQLite database, what lies beside it and its backups are readable by their owner only."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from dlsched.core.errors import NotTrusted
from dlsched.db.backup import backup
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
