"""Jobs that have ended as a native trace: `dlsched replay` reads what `history --export` writes.

Times are seconds from the first submission. Jobs that never ran or used no GPU tell a scheduler
nothing and are left out; how many is said.
"""

from __future__ import annotations

import csv
import gzip
import io
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from dlsched.client.views import Job
from dlsched.core.errors import BadInput, DlschedError

__all__ = ["check_target", "write_history"]

_STATUS = {
    "COMPLETED": "completed",
    "CANCELLED": "cancelled",
    **dict.fromkeys(
        ("FAILED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "GPU_FAIL", "DEADLINE"), "failed"
    ),
}


def check_target(target: str) -> None:
    """Refuse what could not be written, before anything is asked for.

    Raises:
        BadInput: another ending than .csv and .csv.gz.
    """
    if target != "-" and not target.endswith((".csv", ".csv.gz")):
        raise BadInput(f"--export: {target}: a trace ends in .csv or .csv.gz")


def write_history(jobs: Sequence[Job], target: str) -> str:
    """Write a trace, whole or not at all, and return what to say of it.

    Raises:
        DlschedError: there is nothing to write, or it cannot be written.
    """
    kept = [job for job in jobs if job.gpus > 0 and job.run_s and job.submitted_at is not None]
    if not kept:
        raise DlschedError(f"nothing to export: none of {len(jobs)} jobs has run on a GPU")
    kept.sort(key=lambda job: (job.submitted_at or 0.0, job.job_id))
    data = _csv(kept).encode()
    if target == "-":
        sys.stdout.buffer.write(data)
    else:
        _replace(Path(target), gzip.compress(data, mtime=0) if target.endswith(".gz") else data)
    left = len(jobs) - len(kept)
    told = f"{len(kept)} jobs written to {target if target != '-' else 'stdout'}"
    return told + (f"; {left} left out that never ran on a GPU" if left else "")


def _csv(jobs: Sequence[Job]) -> str:
    zero = jobs[0].submitted_at or 0.0
    columns: dict[str, Callable[[Job], object]] = {
        "job_id": lambda job: job.shown_id,
        "submit_time": lambda job: _number((job.submitted_at or 0.0) - zero),
        "num_gpus": lambda job: job.gpus,
        "duration": lambda job: _number(_worked(job)),
        "user": lambda job: job.user,
        "account": lambda job: job.account,
        "vc": lambda job: job.vc,
        "status": lambda job: _STATUS.get(job.state, "unfinished"),
        "name": lambda job: job.name,
        "model": lambda job: job.model,
        # replays know one type a job
        "gpu_type": lambda job: job.gpu_types[0] if len(job.gpu_types) == 1 else None,
        "priority": lambda job: _number(job.priority),
        "time_limit": lambda job: _number(job.time_limit_s),
        "start_time": lambda job: _after(job.first_started_at, zero),
        "end_time": lambda job: _after(job.ended_at, zero),
        "attempts": lambda job: job.starts,
        "restart_overhead": lambda job: _number(job.restart_s),
        "gpu_share": lambda job: None if job.gpu_share is None else repr(job.gpu_share),
    }
    rows = {
        name: ["" if (cell := text(job)) is None else str(cell) for job in jobs]
        for name, text in columns.items()
    }
    needed = {"job_id", "submit_time", "num_gpus", "duration"}
    held = {name: cells for name, cells in rows.items() if name in needed or any(cells)}
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(held)
    writer.writerows(zip(*held.values(), strict=True))
    return out.getvalue()


def _worked(job: Job) -> float:
    """What it did, once: time that was lost and done again is a policy's doing.

    So are starts, as far as they were measured: the replay charges its own.
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


def _replace(path: Path, data: bytes) -> None:
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_bytes(data)
        os.replace(part, path)
    except OSError as error:
        raise DlschedError(f"{path}: can't be written ({error.strerror or error})") from None
    finally:
        part.unlink(missing_ok=True)
