"""Slurm's accounting, as `sacct -P` (or `-p`, `--parsable2`) prints it.

What a replay wants to see: `sacct -a -D -P -o JobID,JobName,User,Account,Partition,State,Submit,
Start,End,ElapsedRaw,Timelimit,NNodes,NCPUS,ReqTRES,AllocTRES`. Rows of steps (`123.batch`, `123.0`,
`123.extern`) are part of their job and never jobs; several rows with one id are the attempts of a
job that was requeued; `123_[1-5]` are five elements that haven't started. Times are naive local
times unless they carry an offset or are Unix seconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from dlsched.core.errors import BadInput
from simulate.traces.formats.slurm_fields import (
    array_elements,
    gres_gpus,
    memory_gb,
    requested_memory_gb,
    span_seconds,
    tres_count,
    tres_gpus,
    tres_memory_gb,
)
from simulate.traces.ledger import Ledger
from simulate.traces.normal import Rows, normal_trace
from simulate.traces.options import ReadOptions
from simulate.traces.table import LOST, Table, read_table
from simulate.traces.textfile import first_line, stem_of
from simulate.traces.trace import Trace

__all__ = ["DELIMITER", "read", "recognises"]

DELIMITER = "|"
REQUIRED = ("JobID", "Submit", "State")
GPU_FIELDS = ("AllocTRES", "ReqTRES", "AllocGRES", "ReqGRES")
RUN_FIELDS = ("ElapsedRaw", "Elapsed", "End")


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
    delimiter = DELIMITER if DELIMITER in first_line(path) else ","
    table = read_table(
        path,
        ledger,
        required=REQUIRED,
        unique=("JobID", "JobIDRaw"),
        delimiter=delimiter,
        quoted=delimiter == ",",
    )
    for names in (GPU_FIELDS, RUN_FIELDS):
        if not set(names) & set(table.header):
            raise BadInput(f"{path}:1: none of the fields {', '.join(names)}; add one to sacct -o")
    fields = _Fields(table)
    return normal_trace(
        _rows(table, fields, _jobs(table)),
        ledger,
        options,
        name=stem_of(path),
        source="slurm",
        is_log=True,
        zone=fields.zone,
    )


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
            table.refuse([row], "step without its job", f"a step of {owner}, which has no row")
    return list(jobs.values())


def _parsed(table: Table, name: str, parse: Callable[[str], float]) -> list[float]:
    """Parse a column by one of the small grammars; NaN where it isn't there."""
    values = [math.nan] * len(table)
    if name in table.header:
        for row, text in enumerate(table.text(name).tolist()):
            try:
                values[row] = parse(text)
            except ValueError as error:
                table.refuse([row], f"{name} is malformed", f"{name}: {error}")
    return values


def _count(text: str) -> float:
    """Parse a count; sacct shortens large ones (12K)."""
    if text in LOST:
        return math.nan
    try:
        return float(text[:-1]) * 1000 if text.endswith("K") else float(text)
    except ValueError:
        raise ValueError(f"{text!r} is no count") from None


def _first_known(*values: float) -> float:
    return next((value for value in values if not math.isnan(value)), math.nan)


