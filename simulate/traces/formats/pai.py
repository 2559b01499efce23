"""Alibaba's PAI trace of 2020: tables without header lines, whose columns `.header` files name.

A job is a gang of all instances of all its tasks; its GPUs are the sum of `inst_num * plan_gpu`,
in hundredths. It runs from the earliest start of a task to the end of the job. Times are Unix
seconds shifted by a secret constant; read in UTC+8 they show the true hour and weekday.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlsched.core.errors import BadInput
from simulate.traces.ledger import Ledger
from simulate.traces.normal import Rows, Source, normal_trace
from simulate.traces.options import ReadOptions
from simulate.traces.table import Table, read_table
from simulate.traces.textfile import first_line, stem_of
from simulate.traces.trace import FloatColumn, TextColumn, Trace

PAI = Source(source="pai", is_log=True, wall_clock=True)
COLUMNS = {
    "job": ("job_name", "inst_id", "user", "status", "start_time", "end_time"),
    "task": (
        *("job_name", "task_name", "inst_num", "status", "start_time", "end_time"),
        *("plan_cpu", "plan_mem", "plan_gpu", "gpu_type"),
    ),
    "instance": (
        *("job_name", "task_name", "inst_name", "worker_name", "inst_id", "status"),
        *("start_time", "end_time", "machine"),
    ),
    "group_tag": ("inst_id", "user", "gpu_type_spec", "group", "workload"),
}
NUMBERS = ("start_time", "end_time", "inst_num", "plan_cpu", "plan_mem", "plan_gpu")


def find_job_table(path: Path) -> Path | None:
    """Return the job table that `path` is, or that lies in the folder `path`; None without one."""
    if path.is_dir():
        return next(iter(sorted(path.glob("pai_job_table.csv*"))), None)
    return path if path.name.startswith("pai_job_table") else None


def read(path: Path, options: ReadOptions) -> Trace:
    """Read a folder with `pai_job_table.csv` and `pai_task_table.csv`, or name the job table.

    `pai_instance_table.csv` (number of nodes) and `pai_group_tag_table.csv` (group, workload) are
    used where they lie beside it.

    Raises:
        BadInput: see `normal_trace` and `read_table`; a table isn't there.
    """
    job_table = find_job_table(path)
    if job_table is None:
        raise BadInput(f"{path}: no pai_job_table.csv there; name its folder or the table itself")
    ledger = Ledger(job_table, skip_bad_rows=options.skip_bad_rows)
    jobs = _read_table(job_table, "job", ledger)
    names = jobs.text("job_name")
    row_of = {name: row for row, name in enumerate(names.tolist())}

    task_table = _sibling(job_table, "task")
    if task_table is None:
        raise BadInput(f"{job_table}: no pai_task_table.csv beside it; it holds the GPU counts")
    tasks = _read_table(task_table, "task", Ledger(task_table, skip_bad_rows=options.skip_bad_rows))
    owner = _owners(tasks, row_of)
    start = np.full(len(jobs), np.nan)
    np.fmin.at(start, owner[owner >= 0], tasks.number("start_time")[owner >= 0])
    instances = tasks.number("inst_num")
    num_gpus = _sum_per_job(instances * _planned(tasks, "plan_gpu") / 100, owner, len(jobs))

    columns: dict[str, NDArray[Any]] = {
        "start_time": start,
        "end_time": jobs.number("end_time"),
        "num_instances": _sum_per_job(instances, owner, len(jobs)),
        "num_cpus": _sum_per_job(instances * _planned(tasks, "plan_cpu") / 100, owner, len(jobs)),
        "memory_gb": _sum_per_job(instances * _planned(tasks, "plan_mem"), owner, len(jobs)),
        "gpu_type": _gpu_types(tasks, owner, len(jobs)),
    }
    if instance_table := _sibling(job_table, "instance"):
        columns["num_nodes"] = _count_nodes(instance_table, row_of, len(jobs), options)
    if group_table := _sibling(job_table, "group_tag"):
        columns |= _tags(group_table, jobs.text("inst_id"), options)
    rows = Rows.of(
        jobs,
        job_id=names,
        status=jobs.statuses("status"),
        submit_time=jobs.number("start_time"),
        num_gpus=num_gpus,
        duration=jobs.number("end_time") - start,
        user=jobs.text("user"),
        columns=columns,
        zone="+08:00",
    )
    name = path.resolve().name if path.is_dir() else stem_of(path)
    return normal_trace(rows, ledger, options, PAI, name=name)


def _sibling(job_table: Path, kind: str) -> Path | None:
    stem = f"pai_{kind}_table.csv"
    return next(iter(sorted(job_table.parent.glob(f"{stem}*"))), None)


def _read_table(
    path: Path, kind: str, ledger: Ledger, *, only: tuple[str, ...] | None = None
) -> Table:
    """Read a table by its `.header` file, or by the published order of columns without one."""
    header_file = path.with_name(f"pai_{kind}_table.header")
    header = COLUMNS[kind]
    if header_file.exists():
        header = tuple(name.strip() for name in first_line(header_file).split(","))
    return read_table(
        path,
        ledger,
        numbers=NUMBERS,
        required=COLUMNS[kind],
        unique=("inst_id", "inst_name", "worker_name"),
        header=header,
        only=only,
    )


def _owners(table: Table, row_of: dict[str, int]) -> NDArray[np.int64]:
    """Return each row's job as a row of the job table, -1 for a job that isn't in it."""
    names = table.text("job_name").tolist()
    return np.fromiter((row_of.get(name, -1) for name in names), np.int64, len(names))


def _planned(tasks: Table, name: str) -> FloatColumn:
    """A task that plans nothing of a resource has an empty field, and uses none."""
    return np.nan_to_num(tasks.number(name), nan=0.0)


def _sum_per_job(values: FloatColumn, owner: NDArray[np.int64], jobs: int) -> FloatColumn:
    """Sum the tasks' values by job; NaN for a job without tasks or with an unknown one."""
    mine = owner >= 0
    sums = np.bincount(owner[mine], weights=values[mine], minlength=jobs).astype(np.float64)
    sums[np.bincount(owner[mine], minlength=jobs) == 0] = np.nan
    return sums


