"""A copy of a database is taken while another program commits without a pause."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from dlsched.db.backup import PAGES, backup

LAST = 4 * PAGES - 1
PAIRS = "CREATE TABLE pairs (number INTEGER PRIMARY KEY, other INTEGER, filling BLOB)"


def large_database(path: Path) -> None:
    """A database of more pages than one step copies."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=OFF")
        connection.execute(PAIRS)
        rows = ((number, 0, bytes(3000)) for number in range(4 * PAGES))
        connection.execute("BEGIN")
        connection.executemany("INSERT INTO pairs VALUES (?, ?, ?)", rows)
        connection.execute("COMMIT")
    path.chmod(0o600)


class Disturbed(sqlite3.Connection):
    """A connection during whose copy another one commits after each step."""

    def backup(self, target: sqlite3.Connection, *, pages: int = -1, **_others: object) -> None:
        (path,) = (row[2] for row in self.execute("PRAGMA database_list"))
        left = [4 * PAGES]

        def commit(_status: int, remaining: int, _total: int) -> None:
            assert remaining < left[0], "pages are copied again"
            left[0] = remaining
            with closing(sqlite3.connect(path, isolation_level=None)) as other:
                other.execute("UPDATE pairs SET other = other + 1 WHERE number IN (0, ?)", (LAST,))

        super().backup(target, pages=pages, progress=commit)


def test_a_backup_ends_while_there_are_commits_and_is_of_one_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, copy = tmp_path / "a.db", tmp_path / "copy.db"
    large_database(path)
    monkeypatch.setattr(
        "dlsched.db.backup.sqlite3.connect", partial(sqlite3.connect, factory=Disturbed)
    )
    backup(f"sqlite:///{path}", copy)
    monkeypatch.undo()
    found = []
    for each in (path, copy):
        with closing(sqlite3.connect(each)) as connection:
            assert connection.execute("PRAGMA quick_check").fetchone() == ("ok",)
            ends = connection.execute(
                "SELECT other FROM pairs WHERE number IN (0, ?) ORDER BY number", (LAST,)
            )
            found.append([row[0] for row in ends])
    (now, _), copied = found
    assert now > 2
    assert copied == [0, 0]
    assert [each.name for each in tmp_path.iterdir() if ".part" in each.name] == []


def test_what_a_killed_backup_has_left_is_removed_by_the_next_one(tmp_path: Path) -> None:
    path, copy = tmp_path / "a.db", tmp_path / "copy.db"
    large_database(path)
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    left = tmp_path / f".copy.db.{ended.pid}.part"
    at_work = tmp_path / f".copy.db.{os.getppid()}.part"
    of_another = tmp_path / f".other.db.{ended.pid}.part"
    for each in (left, at_work, of_another):
        each.touch()
    backup(f"sqlite:///{path}", copy)
    assert copy.exists()
    assert [left.exists(), at_work.exists(), of_another.exists()] == [False, True, True]
