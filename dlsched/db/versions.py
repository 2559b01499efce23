"""The version of the tables, and their migration to this program's version.

An empty database gets its tables at once. Other changes are made only on an explicit order, each
migration in one transaction.
"""

from __future__ import annotations

from sqlalchemy import Connection, Engine, inspect, text

from dlsched.db import schema
from dlsched.db.engine import is_sqlite, open_engine, reading, translated, writing
from dlsched.db.errors import SchemaMismatch, StoreCorrupt
from dlsched.db.statements import add_unless_there


def version(url: str) -> str | None:
    """The version of a database's tables; None for an empty database."""
    engine = open_engine(url)
    try:
        with reading(engine) as connection:
            return _found(connection, engine)
    finally:
        engine.dispose()


def _found(connection: Connection, engine: Engine) -> str | None:
    names = set(inspect(connection).get_table_names())
    if "alembic_version" not in names:
        if names:
            raise StoreCorrupt(
                "alembic_version", "?", f"the database has tables of another program ({min(names)})"
            )
        return None
    found = connection.execute(text("SELECT version_num FROM alembic_version")).scalars().all()
    if len(found) != 1:
        raise StoreCorrupt("alembic_version", "?", f"{len(found)} versions")
    return str(found[0])


def prepare(engine: Engine) -> None:
    """Create the tables of an empty database; refuse other versions than this program's.

    Raises:
        SchemaMismatch: the tables are older or newer.
    """
    with reading(engine) as connection:
        found = _found(connection, engine)
    if found is None:
        with writing(engine) as connection:
            found = _create(connection, engine)
    if found != schema.VERSION:
        raise SchemaMismatch(found, schema.VERSION, schema.FIRST)


def _create(connection: Connection, engine: Engine) -> str:
    """Create all tables, unless another process has done so meanwhile."""
    if not is_sqlite(engine):
        connection.execute(text("SELECT pg_advisory_xact_lock(1684828004)"))
    found = _found(connection, engine)
    if found is not None:
        return found
    schema.METADATA.create_all(connection)
    connection.execute(
        text(
            "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL, "
            "CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num))"
        )
    )
    connection.execute(
        text("INSERT INTO alembic_version (version_num) VALUES (:now)"), {"now": schema.VERSION}
    )
    begin(connection)
    return schema.VERSION


def begin(connection: Connection) -> None:
    """Add the rows that every database has."""
    no_leader = {"id": 1, "epoch": 0, "name": "", "session": 0, "beat_at": 0.0}
    add_unless_there(connection, schema.leader, no_leader)
    add_unless_there(connection, schema.counters, {"name": "next_job", "value": 1})


def migrate(url: str) -> tuple[str | None, str]:
    """Bring a database to this program's version; returns the old and the new version.

    Raises:
        SchemaMismatch: the database is newer than this program, or too old.
    """
    from dlsched.db.migrations import upgrade  # noqa: PLC0415  # loads Alembic only here

    engine = open_engine(url)
    try:
        with reading(engine) as connection:
            before = _found(connection, engine)
        if before is None:
            prepare(engine)
        elif before != schema.VERSION:
            with translated(engine):
                upgrade(engine, before)
        return before, schema.VERSION
    finally:
        engine.dispose()
