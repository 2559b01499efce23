"""`dlsched short-tasks`: very many short tasks under several schedulers, as Apollo places them."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dlsched.cli.option_groups import option, typed
from dlsched.cli.replay.option_values import seeds as seeds_of
from dlsched.cli.replay.option_values import several
from dlsched.cli.worlds.frame import LARGEST, Figure, Output, report, within
from dlsched.core.errors import BadInput, shorten
from dlsched.record import Record, field_names

if TYPE_CHECKING:
    from simulate.worlds.short_tasks.options import Kind

FIGURES = (
    Figure("Job mean (s)", "mean_jct_s"),
    Figure("Job 95% (s)", "p95_jct_s"),
    Figure("Last end (s)", "makespan_s"),
    Figure("Wait mean (s)", "mean_wait_s"),
    Figure("Wait 99% (s)", "p99_wait_s"),
    Figure("Wait error (s)", "wait_error_s"),
    Figure("Use", "utilisation"),
    Figure("Wasted", "wasted"),
)
BOUNDS = {
    "--schedulers": ("schedulers", 1, LARGEST),
    "--tokens": ("tokens", 1, LARGEST),
    "--batch": ("batch", 1, LARGEST),
    "--publish": ("publish_s", 0.01, LARGEST),
    "--change": ("change", 0, math.inf),
    "--stale": ("stale_s", 0, math.inf),
    "--spread": ("spread", 0, LARGEST),
    "--penalty": ("penalty", 1, LARGEST),
    "--fetch": ("fetch_s", 0, LARGEST),
    "--stragglers": ("straggler_share", 0, 1),
    "--slow": ("straggler_factor", 1, LARGEST),
}
_KIND = re.compile(r"(\d{1,6})x(\d+(?:\.\d+)?)(?:x(\d+(?:\.\d+)?))?(?:@(\d*\.?\d+))?", re.ASCII)
_MOST_SERVERS = 20_000


class Given(Record):
    """Options of the world, under its own names, as they were typed."""

    schedulers: int = typed("--schedulers N", "How many; jobs go to them in turn.", default=2)
    tokens: int | None = typed("--tokens N", "Of each job; default: as many as there are cores.")
    publish_s: float = typed(
        "--publish SECONDS", "Between two reports of a server's waits.", default=5.0
    )
    change: float = typed(
        "--change SHARE", "A wait that changes by more is told at once; inf: never.", default=0.1
    )
    stale_s: float = typed("--stale SECONDS", "Older reports are not trusted.", default=60.0)
    spread: float = typed(
        "--spread R", "Adds a random wait up to R times the age of a report.", default=0.05
    )
    penalty: float = typed("--penalty K", "A failure costs K times its time.", default=2.0)
    fetch_s: float = typed("--fetch SECONDS", "To fetch inputs from another server.", default=0.0)
    batch: int = typed("--batch N", "Most tasks that are matched together.", default=64)
    straggler_share: float = typed("--stragglers SHARE", "Of copies that are slow.", default=0.0)
    straggler_factor: float = typed(
        "--slow FACTOR", "How many times as long they run.", default=5.0
    )
    opportunistic: bool = typed(
        "--opportunistic/--no-opportunistic", "Send tasks beyond the tokens, too.", default=True
    )
    corrections: bool = typed(
        "--corrections/--no-corrections", "Copy tasks that wait or run too long.", default=True
    )


def short_tasks_command(
    file: Annotated[Path, typer.Argument(metavar="TASKS", help="A CSV file, a row a stage.")],
    servers: Annotated[
        str, option("--servers SPEC", "COUNTxCORES[xMEMORY][@SUCCESS], joined by +: 24x8x32@0.99.")
    ],
    given: Given,
    output: Output,
    matching: Annotated[
        str, option("--matching NAME,…", "stable, greedy, best, random.")
    ] = "stable,greedy",
    seed: Annotated[str, option("--seed N[,N]", "Of all random numbers.")] = "1",
) -> None:
    """Follow very many short tasks that several schedulers place by estimates of their waits."""
    from simulate.worlds.short_tasks.comparison import compare_matchings  # noqa: PLC0415
    from simulate.worlds.short_tasks.files import read_short_tasks  # noqa: PLC0415
    from simulate.worlds.short_tasks.options import Options  # noqa: PLC0415

    for flag, (name, least, most) in BOUNDS.items():
        if (value := getattr(given, name)) is not None:
            within(flag, value, least, most)
    options = Options(**{name: getattr(given, name) for name in field_names(Given)})
    names, seeds, kinds = several("--matching", matching), seeds_of(seed), _kinds(servers)
    jobs = read_short_tasks(file)
    results = compare_matchings(jobs, kinds, names, options, seeds)
    about = {"job_id": (job.id for job in jobs), "arrival": (job.arrival for job in jobs)}
    report(results, FIGURES, output, about, schema="dlsched.short-tasks/1", noun="matching")


def _kinds(text: str) -> list[Kind]:
    from simulate.worlds.short_tasks.options import Kind  # noqa: PLC0415

    found = []
    for part in text.split("+"):
        match = _KIND.fullmatch(part.strip())
        if match is None:
            raise BadInput(f"--servers: {shorten(part)!r} is not COUNTxCORES[xMEMORY][@SUCCESS]")
        count, cores, memory, success = match.groups()
        kind = Kind(
            count=int(count),
            cores=float(cores),
            memory=float(memory or 0),
            success=float(success or 1),
        )
        if not (kind.count and kind.cores and 0 < kind.success <= 1):
            raise BadInput(
                f"--servers: {shorten(part)!r} needs servers, cores, and a success above 0 up to 1"
            )
        found.append(kind)
    if sum(kind.count for kind in found) > _MOST_SERVERS:
        raise BadInput(f"--servers: more than {_MOST_SERVERS}")
    return found
