"""Histories of ended jobs, written straight into the tables."""

from __future__ import annotations

import json

from sqlalchemy import text

from dlsched.db.engine import writing
from dlsched.db.store import Store


def add_history(store: Store, count: int) -> None:
    """Ended jobs, each with a body, a run, a member, a line and two events."""
    first = "WITH RECURSIVE k(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM k WHERE i < :count) "
    numbers = "k" if store.kind == "SQLite" else "generate_series(1, :count) AS k(i)"
    no = "0" if store.kind == "SQLite" else "false"
    yes = "1" if store.kind == "SQLite" else "true"
    record = json.dumps(
        {"key": {"job": 1, "run": 1, "run_id": "x"}, "node": "n1", "reason": "exited"}
    )
    statements = [
        "INSERT INTO job_bodies (body, content, seal) "
        f"SELECT 1000000 + i, '{{\"name\":\"old\"}}', '' FROM {numbers}",
        "INSERT INTO jobs (job, status, reason, runs, failures, preemptions, exit, user_name, "
        "request_id, request, body, array_index, uid, spec_user, name, account, vc, "
        "partition_name, gpus, live, state, held, submitted_at, ended_at, "
        "starts, migrations, "
        "resizes, cancelled_by) SELECT 1000000 + i, 'completed', '', 1, 0, 0, :record, 'ann', "
        "'old' || i, '{\"gang\":[1]}', 1000000 + i, 0, 1000, 'ann', 'old', '', '', '', 1, "
        f"{no}, 'COMPLETED', '', 1.0, i, 1, 0, 0, '' FROM {numbers}",
        "INSERT INTO runs (run_id, job, run, status, epoch, suspended, suspension, gives_way, "
        'released, live, assigned_at, released_at, ended_at, "end", executed_s, gpu_s) '
        f"SELECT 'old' || i, 1000000 + i, 1, 'over', 1, {no}, 0, {no}, {yes}, {no}, 1.0, 1.0, i, "
        f"'', 1, 1 "
        f"FROM {numbers}",
        "INSERT INTO run_members (run_id, node, position, gpus, boot_id, since_epoch, "
        f"since_revision, presumed, let_go) SELECT 'old' || i, 'n' || (i % 100), 0, '[]', 'b', 1, "
        f"1, '', {no} FROM {numbers}",
        f"INSERT INTO job_story (job, line) SELECT 1000000 + i, 'told' FROM {numbers}",
        "INSERT INTO events (at, kind, actor, job, text) "
        f"SELECT 1.0, 'k', '', 1000000 + i / 2, '' FROM {numbers}",
    ]
    with writing(store.engine) as connection:
        for statement in statements:
            made = first + statement if store.kind == "SQLite" else statement
            if store.kind == "SQLite":  # WITH goes behind INSERT INTO …
                head, select = statement.split(" SELECT ", 1)
                made = f"{head} {first}SELECT {select}"
            bound = text(made)
            given = {"count": count, "record": record}
            connection.execute(bound, {k: v for k, v in given.items() if f":{k}" in made})
    if store.kind == "Postgres":
        with store.engine.connect() as connection:
            connection.execution_options(isolation_level="AUTOCOMMIT").execute(text("ANALYZE"))
