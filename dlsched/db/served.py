"""What jobs have received, as their service clocks had it when something last changed.

The daemon writes a job's row in the transaction that starts, suspends, checkpoints or ends its run,
and a new one reads it back. So nothing derives it from runs, exits and checkpoints.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, bindparam, select, update

from dlsched.core.service_clock import Account, Received
from dlsched.db import schema
from dlsched.db.rows import Row
from dlsched.db.statements import put, rows_in
from dlsched.protocol.messages import JobId, RunId

TIMES = ("since", "progress_from", "first_start")  # of an account


@dataclass(frozen=True, slots=True, kw_only=True)
class JobServed:
    """What a job has received so far; its times are in seconds since the epoch.

    Attributes:
        job: its id; it has had a run.
        run_id: of the run that it has now; empty: none.
        holds: whether it is on GPUs since `account.since`, in the time of this row.
        account: as its clock has it.
        measured_starts: of which `account.restart_s` is the sum.
        failed_starts: how many starts have failed in a row.
        not_before: when it may start again after them; -inf: at once.
    """

    job: JobId
    run_id: str
    holds: bool
    account: Account
    measured_starts: int = 0
    failed_starts: int = 0
    not_before: float = -math.inf

    def moved(self, by_s: float) -> JobServed:
        """The same by a clock that is so many seconds ahead; as it is where there is none."""
        if not by_s:
            return self
        times = {name: getattr(self.account, name) + by_s for name in TIMES}
        return replace(
            self, account=self.account._replace(**times), not_before=self.not_before + by_s
        )

    def held_since(self, at: float) -> float:
        """Seconds on GPUs that `account` does not have yet."""
        return max(at - self.account.since, 0.0) if self.holds else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunServed:
    """What a run has received so far, in segments that are over."""

    run_id: RunId
    received: Received


_OF_RUN = {  # the columns of what a run has received
    "held_s": "executed_s",
    "worked_s": "worked_s",
    "lost_s": "lost_s",
    "overhead_s": "overhead_s",
    "restart_s": "starting_s",
    "attained": "gpu_s",
}


def set_received(connection: Connection, rows: Sequence[RunServed]) -> None:
    """Store what runs have received; of several rows of one run the last one counts."""
    latest = {row.run_id: row.received._asdict() for row in rows}
    runs = schema.runs
    query = update(runs).where(runs.c.run_id == bindparam("b_run_id"))
    connection.execute(
        query.values({column: bindparam(name) for name, column in _OF_RUN.items()}),
        [values | {"b_run_id": run_id} for run_id, values in latest.items()],
    )


def read_received(connection: Connection, jobs: Iterable[int]) -> dict[int, tuple[RunId, Received]]:
    """The latest run of each of some jobs that has one, and what it has received."""
    runs = schema.runs
    columns = (runs.c[column] for column in _OF_RUN.values())
    query = select(runs.c.job, runs.c.run, runs.c.run_id, *columns).where(runs.c.follows.is_(None))
    rows = sorted(rows_in(connection, query, runs.c.job, jobs), key=lambda row: int(row["run"]))
    return {row["job"]: (RunId(row["run_id"]), received_of(row)) for row in rows}


def received_of(row: Row) -> Received:
    """What a run has received, of its row."""
    return Received(**{name: row[column] for name, column in _OF_RUN.items()})


def set_served(connection: Connection, rows: Sequence[JobServed]) -> None:
    """Store what jobs have received; of several rows of one job the last one counts."""
    latest = {
        row.job: {
            "job": row.job,
            "run_id": row.run_id,
            "holds": row.holds,
            "measured_starts": row.measured_starts,
            "failed_starts": row.failed_starts,
            "not_before": None if math.isinf(row.not_before) else row.not_before,
            **{
                name: None if math.isnan(value) else value
                for name, value in row.account._asdict().items()
            },
        }
        for row in rows
    }
    put(connection, schema.served, list(latest.values()))


def read_served(connection: Connection, jobs: Iterable[int]) -> dict[int, JobServed]:
    """What each of some jobs has received, of those that have had a run."""
    table = schema.served
    return {
        row["job"]: _served(row) for row in rows_in(connection, select(table), table.c.job, jobs)
    }


def _served(row: Row) -> JobServed:
    values: dict[str, Any] = {
        name: math.nan if row[name] is None else row[name] for name in Account._fields
    }
    waits = row["not_before"]
    return JobServed(
        job=JobId(row["job"]),
        run_id=row["run_id"],
        holds=bool(row["holds"]),
        measured_starts=row["measured_starts"],
        account=Account(**values),
        failed_starts=row["failed_starts"],
        not_before=-math.inf if waits is None else waits,
    )