def _gpu_types(tasks: Table, owner: NDArray[np.int64], jobs: int) -> TextColumn:
    """Return the types of the tasks with GPUs; several are joined by "+"."""
    types = [""] * jobs
    for row, name in zip(owner.tolist(), tasks.text("gpu_type").tolist(), strict=True):
        if row >= 0 and name and name not in types[row].split("+"):
            types[row] = f"{types[row]}+{name}" if types[row] else name
    return np.array(types, dtype=object)


def _count_nodes(
    path: Path, row_of: dict[str, int], jobs: int, options: ReadOptions
) -> FloatColumn:
    """Count the machines that each job's instances ran on; NaN for none."""
    ledger = Ledger(path, skip_bad_rows=options.skip_bad_rows)
    instances = _read_table(path, "instance", ledger, only=("job_name", "machine"))
    owner = _owners(instances, row_of)
    machine_no: dict[str, int] = {"": 0}
    machines = np.fromiter(
        (machine_no.setdefault(name, len(machine_no)) for name in instances.text("machine")),
        np.int64,
        len(instances),
    )
    known = (owner >= 0) & (machines > 0)
    pairs = np.unique(owner[known] * len(machine_no) + machines[known])
    counts = np.bincount(pairs // len(machine_no), minlength=jobs).astype(np.float64)
    counts[counts == 0] = np.nan
    return counts


def _tags(path: Path, inst_id: TextColumn, options: ReadOptions) -> dict[str, TextColumn]:
    """Return group and workload by the job's `inst_id` (which is really a job id)."""
    tags = _read_table(path, "group_tag", Ledger(path, skip_bad_rows=options.skip_bad_rows))
    columns = {}
    for name in ("group", "workload"):
        by_id = dict(zip(tags.text("inst_id").tolist(), tags.text(name).tolist(), strict=True))
        columns[name] = np.array([by_id.get(job, "") for job in inst_id.tolist()], dtype=object)
    return columns