class _Fields:
    """The parsed fields of every row, and what one attempt makes of them."""

    def __init__(self, table: Table) -> None:
        self.texts = {name: table.text(name).tolist() for name in (*GPU_FIELDS, "ReqMem")}
        submit = table.times("Submit")
        self.submit, self.zone = submit.seconds, submit.zone
        self.start = table.times("Start").seconds
        self.end = table.times("End").seconds
        self.elapsed_raw = _parsed(table, "ElapsedRaw", _count)
        self.elapsed = _parsed(table, "Elapsed", span_seconds)
        self.limit = _parsed(table, "Timelimit", span_seconds)
        self.limit_raw = _parsed(table, "TimelimitRaw", _limit_minutes)
        self.nodes = [_parsed(table, name, _count) for name in ("AllocNodes", "NNodes", "ReqNodes")]
        self.cpus = [_parsed(table, name, _count) for name in ("AllocCPUS", "NCPUS", "ReqCPUS")]
        self.priority = _parsed(table, "Priority", _count)
        self.used_memory = _parsed(table, "MaxRSS", memory_gb)
        self.status = table.statuses("State")
        self._refuse_malformed_resources(table)

    def _refuse_malformed_resources(self, table: Table) -> None:
        for row in range(len(table)):
            try:
                self.gpus(row)
                self.memory(row)
            except ValueError as error:
                table.refuse([row], "TRES or GRES is malformed", f"TRES or GRES: {error}")

    def num_nodes(self, row: int) -> float:
        """Return the nodes held or asked for; a job that holds none has 0 in AllocNodes."""
        alloc = tres_count(self.texts["AllocTRES"][row], "node")
        counts = (alloc, *(column[row] for column in self.nodes))
        return _first_known(*(count for count in counts if count > 0))

    def num_cpus(self, row: int) -> float:
        """Return the CPUs held or asked for."""
        return _first_known(*(column[row] for column in self.cpus if column[row] > 0))

    def gpus(self, row: int) -> tuple[float, str]:
        """Return GPUs and type; NaN when no field says, 0 when one says there were none."""
        for name in ("AllocTRES", "ReqTRES"):
            if (total := tres_gpus(self.texts[name][row])) is not None:
                return total
        for name in ("AllocGRES", "ReqGRES"):
            if (per_node := gres_gpus(self.texts[name][row])) is not None:
                return per_node[0] * _first_known(self.num_nodes(row), 1.0), per_node[1]
        ran = self.run_s(row) > 0
        return (0.0 if ran else math.nan), ""

    def memory(self, row: int) -> float:
        """Return the job's memory in GB, as allocated or else as asked for."""
        return _first_known(
            tres_memory_gb(self.texts["AllocTRES"][row]),
            tres_memory_gb(self.texts["ReqTRES"][row]),
            requested_memory_gb(
                self.texts["ReqMem"][row], cpus=self.num_cpus(row), nodes=self.num_nodes(row)
            ),
        )

    def time_limit(self, row: int) -> float:
        """Return the user's estimate in seconds, NaN without one."""
        return _first_known(self.limit_raw[row], self.limit[row])

    def run_s(self, row: int) -> float:
        """Return how long an attempt ran; NaN when it never started or still runs."""
        if math.isnan(self.start[row]) or math.isnan(self.end[row]):
            return math.nan
        span = self.end[row] - self.start[row]
        return _first_known(self.elapsed_raw[row], self.elapsed[row], float(span))


def _limit_minutes(text: str) -> float:
    return _count(text) * 60 if text not in ("UNLIMITED", "Partition_Limit") else math.nan


def _rows(table: Table, fields: _Fields, jobs: list[_Job]) -> Rows:
    """Fold every job's attempts and steps into one row."""
    usable = table.usable
    jobs = [job for job in jobs if all(usable[row] for row in job.attempts)]
    first = np.array([job.attempts[0] for job in jobs], dtype=np.intp)
    last = [job.attempts[-1] for job in jobs]
    runs = [[fields.run_s(row) for row in job.attempts] for job in jobs]
    gpus = [fields.gpus(row) for row in last]
    return Rows(
        job_id=np.array([job.job_id for job in jobs], dtype=object),
        # A requeued job gets a new submit time; it has waited since the first.
        submit_time=np.array([fields.submit[job.attempts].min() for job in jobs]),
        num_gpus=np.array([count for count, _ in gpus]),
        duration=np.array([_total_s(fields, job) for job in jobs]),
        user=table.text("User")[first],
        vc=table.text("Account")[first],
        status=np.array([fields.status[row] for row in last], dtype=object),
        lines=table.lines[first],
        usable=np.ones(len(jobs), dtype=np.bool_),
        columns={
            "name": table.text("JobName")[first],
            "partition": table.text("Partition")[first],
            "start_time": fields.start[first],
            "end_time": fields.end[last],
            "num_nodes": np.array([fields.num_nodes(row) for row in last]),
            "num_cpus": np.array([fields.num_cpus(row) for row in last]),
            "memory_gb": np.array([fields.memory(row) for row in last]),
            "used_memory_gb": np.array([_most_used(fields, job) for job in jobs]),
            "gpu_type": np.array([kind for _, kind in gpus], dtype=object),
            "time_limit": np.array([fields.time_limit(row) for row in first]),
            "priority": np.array([fields.priority[row] for row in last]),
            "attempts": np.array([float(len(job.attempts)) for job in jobs]),
            "attempt_durations": np.array(
                ["+".join("?" if math.isnan(s) else f"{s:.0f}" for s in each) for each in runs],
                dtype=object,
            ),
        },
    )


def _total_s(fields: _Fields, job: _Job) -> float:
    """Sum the attempts that ran; NaN when none has, or one still does."""
    ran = [row for row in job.attempts if not math.isnan(fields.start[row])]
    return sum(fields.run_s(row) for row in ran) if ran else math.nan


def _most_used(fields: _Fields, job: _Job) -> float:
    """Return the largest resident memory of a task, in GB: accounted to steps, not to jobs."""
    known = [fields.used_memory[row] for row in (*job.attempts, *job.steps)]
    return max((each for each in known if not math.isnan(each)), default=math.nan)
