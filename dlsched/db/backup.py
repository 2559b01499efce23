"""Backup of a database while it is used, and the step after a restore."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from dlsched.core.errors import BadInput, DlschedError
from dlsched.db import schema
from dlsched.db.engine import database_path, make_private, open_engine, parse_url, writing
from dlsched.db.errors import StoreUnavailable
from dlsched.db.leadership import leadership_of
from dlsched.db.versions import prepare
from dlsched.system.output_files import appearing_whole, remove_left_parts

PAGES = 4096  # copied between two looks for an interruption
JUMP = 1000  # more jobs than are ever lost with a database that a backup replaces


def backup(url: str, target: Path) -> None:
    """Copy a SQLite database as it is at one moment; writers are not blocked.

    The source is read in one transaction: else SQLite begins the copy anew after each commit of
    another program, and while there are commits it never ends.

    Raises:
        BadInput: Postgres has its own tool, or the target exists already.
        StoreUnavailable: the copy could not be written.
    """
    parsed = parse_url(url)
    if parsed.get_backend_name() != "sqlite":
        raise BadInput("database: back up Postgres with pg_dump or its own streaming")
    source = database_path(parsed)
    if target.exists():
        raise BadInput(f"{target} exists already")
    if not source.exists():
        raise BadInput(f"{source} does not exist")
    remove_left_parts(target)
    try:
        with (
            appearing_whole(target) as part,
            closing(sqlite3.connect(source, isolation_level=None)) as here,
            closing(_private(part)) as there,
        ):
            there.execute("PRAGMA journal_mode=OFF")  # a copy that fails is removed
            here.execute("BEGIN")
            here.execute("SELECT count(*) FROM sqlite_schema").fetchone()  # reads from here on
            here.backup(there, pages=PAGES)
    except (sqlite3.Error, OSError) as error:
        raise StoreUnavailable(f"cannot copy {source} to {target}: {error}") from error


def _private(path: Path) -> sqlite3.Connection:
    """A connection to a new file that only its owner can read."""
    make_private(path)
    return sqlite3.connect(path)


def restored(url: str, *, jump: int = JUMP) -> int:
    """Prepare a database that was restored from a backup: the next job id skips lost ones.

    Nodes report what the backup does not contain: their higher epochs and revisions, and runs,
    which are adopted as orphans.

    Returns:
        The next job id.

    Raises:
        DlschedError: a daemon leads, which knows the next id already and would not see the change.
    """
    engine = open_engine(url)
    leadership = leadership_of(engine)
    try:
        prepare(engine)
        if leadership.contend("restored") is None:
            raise DlschedError(
                "a daemon leads with this database: stop it before the copy is put back"
            )
        with writing(engine) as connection:
            counters, leader = schema.counters, schema.leader
            connection.execute(schema.transactions.delete())
            connection.execute(leader.update().values(name="", session=0, beat_at=0.0))
            next_job = connection.execute(
                counters.update()
                .where(counters.c.name == "next_job")
                .values(value=counters.c.value + jump)
                .returning(counters.c.value)
            ).scalar_one()
            return int(next_job)
    finally:
        leadership.close()
        engine.dispose()
