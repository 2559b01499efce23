"""Databases as the first version had them, from its recorded statements."""

from __future__ import annotations

import json
from pathlib import Path

from sqlalchemy import text

from dlsched.db import schema
from dlsched.db.contents import read_contents
from dlsched.db.engine import open_engine, writing
from dlsched.db.versions import begin
from dlsched.protocol.json_form import plain

FOLDER = Path(__file__).parent
OF_RUNS = ("worked_s", "lost_s", "overhead_s", "starting_s")  # since 0022


def make_first_version(url: str) -> None:
    """Make the tables of the first version in an empty database."""
    engine = open_engine(url)
    statements = (FOLDER / f"tables_{schema.FIRST}_{engine.dialect.name}.sql").read_text()
    with writing(engine) as connection:
        for statement in statements.splitlines():
            # as SQLAlchemy writes tables; 2.0 misreads names of constraints that share a line
            lines = statement.replace(", CONSTRAINT", ",\n\tCONSTRAINT")
            connection.exec_driver_sql(lines)
        connection.exec_driver_sql(
            "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL, "
            "CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num))"
        )
        connection.exec_driver_sql(f"INSERT INTO alembic_version VALUES ('{schema.FIRST}')")
        begin(connection)
    engine.dispose()


def take_back_0022(url: str) -> None:
    """Make a database of version 0021 out of one of now, in which no job has received anything."""
    engine = open_engine(url)
    with writing(engine) as connection:
        for statement in (
            "DROP TABLE unsaved",
            "DROP TABLE served",
            "ALTER TABLE usage DROP COLUMN gpus",
            *(f"ALTER TABLE runs DROP COLUMN {name}" for name in OF_RUNS),
            "ALTER TABLE jobs ADD COLUMN executed_s DOUBLE PRECISION NOT NULL DEFAULT 0",
            "ALTER TABLE jobs ADD COLUMN gpu_s DOUBLE PRECISION NOT NULL DEFAULT 0",
            "UPDATE alembic_version SET version_num = '0021'",
        ):
            connection.exec_driver_sql(statement)
    engine.dispose()


def take_back_0021(url: str) -> None:
    """Make a database of version 0020 out of one of 0021: bodies have their programs in them."""
    engine = open_engine(url)
    with writing(engine) as connection:
        bodies = connection.execute(text("SELECT body, content FROM job_bodies")).all()
        contents = read_contents(connection, [body for body, _ in bodies])
        for body, asked in bodies:
            program = {name: plain(contents[body])[name] for name in ("argv", "script")}
            has = json.loads(asked) | {name: value for name, value in program.items() if value}
            connection.execute(
                text("UPDATE job_bodies SET content = :content WHERE body = :body"),
                {"body": body, "content": json.dumps(has, separators=(",", ":"))},
            )
        for statement in (
            *(f"DROP TABLE {name}" for name in ("programs", "scripts", "stored_bytes")),
            *(
                f"ALTER TABLE job_bodies DROP COLUMN {name}"
                for name in ("program", "program_bytes")
            ),
            *(f"ALTER TABLE notices DROP COLUMN {name}" for name in ("user_name", "elements")),
            "UPDATE alembic_version SET version_num = '0020'",
        ):
            connection.exec_driver_sql(statement)
    engine.dispose()
