"""Copying a database while it is used, and saying that a copy was put back."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from dlsched.core.errors import BadInput
from dlsched.db import schema
from dlsched.db.engine import database_path, open_engine, parse_url, writing
from dlsched.db.errors import StoreUnavailable
from dlsched.db.versions import prepare

__all__ = ["JUMP", "backup", "restored"]

JUMP = 1000  # more jobs than are submitted between two backups' loss and its discovery


def backup(url: str, target: Path) -> None:
    """Copy a SQLite database as it is at one moment; writers go on.

    Raises:
        BadInput: Postgres has its own tool, or the target is there already.
        StoreUnavailable: the copy could not be written.
    """
    parsed = parse_url(url)
    if parsed.get_backend_name() != "sqlite":
        raise BadInput("database: back up Postgres with pg_dump or its own streaming")
    source = database_path(parsed)
    if target.exists():
        raise BadInput(f"{target} is there already")
    if not source.exists():
        raise BadInput(f"{source} does not exist")
    part = target.with_name(target.name + ".part")
    try:
        with closing(sqlite3.connect(source)) as here, closing(sqlite3.connect(part)) as there:
            here.backup(there, pages=1024)
        part.replace(target)
    except (sqlite3.Error, OSError) as error:
        part.unlink(missing_ok=True)
        raise StoreUnavailable(f"cannot copy {source} to {target}: {error}") from error


def restored(url: str, *, jump: int = JUMP) -> int:
    """Say that a database was put back from a backup: job ids jump over those that were lost.

    What the backup does not know, nodes will tell: their higher epochs and revisions, and runs that
    are adopted as orphans.

    Returns:
        The next job id.
    """
    engine = open_engine(url)
    try:
        prepare(engine)
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
        engine.dispose()
