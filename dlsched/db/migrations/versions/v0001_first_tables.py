"""The first tables; how the store began."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def _set() -> tuple[sa.Column[object], ...]:
    return (
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("set_by", sa.Text(), nullable=False),
        sa.Column("set_at", sa.Double(), nullable=True),
    )


def upgrade() -> None:
    """From nothing to 0001."""
    op.create_table(
        "arrays",
        sa.Column("array", NUMBER, autoincrement=False, nullable=False),
        sa.Column("shape", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("array", name="arrays_pk"),
    )
    op.create_table(
        "checkpoints",
        sa.Column("id", NUMBER, autoincrement=True, nullable=False),
        sa.Column("job", NUMBER, nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("step", NUMBER, nullable=False),
        sa.Column("size_bytes", NUMBER, nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("executed_s", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="checkpoints_pk"),
    )
    op.create_index("checkpoints_by_job", "checkpoints", ["job", "id"])

    op.create_table(
        "counters",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("value", NUMBER, nullable=False),
        sa.PrimaryKeyConstraint("name", name="counters_pk"),
    )
    op.create_table(
        "drains",
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("by_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("node", name="drains_pk"),
    )
    op.create_table(
        "events",
        sa.Column("id", NUMBER, autoincrement=True, nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("job", NUMBER, nullable=True),
        sa.Column("run_id", sa.Text(), nullable=True),
        sa.Column("node", sa.Text(), nullable=True),
        sa.Column("text", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="events_pk"),
    )
    op.create_index("events_by_job", "events", ["job", "id"])
    op.create_index("events_by_node", "events", ["node", "id"])

    op.create_table(
        "exit_history",
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("record", sa.Text(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("node", "run_id", name="exit_history_pk"),
    )
    op.create_table(
        "job_bodies",
        sa.Column("body", NUMBER, autoincrement=False, nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("seal", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("body", name="job_bodies_pk"),
    )
    op.create_table(
        "leader",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("epoch", NUMBER, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("session", sa.Integer(), nullable=False),
        sa.Column("beat_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="leader_pk"),
    )
    op.create_table(
        "node_descriptions",
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("facts", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("node", name="node_descriptions_pk"),
    )
    op.create_table(
        "node_leases",
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("epoch", NUMBER, nullable=False),
        sa.Column("heard_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("node", name="node_leases_pk"),
    )
    op.create_table(
        "nodes",
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("boot_id", sa.Text(), nullable=False),
        sa.Column("incarnation", NUMBER, nullable=False),
        sa.Column("revision", NUMBER, nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("changed_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("node", name="nodes_pk"),
    )
    op.create_table(
        "orphans",
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("held", sa.Text(), nullable=False),
        sa.Column("since_epoch", NUMBER, nullable=False),
        sa.Column("since_revision", NUMBER, nullable=False),
        sa.Column("adopted_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("node", "run_id", name="orphans_pk"),
    )
    op.create_table(
        "policy",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("chosen", sa.Text(), nullable=True),
        sa.Column("state", sa.LargeBinary(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="policy_pk"),
    )
    op.create_table(
        "predictions",
        sa.Column("id", NUMBER, autoincrement=True, nullable=False),
        sa.Column("job", NUMBER, nullable=False),
        sa.Column("made_at", sa.Double(), nullable=False),
        sa.Column("start_at", sa.Double(), nullable=False),
        sa.Column("basis", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="predictions_pk"),
    )
    op.create_index("predictions_by_job", "predictions", ["job", "id"])

    op.create_table(
        "progress",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("step", NUMBER, nullable=False),
        sa.Column("executed_s", sa.Double(), nullable=False),
        sa.Column("restart_s", sa.Double(), nullable=True),
        sa.Column("loss", sa.Double(), nullable=True),
        sa.Column("at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", name="progress_pk"),
    )
    op.create_table(
        "rounds",
        sa.Column("id", NUMBER, autoincrement=True, nullable=False),
        sa.Column("number", NUMBER, nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("mode", sa.Text(), nullable=False),
        sa.Column("policy", sa.Text(), nullable=False),
        sa.Column("wall_s", sa.Double(), nullable=False),
        sa.Column("cpu_s", sa.Double(), nullable=False),
        sa.Column("pending", sa.Integer(), nullable=False),
        sa.Column("running", sa.Integer(), nullable=False),
        sa.Column("starts", sa.Integer(), nullable=False),
        sa.Column("stops", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="rounds_pk"),
    )
    op.create_index("rounds_by_number", "rounds", ["number"])

    op.create_table(
        "tokens",
        sa.Column("token_id", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("user_name", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=False),
        sa.Column("revoked_at", sa.Double(), nullable=True),
        sa.Column("comment", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("token_id", name="tokens_pk"),
    )
    op.create_index("tokens_by_user", "tokens", ["user_name"])

    op.create_table(
        "transactions",
        sa.Column("epoch", NUMBER, autoincrement=False, nullable=False),
        sa.Column("number", NUMBER, autoincrement=False, nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("epoch", "number", name="transactions_pk"),
    )
    op.create_table(
        "users",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("uid", NUMBER, nullable=True),
        sa.Column("first_seen_at", sa.Double(), nullable=True),
        sa.Column("added", sa.Boolean(), nullable=False),
        sa.Column("account", sa.Text(), nullable=False),
        sa.Column("vc", sa.Text(), nullable=False),
        *_set(),
        sa.PrimaryKeyConstraint("name", name="users_pk"),
    )
    op.create_table(
        "accounts",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("parent", sa.Text(), nullable=False),
        sa.Column("weight", sa.Double(), nullable=False),
        sa.Column("vc", sa.Text(), nullable=False),
        *_set(),
        sa.PrimaryKeyConstraint("name", name="accounts_pk"),
    )
    op.create_table(
        "account_members",
        sa.Column("account", sa.Text(), nullable=False),
        sa.Column("user_name", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("account", "user_name", "source", name="account_members_pk"),
    )
    op.create_table(
        "vcs",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("gpus", sa.Integer(), nullable=True),
        sa.Column("nodes", sa.Text(), nullable=False),
        sa.Column("guaranteed", sa.Integer(), nullable=True),
        sa.Column("borrow", sa.Boolean(), nullable=False),
        *_set(),
        sa.PrimaryKeyConstraint("name", name="vcs_pk"),
    )
    op.create_table(
        "partitions",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("nodes", sa.Text(), nullable=False),
        sa.Column("max_time_s", sa.Double(), nullable=True),
        sa.Column("is_default", sa.Boolean(), nullable=False),
        *_set(),
        sa.PrimaryKeyConstraint("name", name="partitions_pk"),
    )
    op.create_table(
        "quotas",
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("gpus", sa.Integer(), nullable=True),
        sa.Column("jobs", sa.Integer(), nullable=True),
        sa.Column("gpu_hours", sa.Double(), nullable=True),
        sa.Column("window_s", sa.Double(), nullable=True),
        *_set(),
        sa.PrimaryKeyConstraint("kind", "name", name="quotas_pk"),
    )
    op.create_table(
        "dependencies",
        sa.Column("body", NUMBER, autoincrement=False, nullable=False),
        sa.Column("position", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("on_job", NUMBER, nullable=False),
        sa.Column("delay_s", sa.Double(), nullable=False),
        sa.Column("or_next", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["body"], ["job_bodies.body"], name="dependencies_body_fk"),
        sa.PrimaryKeyConstraint("body", "position", name="dependencies_pk"),
    )
    op.create_index("dependencies_by_on_job", "dependencies", ["on_job"])

    op.create_table(
        "gpus",
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("uuid", sa.Text(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=True),
        sa.Column("quarantine", sa.Integer(), nullable=True),
        sa.Column("type", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["node"], ["nodes.node"], name="gpus_node_fk"),
        sa.PrimaryKeyConstraint("node", "uuid", name="gpus_pk"),
    )
    op.create_table(
        "job_environments",
        sa.Column("body", NUMBER, autoincrement=False, nullable=False),
        sa.Column("variables", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["body"], ["job_bodies.body"], name="job_environments_body_fk"),
        sa.PrimaryKeyConstraint("body", name="job_environments_pk"),
    )
    op.create_table(
        "jobs",
        sa.Column("job", NUMBER, autoincrement=False, nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("runs", NUMBER, nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("preemptions", sa.Integer(), nullable=False),
        sa.Column("exit", sa.Text(), nullable=True),
        sa.Column("changed", sa.Text(), nullable=True),
        sa.Column("user_name", sa.Text(), nullable=False),
        sa.Column("request_id", sa.Text(), nullable=False),
        sa.Column("request", sa.Text(), nullable=False),
        sa.Column("body", NUMBER, nullable=True),
        sa.Column("array", NUMBER, nullable=True),
        sa.Column("array_index", sa.Integer(), nullable=False),
        sa.Column("array_job", NUMBER, nullable=True),
        sa.Column("array_task", sa.Integer(), nullable=True),
        sa.Column("uid", NUMBER, nullable=True),
        sa.Column("spec_user", sa.Text(), nullable=True),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("account", sa.Text(), nullable=False),
        sa.Column("vc", sa.Text(), nullable=False),
        sa.Column("partition_name", sa.Text(), nullable=False),
        sa.Column("gpus", sa.Integer(), nullable=False),
        sa.Column("live", sa.Boolean(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("held", sa.Text(), nullable=False),
        sa.Column("updated", sa.Text(), nullable=True),
        sa.Column("submitted_at", sa.Double(), nullable=False),
        sa.Column("first_started_at", sa.Double(), nullable=True),
        sa.Column("started_at", sa.Double(), nullable=True),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.Column("executed_s", sa.Double(), nullable=False),
        sa.Column("gpu_s", sa.Double(), nullable=False),
        sa.Column("starts", sa.Integer(), nullable=False),
        sa.Column("migrations", sa.Integer(), nullable=False),
        sa.Column("resizes", sa.Integer(), nullable=False),
        sa.Column("cancelled_by", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["array"], ["arrays.array"], name="jobs_array_fk"),
        sa.ForeignKeyConstraint(["body"], ["job_bodies.body"], name="jobs_body_fk"),
        sa.PrimaryKeyConstraint("job", name="jobs_pk"),
        sa.UniqueConstraint("user_name", "request_id", name="jobs_one_user_name_request_id"),
    )
    op.create_index("jobs_by_array", "jobs", ["array_job", "array_task"])
    op.create_index("jobs_by_end", "jobs", ["ended_at", "job"])
    op.create_index("jobs_by_user_end", "jobs", ["user_name", "ended_at", "job"])
    op.create_index(
        "jobs_live_by_body",
        "jobs",
        ["body"],
        sqlite_where=sa.text("live = 1"),
        postgresql_where=sa.text("live"),
    )
    op.create_index(
        "jobs_live_by_job",
        "jobs",
        ["job"],
        sqlite_where=sa.text("live = 1"),
        postgresql_where=sa.text("live"),
    )

    op.create_table(
        "job_story",
        sa.Column("id", NUMBER, autoincrement=True, nullable=False),
        sa.Column("job", NUMBER, nullable=False),
        sa.Column("line", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["job"], ["jobs.job"], name="job_story_job_fk"),
        sa.PrimaryKeyConstraint("id", name="job_story_pk"),
    )
    op.create_index("job_story_by_job", "job_story", ["job"])

    op.create_table(
        "runs",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("job", NUMBER, nullable=False),
        sa.Column("run", NUMBER, nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("epoch", NUMBER, nullable=False),
        sa.Column("stop", sa.Text(), nullable=True),
        sa.Column("stop_step", NUMBER, nullable=True),
        sa.Column("suspended", sa.Boolean(), nullable=False),
        sa.Column("suspension", NUMBER, nullable=False),
        sa.Column("gives_way", sa.Boolean(), nullable=False),
        sa.Column("released", sa.Boolean(), nullable=False),
        sa.Column("live", sa.Boolean(), nullable=False),
        sa.Column("assigned_at", sa.Double(), nullable=False),
        sa.Column("released_at", sa.Double(), nullable=True),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.Column("end", sa.Text(), nullable=False),
        sa.Column("executed_s", sa.Double(), nullable=False),
        sa.Column("gpu_s", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["job"], ["jobs.job"], name="runs_job_fk"),
        sa.PrimaryKeyConstraint("run_id", name="runs_pk"),
    )
    op.create_index("runs_by_end", "runs", ["ended_at"])
    op.create_index("runs_by_job", "runs", ["job", "run"])
    op.create_index(
        "runs_live_by_job_run",
        "runs",
        ["job", "run"],
        sqlite_where=sa.text("live = 1"),
        postgresql_where=sa.text("live"),
    )

    op.create_table(
        "run_members",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("gpus", sa.Text(), nullable=False),
        sa.Column("boot_id", sa.Text(), nullable=False),
        sa.Column("since_epoch", NUMBER, nullable=False),
        sa.Column("since_revision", NUMBER, nullable=False),
        sa.Column("exit", sa.Text(), nullable=True),
        sa.Column("presumed", sa.Text(), nullable=False),
        sa.Column("let_go", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], name="run_members_run_id_fk"),
        sa.PrimaryKeyConstraint("run_id", "node", name="run_members_pk"),
    )
    op.create_index("run_members_by_node", "run_members", ["node", "run_id"])
