"""Files of short tasks: CSV with a header, plain or gzip, one row a stage of a job.

Required are `job_id`, `arrival` [s], `tasks` and `runtime` [s, the mean]. `stage` is its name, `1`
where there is none; `parents` are names of stages with "|" between them. `cores` is 1 and `memory`
0 unless said. `spread` is that of the logarithm of run times, `expected` what the user believes
[s]; `tokens` counts for the whole job.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dlsched.core.errors import BadInput
from dlsched.core.graphs import in_order
from simulate.bounded_tables import ABOVE_0, FROM_0, WHOLE_FROM_1, read_rows, rows_of
from simulate.worlds.short_tasks.work import Job, Stage

REQUIRED = ("job_id", "arrival", "tasks", "runtime")
BOUNDS = {
    "arrival": FROM_0,
    "tasks": WHOLE_FROM_1,
    "runtime": ABOVE_0,
    "cores": ABOVE_0,
    "memory": FROM_0,
    "spread": FROM_0,
    "expected": ABOVE_0,
    "tokens": WHOLE_FROM_1,
}
DEFAULTS = {"stage": "1", "parents": "", "cores": 1.0, "memory": 0.0, "spread": 0.0}
MOST_TASKS = 2_000_000


def read_short_tasks(path: Path) -> list[Job]:
    """Read a file; the jobs come in the order of their arrival.

    Raises:
        BadInput: names the line: a field that is missing or unclear, a stage that stands twice,
            parents that are not there or form a circle, too many tasks.
    """
    table = read_rows(path, BOUNDS, required=REQUIRED, unique=("job_id", "stage"), nouns="tasks")
    if table.number("tasks").sum() > MOST_TASKS:
        raise BadInput(f"{path}: more than {MOST_TASKS} tasks")
    stages: dict[str, dict[str, Stage]] = {}
    first: dict[str, tuple[str, dict[str, Any]]] = {}
    for where, row in rows_of(table, expected=None, tokens=None, **DEFAULTS):
        job, name = row["job_id"] or "", row["stage"]
        mine = stages.setdefault(job, {})
        if name in mine:
            raise BadInput(f"{where}: stage {name} of job {job} is there twice")
        if row["arrival"] != first.setdefault(job, (where, row))[1]["arrival"]:
            raise BadInput(f"{where}: arrival differs from that of the job's first stage")
        mine[name] = Stage(
            name=name,
            tasks=int(row["tasks"]),
            runtime=row["runtime"],
            spread=row["spread"],
            expected=row["expected"] or row["runtime"],
            cores=row["cores"],
            memory=row["memory"],
            parents=tuple(part for part in row["parents"].split("|") if part),
        )
    for job, (where, _) in first.items():
        parents = {name: stage.parents for name, stage in stages[job].items()}
        in_order(f"{where}: job {job}", "stage", parents)
    jobs = [
        Job(
            id=job,
            arrival=row["arrival"],
            stages=tuple(stages[job].values()),
            tokens=None if row["tokens"] is None else int(row["tokens"]),
        )
        for job, (_, row) in first.items()
    ]
    return sorted(jobs, key=lambda job: job.arrival)
