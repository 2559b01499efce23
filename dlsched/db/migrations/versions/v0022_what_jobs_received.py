"""What jobs and runs have received, as service clocks count it; GPUs that owners hold.

For the jobs of before it is made of their runs, checkpoints and reported starts. What users have
done again and again to their jobs counts among what the database keeps of them.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
AT_ONCE = 500  # jobs
_SECONDS = ("held_s", "executed", "saved", "attained", "lost_s", "overhead_s", "restart_s")
_OF_RUNS = ("worked_s", "lost_s", "overhead_s", "starting_s")
_COUNTS = ("gpus_now", "largest_scale", "starts", "preemptions", "migrations", "resizes")


def upgrade() -> None:
    """From 0021 to 0022."""
    op.create_table(
        "served",
        sa.Column("job", NUMBER, autoincrement=False, nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("holds", sa.Boolean(), nullable=False),
        sa.Column("measured_starts", sa.Integer(), nullable=False),
        sa.Column("failed_starts", sa.Integer(), nullable=False),
        sa.Column("not_before", sa.Double()),
        sa.Column("since", sa.Double(), nullable=False),
        sa.Column("progress_from", sa.Double()),
        sa.Column("first_start", sa.Double()),
        *(sa.Column(name, sa.Double(), nullable=False) for name in _SECONDS),
        *(sa.Column(name, sa.Integer(), nullable=False) for name in _COUNTS),
        sa.ForeignKeyConstraint(["job"], ["jobs.job"], name="served_job_fk"),
        sa.PrimaryKeyConstraint("job", name="served_pk"),
    )
    op.add_column("usage", sa.Column("gpus", sa.Double(), nullable=False, server_default="0"))
    for name in _OF_RUNS:
        op.add_column("runs", sa.Column(name, sa.Double(), nullable=False, server_default="0"))
    _count(op.get_bind())
    _count_actions(op.get_bind())
    for name in ("executed_s", "gpu_s"):
        op.drop_column("jobs", name)


def _count_actions(connection: sa.Connection) -> None:
    """Count the events of what users have done to jobs, which their removal takes off again."""
    found = sa.text(
        "SELECT actor, SUM(CASE WHEN kind = 'requeue' THEN 1500 ELSE 300 END + LENGTH(text)) "
        "FROM events WHERE job IS NOT NULL AND kind IN "
        "('hold', 'release', 'suspend', 'resume', 'update', 'requeue') "
        "AND actor NOT IN ('daemon', 'job') AND actor NOT LIKE 'node %' "
        "AND actor NOT LIKE 'policy %' GROUP BY actor"
    )
    more = sa.text("UPDATE stored_bytes SET bytes = bytes + :more WHERE user_name = :user")
    first = sa.text("INSERT INTO stored_bytes (user_name, bytes) VALUES (:user, :more)")
    for user, count in connection.execute(found).all():
        given = {"user": user, "more": int(count)}
        if connection.execute(more, given).rowcount == 0:
            connection.execute(first, given)


def _count(connection: sa.Connection) -> None:
    """Count what the jobs have received that have had a run."""
    some = sa.text(
        "SELECT job, first_started_at, started_at, ended_at, gpu_s, starts, preemptions, "
        "migrations, resizes FROM jobs WHERE job > :last AND starts > 0 ORDER BY job "
        f"LIMIT {AT_ONCE}"
    )
    names = (
        "job",
        "run_id",
        "holds",
        "measured_starts",
        "failed_starts",
        "since",
        "progress_from",
        "first_start",
    )
    columns = (*names, *_SECONDS, *_COUNTS)
    add = sa.text(f"INSERT INTO served ({', '.join(columns)}) VALUES (:{', :'.join(columns)})")
    told = sa.text(
        f"UPDATE runs SET {', '.join(f'{name} = :{name}' for name in _OF_RUNS)} "
        "WHERE run_id = :run_id"
    )
    last = 0
    while rows := connection.execute(some, {"last": last}).mappings().all():
        span = {"first": rows[0]["job"], "last": rows[-1]["job"]}
        runs, largest = _runs(connection, span)
        received: list[dict[str, Any]] = []
        connection.execute(add, [_served(job, runs[job["job"]], largest, received) for job in rows])
        if received:
            connection.execute(told, received)
        last = span["last"]


def _runs(
    connection: sa.Connection, span: dict[str, int]
) -> tuple[dict[int, list[Any]], dict[str, int]]:
    """The runs of some neighbouring jobs, and how many GPUs each run has."""
    runs: dict[int, list[Any]] = defaultdict(list)
    query = sa.text(
        "SELECT runs.job, runs.run_id, stop, hand_over, ended_at, runs.executed_s, restart_s, "
        "(SELECT max(c.executed_s) FROM checkpoints c WHERE c.run_id = runs.run_id "
        "AND c.job = runs.job) AS kept_s FROM runs LEFT JOIN progress "
        "ON progress.run_id = runs.run_id WHERE runs.job BETWEEN :first AND :last "
        "AND follows IS NULL ORDER BY runs.job, runs.run"
    )
    for row in connection.execute(query, span).mappings():
        runs[row["job"]].append(row)
    gpus: dict[str, int] = defaultdict(int)
    members = sa.text(
        "SELECT run_members.run_id, gpus FROM run_members JOIN runs "
        "ON runs.run_id = run_members.run_id WHERE runs.job BETWEEN :first AND :last"
    )
    for run_id, held in connection.execute(members, span):
        gpus[run_id] += len(json.loads(held))
    return runs, gpus


def _served(
    job: Any, runs: Sequence[Any], gpus: dict[str, int], received: list[dict[str, Any]]
) -> dict[str, Any]:
    """What one job has received from its runs that are over; what each has goes to `received`."""
    held = executed = saved = lost = overhead = 0.0
    over = [run for run in runs if run["ended_at"] is not None]
    for run in over:
        ran = run["executed_s"]
        cost = min(run["restart_s"] or 0.0, ran)
        held, overhead = held + ran, overhead + cost
        if run["kept_s"]:
            saved = executed + max(run["kept_s"] - cost, 0.0)
        executed += ran - cost
        gone = 0.0
        hands_over = run["stop"] in ("migrate", "resize") and run["hand_over"]
        if not hands_over and not (job["ended_at"] is not None and run is over[-1]):
            gone, executed = max(executed - saved, 0.0), min(executed, saved)
        lost += gone
        received.append(
            {
                "run_id": run["run_id"],
                "worked_s": ran - cost,
                "lost_s": gone,
                "overhead_s": cost,
                "starting_s": cost,
            }
        )
    since = max((run["ended_at"] for run in over), default=job["started_at"])
    return {
        "job": job["job"],
        "run_id": "",  # the clock of a run that goes on begins at its start
        "holds": False,
        "measured_starts": sum(run["restart_s"] is not None for run in over),
        "failed_starts": 0,
        "since": since,
        "progress_from": since,
        "first_start": job["first_started_at"],
        "held_s": held,
        "executed": executed,
        "saved": saved,
        "attained": job["gpu_s"],
        "lost_s": lost,
        "overhead_s": overhead,
        "restart_s": overhead,
        "gpus_now": 0,
        "largest_scale": max((gpus[run["run_id"]] for run in runs), default=0),
        **{name: job[name] for name in ("starts", "preemptions", "migrations", "resizes")},
    }
