"""What jobs execute in tables of its own, each script of a user once; bytes that users have stored.

Notices know their user, and of how many elements they tell together.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from typing import Any

import sqlalchemy as sa
from alembic import op

# not copied: old and new jobs with the same program and size are to have the same words for it
from dlsched.db.contents import ContentSizes, JobContent, program_of
from dlsched.db.schema import Words
from dlsched.protocol.json_form import value_of

revision = "0021"
down_revision = "0020"

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
AT_ONCE = 500  # bodies
JOB_BYTES = 1500  # that a job counted for beside its body


def upgrade() -> None:
    """From 0020 to 0021."""
    op.create_table(
        "programs",
        sa.Column("body", NUMBER, autoincrement=False, nullable=False),
        sa.Column("user_name", sa.Text(), nullable=False),
        sa.Column("argv", sa.Text(), nullable=False),
        sa.Column("script", sa.Text()),
        sa.ForeignKeyConstraint(["body"], ["job_bodies.body"], name="programs_body_fk"),
        sa.PrimaryKeyConstraint("body", name="programs_pk"),
    )
    op.create_index("programs_by_script", "programs", ["user_name", "script"])
    op.create_table(
        "scripts",
        sa.Column("user_name", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("user_name", "digest", name="scripts_pk"),
    )
    op.create_table(
        "stored_bytes",
        sa.Column("user_name", sa.Text(), nullable=False),
        sa.Column("bytes", NUMBER, nullable=False),
        sa.PrimaryKeyConstraint("user_name", name="stored_bytes_pk"),
    )
    for table, name, kind, default in (
        ("job_bodies", "program", sa.Text(), ""),
        ("job_bodies", "program_bytes", NUMBER, "0"),
        ("notices", "user_name", sa.Text(), ""),
        ("notices", "elements", sa.Integer(), "0"),
    ):
        op.add_column(table, sa.Column(name, kind, nullable=False, server_default=default))
    connection = op.get_bind()
    users = "SELECT user_name FROM jobs WHERE jobs.job = notices.job"
    connection.execute(sa.text(f"UPDATE notices SET user_name = COALESCE(({users}), '')"))
    _move_programs(connection)


def _move_programs(connection: sa.Connection) -> None:
    """Take the programs out of the bodies, and count what is stored of each user."""
    some = sa.text(
        "SELECT body, content, (SELECT MIN(COALESCE(spec_user, user_name)) FROM jobs "
        "WHERE jobs.body = job_bodies.body) AS user_name FROM job_bodies "
        f"WHERE body > :last ORDER BY body LIMIT {AT_ONCE}"
    )
    change = sa.text(
        "UPDATE job_bodies SET content = :content, program = :program, "
        "program_bytes = :program_bytes WHERE body = :body"
    ).bindparams(sa.bindparam("program", type_=Words))
    programs, scripts, stored = (
        sa.table(name, *map(sa.column, columns))
        for name, columns in (
            ("programs", ("body", "user_name", "argv", "script")),
            ("scripts", ("user_name", "digest", "content")),
            ("stored_bytes", ("user_name", "bytes")),
        )
    )
    jobs = "SELECT user_name, COUNT(*) FROM jobs GROUP BY user_name"
    kept = Counter({user: JOB_BYTES * count for user, count in connection.execute(sa.text(jobs))})
    seen: set[tuple[str, str]] = set()
    last = 0
    while rows := connection.execute(some, {"last": last}).mappings().all():
        last = rows[-1]["body"]
        apart = [_taken_apart(row) for row in rows]
        connection.execute(change, [body for body, _, _ in apart])
        connection.execute(sa.insert(programs), [program for _, program, _ in apart])
        new: list[dict[str, Any]] = []
        for body, program, script in apart:
            user, digest = program["user_name"], program["script"]
            kept[user] += len(body["content"]) + len(program["argv"])
            if digest is not None and (user, digest) not in seen:
                seen.add((user, digest))
                kept[user] += len(script)
                new.append({"user_name": user, "digest": digest, "content": script})
        if new:
            connection.execute(sa.insert(scripts), new)
    if kept:
        counted = [{"user_name": user, "bytes": count} for user, count in kept.items()]
        connection.execute(sa.insert(stored), counted)


def _taken_apart(row: Any) -> tuple[dict[str, Any], dict[str, Any], bytes]:
    """A body without its program, the program's row, and its script."""
    asked = json.loads(row["content"])
    found = {name: asked.pop(name) for name in ("argv", "script") if name in asked}
    content = value_of(JobContent, found)
    body = {
        "body": row["body"],
        "content": json.dumps(asked, separators=(",", ":")),
        "program": program_of(content, asked.get("working_directory", "")),
        "program_bytes": ContentSizes().of_content(content),
    }
    program = {
        "body": row["body"],
        "user_name": row["user_name"] or "",
        "argv": json.dumps(content.argv, separators=(",", ":")),
        "script": hashlib.sha256(content.script).hexdigest() if content.script else None,
    }
    return body, program, content.script
