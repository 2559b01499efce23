"""Files of short tasks: CSV with a header, plain or gzip, one row a stage of a job.

Required are `job_id`, `arrival` [s], `tasks` and `runtime` [s, the mean]. `stage` is its name, `1`
where there is none; `parents` are names of stages with "|" between them. `cores` is 1 and `memory`
0 unless said. `spread` is that of the logarithm of run times, `expected` what the user believes
[s]; `tokens` counts for the whole job.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dlsched.core.errors import BadInput, not_known
from simulate.short_tasks.work import Job, Stage, in_order
from simulate.traces.ledger import Ledger
from simulate.traces.table import EMPTY, Table, read_table

REQUIRED = ("job_id", "arrival", "tasks", "runtime")
NUMBERS = ("arrival", "tasks", "runtime", "cores", "memory", "spread", "expected", "tokens")
MOST_TASKS = 2_000_000


def read_short_tasks(path: Path) -> list[Job]:
    """Read a file; the jobs come in the order of their arrival.

    Raises:
        BadInput: names the line: a field that is missing or unclear, a stage that stands twice,
            parents that are not there or form a circle, too many tasks.
    """
    ledger = Ledger(path, skip_bad_rows=False)
    table = read_table(
        path, ledger, numbers=NUMBERS, required=REQUIRED, unique=("job_id", "stage"), lost=EMPTY
    )
    _check_numbers(table)
    if table.number("tasks").sum() > MOST_TASKS:
        raise BadInput(f"{path}: more than {MOST_TASKS} tasks")
    columns = {name: table.number(name) for name in NUMBERS}
    ids, names, parents = table.text("job_id"), table.text("stage"), table.text("parents")
    stages: dict[str, list[Stage]] = {}
    first: dict[str, int] = {}
    for row in range(len(table)):
        where = f"{path}:{table.lines[row]}"
        values = {name: column.item(row) for name, column in columns.items()}
        name = names[row] or "1"
        mine = stages.setdefault(ids[row], [])
        first.setdefault(ids[row], row)
        if any(stage.name == name for stage in mine):
            raise BadInput(f"{where}: stage {name} of job {ids[row]} is there twice")
        if values["arrival"] != columns["arrival"].item(first[ids[row]]):
            raise BadInput(f"{where}: arrival differs from that of the job's first stage")
        expected = values["expected"]
        mine.append(
            Stage(
                name=name,
                tasks=int(values["tasks"]),
                runtime=values["runtime"],
                spread=_or(values["spread"], 0.0),
                expected=_or(expected, values["runtime"]),
                cores=_or(values["cores"], 1.0),
                memory=_or(values["memory"], 0.0),
                parents=tuple(part for part in parents[row].split("|") if part),
            )
        )
    for job, mine in stages.items():
        _check_parents(mine, f"{path}:{table.lines[first[job]]}: job {job}")
    jobs = [
        Job(
            id=job,
            arrival=columns["arrival"].item(row),
            stages=tuple(stages[job]),
            tokens=None if np.isnan(columns["tokens"][row]) else int(columns["tokens"][row]),
        )
        for job, row in first.items()
    ]
    return sorted(jobs, key=lambda job: job.arrival)


def _or(value: float, otherwise: float) -> float:
    return otherwise if np.isnan(value) else value


def _check_numbers(table: Table) -> None:
    whole = "a whole number of 1 or more"
    for name, right in (
        ("arrival", "a time of 0 s or later"),
        ("tasks", whole),
        ("runtime", "more than 0 s"),
        ("cores", "more than 0"),
        ("memory", "0 or more"),
        ("spread", "0 or more"),
        ("expected", "more than 0 s"),
        ("tokens", whole),
    ):
        values = table.number(name)
        if right is whole:
            wrong = ~((values >= 1) & (values == np.floor(values)))
        elif right.startswith("more"):
            wrong = ~(values > 0)
        else:
            wrong = ~(values >= 0)
        if name not in REQUIRED:
            wrong &= ~np.isnan(values)
        table.refuse(
            np.flatnonzero(wrong),
            f"{name} is unclear",
            lambda row, name=name, values=values, right=right: (  # type: ignore[misc]
                f"{name} is {values[row]:g}; it must be {right}"
            ),
        )


def _check_parents(stages: list[Stage], where: str) -> None:
    names = [stage.name for stage in stages]
    for stage in stages:
        for parent in stage.parents:
            if parent not in names:
                raise not_known(f"{where}: stage {stage.name}: parent", parent, sorted(names))
    ordered = {stage.name for stage in in_order(stages)}
    circle = [name for name in names if name not in ordered]
    if circle:
        raise BadInput(f"{where}: stages {', '.join(circle)} wait for each other")
