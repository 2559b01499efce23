"""`dlsched dags`: jobs that are graphs of tasks, under Carbyne and the rules beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dlsched.cli.option_groups import option
from dlsched.cli.replay.option_values import seeds as seeds_of
from dlsched.cli.replay.option_values import several
from dlsched.cli.worlds.frame import Figure, Output, report, within

FIGURES = (
    Figure("Mean JCT (s)", "mean_jct_s", ".6g"),
    Figure("Median (s)", "median_jct_s", ".6g"),
    Figure("95% (s)", "p95_jct_s", ".6g"),
    Figure("Last end (s)", "last_end_s", ".6g"),
    Figure("Fullest resource", "fullest", ".1%"),
)


def dags_command(
    file: Annotated[
        Path, typer.Argument(metavar="WORKLOAD", help="A TOML or JSON file of jobs and stages.")
    ],
    output: Output,
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
    seed: Annotated[str, option("--seed N[,N]", "Of these chances.")] = "0",
) -> None:
    """Follow jobs that are graphs of tasks on one pool of resources, under several disciplines."""
    from simulate.worlds.dags.comparison import compare  # noqa: PLC0415
    from simulate.worlds.dags.workload_files import read_workload  # noqa: PLC0415

    within("--altruism", altruism, 0, 1)
    names, seeds = several("--discipline", discipline), seeds_of(seed)
    jobs = read_workload(file, workload)
    results = compare(jobs, names, compat=compat, altruism=altruism, seeds=seeds)
    about = {
        "job_id": (job.id for job in jobs.jobs),
        "arrival": (float(job.arrival) for job in jobs.jobs),
    }
    told = {"compat": compat}
    report(results, FIGURES, output, about, schema="dlsched.dags/1", told=told)
