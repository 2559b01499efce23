"""`dlsched dags`: jobs that are graphs of tasks, under Carbyne and the rules beside it."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dlsched.cli.option_groups import option
from dlsched.core.errors import BadInput, plural

if TYPE_CHECKING:
    from simulate.dags.comparison import Result
    from simulate.dags.workload import Workload

SCHEMA = "dlsched.dags/1"


def dags_command(
    file: Annotated[
        Path, typer.Argument(metavar="WORKLOAD", help="A TOML or JSON file of jobs and stages.")
    ],
    workload: Annotated[
        str | None, option("--workload NAME", "Which one, where the file has several.")
    ] = None,
    discipline: Annotated[
        str,
        option("--discipline NAME,…", "carbyne, drf-cp, drf-tetris, srtf-cp, srtf-tetris, tetris."),
    ] = "carbyne,drf-cp,drf-tetris,srtf-cp,srtf-tetris,tetris",
    compat: Annotated[
        str, option("--compat NAME", "exact; or artifact2016, as the published simulator counts.")
    ] = "exact",
    altruism: Annotated[
        float, option("--altruism P", "The chance that a job leaves what it can, at each event.")
    ] = 1.0,
    seed: Annotated[int, option("--seed N", "Of these chances.")] = 0,
    jobs_out: Annotated[
        Path | None, option("--jobs-out FILE", "When each job ends under each discipline, CSV.")
    ] = None,
    as_json: Annotated[bool, option("--json", "One JSON object.")] = False,
) -> None:
    """Follow jobs that are graphs of tasks on one pool of resources, under several disciplines."""
    from simulate.dags.comparison import compare  # noqa: PLC0415
    from simulate.dags.workload_files import read_workload  # noqa: PLC0415

    names = [name.strip() for name in discipline.split(",") if name.strip()]
    if not names:
        raise BadInput("--discipline: names none")
    if not 0 <= altruism <= 1:
        raise BadInput(f"--altruism must be from 0 to 1, not {altruism:g}")
    if seed < 0:
        raise BadInput(f"--seed must be from 0 up, not {seed}")
    jobs = read_workload(file, workload)
    results = compare(jobs, names, compat=compat, altruism=altruism, seed=seed)
    if jobs_out is not None:
        _write(jobs_out, jobs, results)
    if as_json:
        figures = [result.figures() for result in results]
        told = {"schema": SCHEMA, "compat": compat, "results": figures}
        typer.echo(json.dumps(told, allow_nan=False))
        return
    for line in _table(results):
        typer.echo(line)


def _table(results: Sequence[Result]) -> list[str]:
    from dlsched.cli.replay.text_table import TextTable  # noqa: PLC0415

    table = TextTable()
    table.add("Discipline", [result.discipline for result in results], left=True)
    for title, name in (
        ("Mean JCT (s)", "mean_jct_s"),
        ("Median (s)", "median_jct_s"),
        ("95% (s)", "p95_jct_s"),
        ("Last end (s)", "last_end_s"),
    ):
        table.add(title, [f"{getattr(result, name):.6g}" for result in results])
    table.add("Fullest resource", [f"{result.fullest:.1%}" for result in results])
    return list(table.lines())


def _write(path: Path, workload: Workload, results: Sequence[Result]) -> None:
    from dlsched.cli.output.file_output import save  # noqa: PLC0415
    from simulate.csv_text import cell  # noqa: PLC0415

    rows: list[list[object]] = [["job_id", "arrival", *(result.discipline for result in results)]]
    for job in workload.jobs:
        ends = [float(result.ends[job.id]) for result in results]
        rows.append([job.id, float(job.arrival), *ends])
    save((f"{','.join(map(cell, row))}\n".encode() for row in rows), str(path))
    print(f"dlsched: {path}: {plural(len(rows) - 1, 'job')}", file=sys.stderr)
