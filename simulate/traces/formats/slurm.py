"""Slurm's accounting, as `sacct -P` (or `-p`, `--parsable2`) prints it.

What a replay wants to see: `sacct -a -D -P -o JobID,JobName,User,Account,Partition,State,Submit,
Start,End,ElapsedRaw,Timelimit,NNodes,NCPUS,ReqTRES,AllocTRES`. Rows of steps (`123.batch`, `123.0`,
`123.extern`) are part of their job and never jobs; several rows with one id are the attempts of a
job that was requeued; `123_[1-5]` are five elements that haven't started. Times are naive local
times unless they carry an offset or are Unix seconds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from dlsched.core.errors import BadInput
from simulate.traces.formats.slurm_columns import GPU_FIELDS, RUN_FIELDS, SlurmColumns
from simulate.traces.formats.slurm_fields import array_elements
from simulate.traces.ledger import Ledger
from simulate.traces.normal import Rows, Source, normal_trace
from simulate.traces.options import ReadOptions
from simulate.traces.table import Table, read_table
from simulate.traces.textfile import first_line
from simulate.traces.trace import FloatColumn, TextColumn, Trace

SLURM = Source(source="slurm", is_log=True, wall_clock=True)
REQUIRED = ("JobID", "Submit", "State")


def recognises(header: Sequence[str]) -> bool:
    """Whether a header has the fields without which no job can be told."""
    return set(header).issuperset(REQUIRED)


@dataclass(slots=True)
class _Job:
    """One job: the rows of the table that are its attempts, in file order, and its steps'."""

    job_id: str
    attempts: list[int] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)


def read(path: Path, options: ReadOptions) -> Trace:
    """Read the output of `sacct`.

    A job's duration is the sum of its attempts' elapsed times (suspended time is not in them), its
    status that of the last attempt. GPUs come from AllocTRES, else ReqTRES (totals), else AllocGRES
    or ReqGRES (per node, times the nodes).

    Raises:
        BadInput: see `normal_trace` and `read_table`; a needed field was not printed.
    """
    ledger = Ledger(path, skip_bad_rows=options.skip_bad_rows)
    parsable = "|" in first_line(path)
    table = read_table(
        path,
        ledger,
        required=REQUIRED,
        unique=("JobID", "JobIDRaw"),
        delimiter="|" if parsable else ",",
        quoted=not parsable,
    )
    for names in (GPU_FIELDS, RUN_FIELDS):
        if not set(names) & set(table.header):
            raise BadInput(f"{path}:1: none of the fields {', '.join(names)}; add one to sacct -o")
    columns = SlurmColumns(table)
    rows = _fold(table, columns, _jobs(table))
    return normal_trace(rows, ledger, options, SLURM)


def _jobs(table: Table) -> list[_Job]:
    """Sort the rows into jobs, in order of first occurrence; steps without a job are refused."""
    jobs: dict[str, _Job] = {}
    steps: list[tuple[str, int]] = []
    for row, job_id in enumerate(table.text("JobID").tolist()):
        owner, dot, _ = job_id.strip().partition(".")
        if dot:
            steps.append((owner, row))
            continue
        try:
            elements = array_elements(owner)
        except ValueError as error:
            table.refuse([row], "JobID is malformed", f"JobID: {error}")
            continue
        for element in elements:
            jobs.setdefault(element, _Job(element)).attempts.append(row)
    for owner, row in steps:
        if owner in jobs:
            jobs[owner].steps.append(row)
        else:
            table.refuse([row], "step without its job", f"a step of {owner!r}, which has no row")
    usable = table.usable.tolist()
    return [job for job in jobs.values() if all(usable[row] for row in job.attempts)]


def _fold(table: Table, columns: SlurmColumns, jobs: list[_Job]) -> Rows:
    """Fold every job's attempts and steps into one row."""
    first = np.array([job.attempts[0] for job in jobs], dtype=np.intp)
    last = np.array([job.attempts[-1] for job in jobs], dtype=np.intp)
    return Rows(
        job_id=np.array([job.job_id for job in jobs], dtype=object),
        # A requeued job gets a new submit time; it has waited since the first.
        submit_time=columns.submit[first],
        num_gpus=columns.num_gpus[last],
        duration=_durations(columns, jobs),
        user=table.text("User")[first],
        vc=table.text("Account")[first],
        status=columns.status[last],
        lines=table.lines[first],
        usable=np.ones(len(jobs), dtype=np.bool_),
        columns={
            "name": table.text("JobName")[first],
            "partition": table.text("Partition")[first],
            "start_time": columns.start[first],
            "end_time": columns.end[last],
            "num_nodes": columns.num_nodes[last],
            "num_cpus": columns.num_cpus[last],
            "memory_gb": columns.memory_gb[last],
            "used_memory_gb": _most_used(columns, jobs),
            "gpu_type": columns.gpu_type[last],
            "time_limit": columns.time_limit_s[first],
            "priority": columns.priority[last],
            "attempts": np.array([float(len(job.attempts)) for job in jobs]),
            "attempt_durations": _attempt_durations(columns, jobs),
        },
        zone=columns.zone,
    )


def _durations(columns: SlurmColumns, jobs: list[_Job]) -> FloatColumn:
    """Sum the attempts that ran; NaN when none has, or one still does."""
    # Lists, as single elements of arrays are slow to get at; most jobs have one attempt.
    started = (~np.isnan(columns.start)).tolist()
    run_s = columns.run_s.tolist()
    # An attempt that was cancelled while it waited adds nothing.
    ran = [[run_s[row] for row in job.attempts if started[row]] for job in jobs]
    return np.array([sum(seconds) if seconds else math.nan for seconds in ran])


def _attempt_durations(columns: SlurmColumns, jobs: list[_Job]) -> TextColumn:
    """Spell every job's attempts [s] as "30+600", "?" for one that didn't run or still does."""
    spelled = ["?" if math.isnan(each) else f"{each:.0f}" for each in columns.run_s.tolist()]
    return np.array(["+".join(spelled[row] for row in job.attempts) for job in jobs], dtype=object)


def _most_used(columns: SlurmColumns, jobs: list[_Job]) -> FloatColumn:
    """Take the largest resident memory, which is accounted to steps and not to jobs."""
    # -1 stands for "not known" while the largest is sought.
    used = np.nan_to_num(columns.used_memory_gb, nan=-1.0).tolist()
    most = np.array([max(used[row] for row in (*job.attempts, *job.steps)) for job in jobs])
    return np.where(most < 0, np.nan, most)
