"""The tables, the same in SQLite and Postgres.

Columns that end in `_at` are seconds since the epoch, UTC. A text column that is said to hold JSON
has what `protocol.json_form` wrote. `live` marks what a leader keeps in memory: the indices on it
are partial, so that a look-up of live rows costs the same however long the history is.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    false,
    text,
)
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator

from dlsched.tenants.field import Form, Row, rows_of
from dlsched.tenants.fields import (
    Account,
    Partition,
    PriorityClass,
    Quota,
    Reservation,
    Tenant,
    User,
    Vc,
)

MIGRATIONS = Path(__file__).parent / "migrations" / "versions"
_VERSIONS = sorted(each.stem[1:5] for each in MIGRATIONS.glob("v[0-9]*.py"))
FIRST, VERSION = _VERSIONS[0], _VERSIONS[-1]  # that is converted; of the tables below

METADATA = MetaData(
    naming_convention={
        "ix": "%(table_name)s_by_%(column_0_N_name)s",
        "uq": "%(table_name)s_one_%(column_0_N_name)s",
        "fk": "%(table_name)s_%(column_0_N_name)s_fk",
        "pk": "%(table_name)s_pk",
    }
)

Number = BigInteger().with_variant(Integer, "sqlite")  # SQLite counts rows by this name only


class Words(TypeDecorator[str]):
    """Text that people write; what a database cannot hold is replaced, not refused.

    One job with a stray byte in its name must not keep a whole transaction from being stored.
    """

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """NUL and half surrogates become replacement characters."""
        if value is None or (value.isascii() and "\0" not in value):
            return value
        return value.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def _table(name: str, *columns: Any) -> Table:
    return Table(name, METADATA, *columns)


def _seconds(name: str, **given: Any) -> Column[float]:
    return Column(name, Double, **given)


def _flag(name: str) -> Column[bool]:
    return Column(name, Boolean, nullable=False)


def _words(name: str) -> Column[str]:
    return Column(name, Words, nullable=False)


def _set() -> tuple[Column[Any], ...]:
    """The columns that say how a row was set: by the configuration (`file`) or an operator."""
    return _words("source"), _words("set_by"), _seconds("set_at")


def _said(kind: type[Tenant]) -> Iterator[Column[Any]]:
    """The columns of what a kind of tenant says of itself, from its rows; lists are JSON."""
    types: dict[Form, Any] = {"whole": Integer, "flag": Boolean}
    types |= dict.fromkeys(("text", "hosts", "names"), Words)
    for name, row in rows_of(kind).items():
        if not row.members:
            yield Column(
                name,
                types.get(row.form, Double),
                nullable=row.default is None,
                server_default=_before(row) if row.filled else None,
            )


def _before(row: Row) -> Any:
    """What a row of before has in a column that a migration has added."""
    if row.form == "flag":
        return false()
    return "[]" if row.form == "names" else str(row.default)


def _tenants(name: str, kind: type[Tenant]) -> Table:
    return _table(name, Column("name", Words, primary_key=True), *_said(kind), *_set())


def _live(table: Table, *columns: str) -> Index:
    return Index(
        f"{table.name}_live_by_{'_'.join(columns)}",
        *(table.c[name] for name in columns),
        sqlite_where=text("live = 1"),  # exactly as in the queries
        postgresql_where=text("live"),
    )


# -- the leader ------------------------------------------------------------------------------------

leader = _table(
    "leader",
    Column("id", Integer, primary_key=True, autoincrement=False),  # 1
    Column("epoch", Number, nullable=False),
    _words("name"),
    Column("session", Integer, nullable=False),  # of the database that holds the lock; 0: none
    _seconds("beat_at", nullable=False),  # on the database's clock
)

transactions = _table(
    "transactions",
    Column("epoch", Number, primary_key=True, autoincrement=False),
    Column("number", Number, primary_key=True, autoincrement=False),
    _seconds("at", nullable=False),
)

counters = _table(
    "counters",
    Column("name", Text, primary_key=True),
    Column("value", Number, nullable=False),
)

# -- jobs ------------------------------------------------------------------------------------------

job_bodies = _table(
    "job_bodies",
    Column("body", Number, primary_key=True, autoincrement=False),  # the first job with it
    Column("content", Text, nullable=False),  # JSON of JobBody, without other tables' parts
    Column("seal", Text, nullable=False),  # salted digest of the environment, for comparing
    Column("program", Words, nullable=False, server_default=""),  # names what is executed
    Column("program_bytes", Number, nullable=False, server_default="0"),  # of its text
)

programs = (
    _table(  # what jobs execute; read for launches and for one job's details, never for lists
        "programs",
        Column(
            "body", Number, ForeignKey("job_bodies.body"), primary_key=True, autoincrement=False
        ),
        _words("user_name"),
        Column("argv", Text, nullable=False),  # JSON
        Column("script", Text),  # digest of one of the user's scripts
        Index("programs_by_script", "user_name", "script"),
    )
)

scripts = _table(  # each script of a user once
    "scripts",
    Column("user_name", Words, primary_key=True),
    Column("digest", Text, primary_key=True),
    Column("content", LargeBinary, nullable=False),
)

stored_bytes = _table(  # what jobs of each user take here, ended ones too; see db.stored_bytes
    "stored_bytes",
    Column("user_name", Words, primary_key=True),
    Column("bytes", Number, nullable=False),
)

job_environments = _table(  # secret: never exported, deleted with the last live job that uses it
    "job_environments",
    Column("body", Number, ForeignKey("job_bodies.body"), primary_key=True, autoincrement=False),
    Column("variables", Text, nullable=False),  # JSON
)

dependencies = _table(
    "dependencies",
    Column("body", Number, ForeignKey("job_bodies.body"), primary_key=True, autoincrement=False),
    Column("position", Integer, primary_key=True, autoincrement=False),
    _words("kind"),
    Column("on_job", Number, nullable=False, index=True),
    _seconds("delay_s", nullable=False),
    _flag("or_next"),
)

arrays = _table(
    "arrays",
    Column("array", Number, primary_key=True, autoincrement=False),  # the first job with it
    Column("shape", Text, nullable=False),  # JSON of ArrayShape
)

jobs = _table(
    "jobs",
    Column("job", Number, primary_key=True, autoincrement=False),
    # as the protocol's ledger has it
    _words("status"),
    _words("reason"),
    Column("runs", Number, nullable=False),
    Column("failures", Integer, nullable=False),
    Column("timeouts", Integer, nullable=False, server_default="0"),
    Column("gpu_failures", Integer, nullable=False, server_default="0"),
    Column("preemptions", Integer, nullable=False),
    Column("exit", Text),  # JSON of ExitRecord
    Column("changed", Text),  # JSON of Terms
    _words("user_name"),
    _words("request_id"),
    Column("request", Text, nullable=False),  # JSON of Request, without the columns beside it
    # its spec
    Column("body", Number, ForeignKey("job_bodies.body")),
    Column("array", Number, ForeignKey("arrays.array")),
    Column("array_index", Integer, nullable=False),
    Column("array_job", Number),
    Column("array_task", Integer),
    Column("uid", Number),
    Column("spec_user", Words),
    _words("name"),
    _words("account"),
    _words("vc"),
    _words("partition_name"),
    Column("gpus", Integer, nullable=False),
    # its course
    _flag("live"),
    _words("state"),  # as users see it
    _words("held"),
    Column("updated", Text),  # JSON of the fields that were changed
    _seconds("submitted_at", nullable=False),
    _seconds("first_started_at"),
    _seconds("started_at"),
    _seconds("ended_at"),
    Column("starts", Integer, nullable=False),
    Column("migrations", Integer, nullable=False),
    Column("resizes", Integer, nullable=False),
    _words("cancelled_by"),
    Column("notify", Words, nullable=False, server_default=""),  # events, with updates
    UniqueConstraint("user_name", "request_id"),
)
_live(jobs, "job")
_live(jobs, "body")
Index("jobs_by_end", jobs.c.ended_at, jobs.c.job)
Index("jobs_by_user_end", jobs.c.user_name, jobs.c.ended_at, jobs.c.job)
Index("jobs_by_body", jobs.c.body)
Index("jobs_by_shape", jobs.c.array)
Index("jobs_by_array", jobs.c.array_job, jobs.c.array_task)

served = _table(  # what jobs have received: their rows of the columns of these names; see db.served
    "served",
    Column("job", Number, ForeignKey("jobs.job"), primary_key=True, autoincrement=False),
    _words("run_id"),  # of its present run; empty: none
    _flag("holds"),  # whether it is on GPUs since `since`
    Column("measured_starts", Integer, nullable=False),  # of which `restart_s` is the sum
    Column("failed_starts", Integer, nullable=False),
    _seconds("not_before"),  # since the epoch, as are the next three
    _seconds("since", nullable=False),
    _seconds("progress_from"),
    _seconds("first_start"),
    _seconds("held_s", nullable=False),
    _seconds("executed", nullable=False),
    _seconds("saved", nullable=False),
    Column("attained", Double, nullable=False),  # GPU-seconds
    _seconds("lost_s", nullable=False),
    _seconds("overhead_s", nullable=False),
    _seconds("restart_s", nullable=False),
    Column("gpus_now", Integer, nullable=False),
    Column("largest_scale", Integer, nullable=False),
    Column("starts", Integer, nullable=False),
    Column("preemptions", Integer, nullable=False),
    Column("migrations", Integer, nullable=False),
    Column("resizes", Integer, nullable=False),
)

job_story = _table(
    "job_story",
    Column("id", Number, primary_key=True, autoincrement=True),
    Column("job", Number, ForeignKey("jobs.job"), nullable=False, index=True),
    _words("line"),
)

# -- runs ------------------------------------------------------------------------------------------

runs = _table(
    "runs",
    Column("run_id", Words, primary_key=True),
    Column("job", Number, ForeignKey("jobs.job"), nullable=False),
    Column("run", Number, nullable=False),
    _words("status"),
    Column("epoch", Number, nullable=False),
    Column("stop", Text),
    Column("stop_step", Number),
    _flag("suspended"),
    Column("suspension", Number, nullable=False),
    _flag("gives_way"),
    _flag("released"),
    Column("follows", Words),  # the run that it waits for
    # with a stop: where the ranks of the next run wait for the state
    Column("hand_over", Words, nullable=False, server_default=""),
    _flag("live"),
    _seconds("assigned_at", nullable=False),
    _seconds("released_at"),
    _seconds("ended_at"),
    _words("end"),
    # what it has received; see core.service_clock
    _seconds("executed_s", nullable=False),  # on its GPUs
    _seconds("worked_s", nullable=False, server_default="0"),
    _seconds("lost_s", nullable=False, server_default="0"),
    _seconds("overhead_s", nullable=False, server_default="0"),
    _seconds("starting_s", nullable=False, server_default="0"),
    _seconds("gpu_s", nullable=False),
)
_live(runs, "job", "run")
Index("runs_by_job", runs.c.job, runs.c.run)
Index("runs_by_end", runs.c.ended_at)

run_members = _table(
    "run_members",
    Column("run_id", Words, ForeignKey("runs.run_id"), primary_key=True),
    Column("node", Words, primary_key=True),
    Column("position", Integer, nullable=False),  # in the layout
    Column("gpus", Text, nullable=False),  # JSON
    _words("boot_id"),
    Column("since_epoch", Number, nullable=False),
    Column("since_revision", Number, nullable=False),
    Column("exit", Text),  # JSON of ExitRecord
    _words("presumed"),
    _flag("let_go"),
)
Index("run_members_by_node", run_members.c.node, run_members.c.run_id)

orphans = _table(
    "orphans",
    Column("node", Words, primary_key=True),
    Column("run_id", Words, primary_key=True),
    Column("held", Text, nullable=False),  # JSON of HeldRun
    Column("since_epoch", Number, nullable=False),
    Column("since_revision", Number, nullable=False),
    _seconds("adopted_at", nullable=False),
)

exit_history = _table(  # ends of orphans
    "exit_history",
    Column("node", Words, primary_key=True),
    Column("run_id", Words, primary_key=True),
    Column("record", Text, nullable=False),  # JSON of ExitRecord
    _seconds("at", nullable=False),
)

progress = _table(
    "progress",
    Column("run_id", Words, primary_key=True),
    Column("step", Number, nullable=False),
    _seconds("executed_s", nullable=False),
    _seconds("restart_s"),
    Column("loss", Double),
    _seconds("at", nullable=False),
)

checkpoints = _table(
    "checkpoints",
    Column("id", Number, primary_key=True, autoincrement=True),
    Column("job", Number, nullable=False),
    _words("run_id"),
    _seconds("at", nullable=False),
    _words("path"),
    Column("step", Number, nullable=False),
    Column("size_bytes", Number, nullable=False),
    _words("sha256"),
    _seconds("executed_s", nullable=False),  # by its run
    Column("loss", Double),
    Column("source", Number),  # the job that wrote it; null: `job`
    Column("state", Text, nullable=False, server_default="kept"),  # see db.checkpoints
)
Index("checkpoints_by_job", checkpoints.c.job, checkpoints.c.id)
Index(
    "checkpoints_there_by_job",
    checkpoints.c.job,
    sqlite_where=text("state <> 'deleted'"),
    postgresql_where=text("state <> 'deleted'"),
)
Index(
    "checkpoints_borrowed",
    checkpoints.c.source,
    sqlite_where=text("source IS NOT NULL"),
    postgresql_where=text("source IS NOT NULL"),
)

unsaved = _table(  # jobs whose latest checkpoint could not be written
    "unsaved",
    Column("job", Number, primary_key=True, autoincrement=False),
    _words("run_id"),
    _seconds("at", nullable=False),
    Column("step", Number, nullable=False),
    _words("why"),
    Column("in_a_row", Integer, nullable=False),
)

predictions = _table(
    "predictions",
    Column("id", Number, primary_key=True, autoincrement=True),
    Column("job", Number, nullable=False),
    _seconds("made_at", nullable=False),
    _seconds("start_at", nullable=False),
    _words("basis"),
    Column("policy", Text, nullable=False, server_default=""),
    Column("source", Text, nullable=False, server_default=""),  # of the job's own duration
    Column("gpus", Integer),
    _seconds("start_p10"),
    _seconds("start_p90"),
    _seconds("end_at"),
    _seconds("end_p10"),
    _seconds("end_p90"),
)
Index("predictions_by_job", predictions.c.job, predictions.c.id)

# -- nodes -----------------------------------------------------------------------------------------

nodes = _table(
    "nodes",
    Column("node", Words, primary_key=True),
    _words("boot_id"),
    Column("incarnation", Number, nullable=False),
    Column("revision", Number, nullable=False),
    _words("status"),
    _words("why"),
    _seconds("changed_at", nullable=False),
    Column("start", Words, nullable=False, server_default=""),  # a random name of its agent's
    Column("machine", Words, nullable=False, server_default=""),  # names its hardware
    Column("can_fence", Boolean, nullable=False, server_default=false()),
    Column("witnesses", Words, nullable=False, server_default="[]"),  # JSON: sets of nodes
)

gpus = _table(
    "gpus",
    Column("node", Words, ForeignKey("nodes.node"), primary_key=True),
    Column("uuid", Words, primary_key=True),
    Column("position", Integer),  # the index on the node; none: no longer offered
    Column("quarantine", Integer),  # place in the node's list of quarantined ones
    _words("type"),
)

node_descriptions = _table(
    "node_descriptions",
    Column("node", Words, primary_key=True),
    _words("facts"),  # JSON of NodeFacts
)

drains = _table(
    "drains",
    Column("node", Words, primary_key=True),
    _words("reason"),
    _words("actor"),
    _seconds("at", nullable=False),
    _seconds("by_at"),
)

node_leases = _table(  # last syncs of nodes, written from time to time
    "node_leases",
    Column("node", Words, primary_key=True),
    Column("epoch", Number, nullable=False),
    _seconds("heard_at", nullable=False),
)

# -- decisions -------------------------------------------------------------------------------------

events = _table(  # append-only
    "events",
    Column("id", Number, primary_key=True, autoincrement=True),
    _seconds("at", nullable=False),
    _words("kind"),
    _words("actor"),
    Column("job", Number),
    Column("run_id", Words),
    Column("node", Words),
    _words("text"),
)
Index("events_by_job", events.c.job, events.c.id)
Index("events_by_node", events.c.node, events.c.id)

rounds = _table(
    "rounds",
    Column("id", Number, primary_key=True, autoincrement=True),
    Column("number", Number, nullable=False, index=True),
    _seconds("at", nullable=False),
    _words("mode"),
    _words("policy"),
    _seconds("wall_s", nullable=False),
    _seconds("cpu_s", nullable=False),
    Column("pending", Integer, nullable=False),
    Column("running", Integer, nullable=False),
    Column("starts", Integer, nullable=False),
    Column("stops", Integer, nullable=False),
)

policy = _table(
    "policy",
    Column("id", Integer, primary_key=True, autoincrement=False),  # 1
    Column("chosen", Text),  # JSON of PolicySet
    Column("state", LargeBinary),
)

trainings = _table(  # of elastic jobs
    "trainings",
    Column("job", Number, primary_key=True, autoincrement=False),
    Column("known", Text, nullable=False),  # JSON
    _seconds("at", nullable=False),
)

gpu_work = _table(
    "gpu_work",
    Column("job", Number, primary_key=True, autoincrement=False),
    _seconds("seen_gpu_s", nullable=False),
    _seconds("busy_gpu_s", nullable=False),
)

curves = _table(  # losses and metrics that jobs have reported, over time
    "curves",
    Column("job", Number, primary_key=True, autoincrement=False),
    Column("known", Text, nullable=False),  # JSON, of bounded length
    _seconds("at", nullable=False),
)

rungs = _table(  # what jobs of sweeps have reported at the rungs of successive halving
    "rungs",
    Column("job", Number, primary_key=True, autoincrement=False),
    Column("rung", Number, primary_key=True, autoincrement=False),  # in steps
    Column("step", Number, nullable=False),  # of the report
    Column("value", Double),  # of the metric; null: not finite
    _flag("stopped"),
)

task_runs = _table(  # short tasks that runs of an array were given, and how they have ended
    "task_runs",
    Column("job", Number, primary_key=True, autoincrement=False),  # the array's first
    Column("task", Integer, primary_key=True, autoincrement=False),  # its number, from 1
    _words("run_id"),
    _words("node"),
    _seconds("given_at", nullable=False),
    Column("code", Integer),
    Column("signal", Integer),
    _seconds("ran_s"),
    _seconds("ended_at"),
)

speeds = _table(  # measured speeds of kinds of trainings
    "speeds",
    Column("model", Words, primary_key=True),
    Column("batch_size", Number, primary_key=True, autoincrement=False),  # 0: not said
    Column("gpu_type", Words, primary_key=True),
    Column("gpus", Integer, primary_key=True, autoincrement=False),
    Column("partner", Words, primary_key=True),  # on the same GPUs; empty: none
    Column("partner_batch_size", Number, primary_key=True, autoincrement=False),
    Column("steps_per_s", Double, nullable=False),
    Column("measurements", Number, nullable=False),
    _words("source"),
    _seconds("at", nullable=False),
    _seconds("changed_at", nullable=False),
)

notices = _table(  # what users are still to be told
    "notices",
    Column("number", Number, primary_key=True, autoincrement=True),
    Column("key", Text, nullable=False, unique=True),
    Column("job", Number, nullable=False),
    Column("run", Number, nullable=False),
    _words("event"),
    _words("state"),
    _words("text"),
    _seconds("at", nullable=False),
    _flag("whole_array"),
    Column("tries", Integer, nullable=False),  # that have failed
    Column("due_at", Double, nullable=False, index=True),
    Column("told", Text, nullable=False),  # JSON: the receivers that have it
    Column("user_name", Words, nullable=False, server_default=""),
    Column("elements", Integer, nullable=False, server_default="0"),  # told of together
)

# -- people ----------------------------------------------------------------------------------------

users = _table(
    "users",
    Column("name", Words, primary_key=True),
    Column("uid", Number),  # known after the first submission
    _seconds("first_seen_at"),
    _flag("added"),  # by an operator, with the columns below
    *_said(User),
    *_set(),
)

account_members = _table(
    "account_members",
    Column("account", Words, primary_key=True),
    Column("user_name", Words, primary_key=True),
    Column("source", Words, primary_key=True),
)

accounts = _tenants("accounts", Account)
vcs = _tenants("vcs", Vc)
partitions = _tenants("partitions", Partition)
priority_classes = _tenants("priority_classes", PriorityClass)
reservations = _tenants("reservations", Reservation)
quotas = _table(
    "quotas",
    Column("kind", Words, primary_key=True),  # user, account, vc
    Column("name", Words, primary_key=True),
    *_said(Quota),
    *_set(),
)

usage = _table(  # what each owner has used, decayed, and has held since
    "usage",
    Column("user_name", Words, primary_key=True),
    Column("account", Words, primary_key=True),
    Column("vc", Words, primary_key=True),
    Column("gpu_s", Double, nullable=False),  # as it counted at `at`
    _seconds("at", nullable=False),
    Column("gpus", Double, nullable=False, server_default="0"),  # parts of GPUs count as parts
)

tokens = _table(
    "tokens",
    Column("token_id", Words, primary_key=True),  # public
    Column("digest", Text, nullable=False),  # of the token, which is not stored
    _words("user_name"),
    _seconds("created_at", nullable=False),
    _seconds("expires_at", nullable=False),
    _seconds("revoked_at"),
    _words("comment"),
)
Index("tokens_by_user", tokens.c.user_name)
