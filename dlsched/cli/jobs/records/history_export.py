"""`history --export`: jobs that have ended, as a native trace for `dlsched replay`.

Times are seconds from the first submission. Jobs that never ran on a GPU are left out and counted,
and so are dependencies that a trace cannot say.
"""

from __future__ import annotations

import csv
import gzip
import io
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from dlsched.cli.jobs.awaited_jobs import awaited_by
from dlsched.cli.output.file_output import plain_cell, save
from dlsched.client.job_records import Job
from dlsched.core.errors import BadInput, DlschedError
from dlsched.jobs.field import Field
from dlsched.jobs.fields import CSV

_STATUS = {
    "COMPLETED": "completed",
    "CANCELLED": "cancelled",
    **dict.fromkeys(
        ("FAILED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "GPU_FAIL", "DEADLINE"), "failed"
    ),
}


def check_target(target: str) -> None:
    """Refuse a wrong file name before the daemon is asked.

    Raises:
        BadInput: the name does not end in .csv or .csv.gz.
    """
    if target != "-" and not target.endswith((".csv", ".csv.gz")):
        raise BadInput(f"--export: {target}: a trace ends in .csv or .csv.gz")


class Exported(NamedTuple):
    """How many jobs were written, and in words what the trace does not say; empty for nothing."""

    jobs: int
    left_out: str


def write_history(jobs: Sequence[Job], target: str) -> Exported:
    """Write a trace, whole or not at all.

    Raises:
        DlschedError: no job has run on a GPU, or the file cannot be written.
    """
    kept = [job for job in jobs if job.gpus > 0 and job.run_s and job.submitted_at is not None]
    if not kept:
        raise DlschedError(f"nothing to export: of {len(jobs)} found, no job has run on a GPU")
    kept.sort(key=lambda job: (job.submitted_at or 0.0, job.job_id))
    data = _csv(kept).encode()
    if target == "-":
        sys.stdout.buffer.write(data)
    else:
        save([gzip.compress(data, mtime=0) if target.endswith(".gz") else data], target)
    left = len(jobs) - len(kept)
    otherwise = sum(awaited.differs for awaited in awaited_by(kept).values())
    left_out = [f"{left} left out that never ran on a GPU"] if left else []
    left_out += [f"{otherwise} waited for others as no trace can say"] if otherwise else []
    return Exported(len(kept), "; ".join(left_out))


def _csv(jobs: Sequence[Job]) -> str:
    zero = jobs[0].submitted_at or 0.0
    awaited = awaited_by(jobs)
    asked = {name: partial(_asked, row) for name, row in CSV.items() if name != "num_gpus"}
    columns: dict[str, Callable[[Job], object]] = {
        "job_id": lambda job: job.shown_id,
        "submit_time": lambda job: _number((job.submitted_at or 0.0) - zero),
        "num_gpus": lambda job: job.gpus,
        "duration": lambda job: _number(_worked(job)),
        "user": lambda job: job.user,
        "account": asked["account"],
        "vc": asked["vc"],
        "status": lambda job: _STATUS.get(job.state, "unfinished"),
        **asked,
        "gang": lambda job: "+".join(map(str, job.gang)) if sum(job.gang) == job.gpus else None,
        "begin": lambda job: _after(job.begin_at, job.submitted_at or 0.0),
        "parents": lambda job: " ".join(awaited[job.job_id].parents),
        "array": lambda job: job.array_job_id,
        "array_limit": lambda job: job.array_limit or None,
        "start_time": lambda job: _after(job.first_started_at, zero),
        "end_time": lambda job: _after(job.ended_at, zero),
        "attempts": lambda job: job.starts,
        "restart_overhead": lambda job: _number(job.restart_s),
    }
    rows = {
        name: ["" if (cell := text(job)) is None else str(plain_cell(cell)) for job in jobs]
        for name, text in columns.items()
    }
    needed = {"job_id", "submit_time", "num_gpus", "duration"}
    held = {name: cells for name, cells in rows.items() if name in needed or any(cells)}
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(held)
    writer.writerows(zip(*held.values(), strict=True))
    return out.getvalue()


def _asked(row: Field, job: Job) -> str | None:
    """What a job asked for, as the trace's column has it."""
    value: Any = getattr(job, row.name) if hasattr(job, row.name) else job.asked.get(row.name)
    if isinstance(value, tuple):
        return value[0] if len(value) == 1 else None  # a trace has one type for each job
    if row.column is not None and value is not None and not row.choices:
        value = row.column.value(value, job.submitted_at or 0.0, max(len(job.gang), 1))
    if isinstance(value, bool):
        return "yes" if value else None
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else repr(value)
    return None if value is None else str(value)


def _worked(job: Job) -> float:
    """Return the seconds of work without lost time and measured starts: the policy causes these.

    A replay adds lost time and starts of its own.
    """
    run_s = job.run_s or 0.0
    idle = max(job.lost_s, 0.0) + max(job.starting_s, 0.0)
    return run_s - idle if idle < run_s else run_s


def _number(value: float | None) -> str | None:
    if value is None:
        return None
    value = round(value, 3)
    return str(int(value)) if value.is_integer() else repr(value)


def _after(at: float | None, zero: float) -> str | None:
    return None if at is None else _number(at - zero)
