"""How much of the GPUs that a job held it has used, summed over its runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, select, update
from sqlalchemy.sql.expression import bindparam

from dlsched.db import schema
from dlsched.db.statements import add, rows_in
from dlsched.protocol.messages import JobId


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuWork:
    """What a job's GPUs were seen to do since the row before; it adds to what is stored.

    Attributes:
        job: the job.
        seen_gpu_s: GPU-seconds over which its GPUs were watched.
        busy_gpu_s: the same, each second times the utilisation (0 to 1) then.
    """

    job: JobId
    seen_gpu_s: float
    busy_gpu_s: float


def add_gpu_work(connection: Connection, rows: Sequence[GpuWork]) -> None:
    """Add to the sums of some jobs."""
    table = schema.gpu_work
    sums: dict[int, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for row in rows:
        sums[row.job][0] += row.seen_gpu_s
        sums[row.job][1] += row.busy_gpu_s
    known = {row["job"] for row in rows_in(connection, select(table.c.job), table.c.job, sums)}
    new = [job for job in sums if job not in known]
    values = [{"job": j, "seen_gpu_s": sums[j][0], "busy_gpu_s": sums[j][1]} for j in new]
    add(connection, table, values)
    if known:
        connection.execute(
            update(table)
            .where(table.c.job == bindparam("b_job"))
            .values(
                seen_gpu_s=table.c.seen_gpu_s + bindparam("seen"),
                busy_gpu_s=table.c.busy_gpu_s + bindparam("busy"),
            ),
            [{"b_job": j, "seen": sums[j][0], "busy": sums[j][1]} for j in known],
        )


def read_gpu_use(connection: Connection, jobs: Iterable[int]) -> dict[int, float]:
    """The mean utilisation (0 to 1) of the GPUs of those of some jobs whose GPUs were watched."""
    table = schema.gpu_work
    rows = rows_in(connection, select(table), table.c.job, jobs)
    return {
        row["job"]: row["busy_gpu_s"] / row["seen_gpu_s"] for row in rows if row["seen_gpu_s"] > 0
    }
