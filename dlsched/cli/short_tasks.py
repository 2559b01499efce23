"""`dlsched short-tasks`: very many short tasks under several schedulers, as Apollo places them."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dlsched.cli.option_groups import option, typed
from dlsched.core.errors import BadInput, DlschedError, shorten
from dlsched.record import Record

if TYPE_CHECKING:
    from simulate.short_tasks.comparison import Result
    from simulate.short_tasks.options import Kind, Options

SCHEMA = "dlsched.short-tasks/1"
_KIND = re.compile(r"(\d{1,6})x(\d+(?:\.\d+)?)(?:x(\d+(?:\.\d+)?))?(?:@(\d*\.?\d+))?", re.ASCII)
_MOST_SERVERS = 20_000


class Given(Record):
    """Options as they were typed."""

    schedulers: int = typed("--schedulers N", "How many; jobs go to them in turn.", default=2)
    tokens: int | None = typed("--tokens N", "Of each job; default: as many as there are cores.")
    publish: float = typed(
        "--publish SECONDS", "Between two reports of a server's waits.", default=5.0
    )
    change: float = typed(
        "--change SHARE", "A wait that changes by more is told at once; inf: never.", default=0.1
    )
    stale: float = typed("--stale SECONDS", "Older reports are not trusted.", default=60.0)
    spread: float = typed(
        "--spread R", "Adds a random wait up to R times the age of a report.", default=0.05
    )
    penalty: float = typed("--penalty K", "A failure costs K times its time.", default=2.0)
    fetch: float = typed("--fetch SECONDS", "To fetch inputs from another server.", default=0.0)
    batch: int = typed("--batch N", "Most tasks that are matched together.", default=64)
    stragglers: float = typed("--stragglers SHARE", "Of copies that are slow.", default=0.0)
    slow: float = typed("--slow FACTOR", "How many times as long they run.", default=5.0)
    opportunistic: bool = typed(
        "--opportunistic/--no-opportunistic", "Send tasks beyond the tokens, too.", default=True
    )
    corrections: bool = typed(
        "--corrections/--no-corrections", "Copy tasks that wait or run too long.", default=True
    )
    seed: int = typed("--seed N", "Of all random numbers.", default=1)


def short_tasks_command(
    file: Annotated[Path, typer.Argument(metavar="TASKS", help="A CSV file, a row a stage.")],
    servers: Annotated[
        str, option("--servers SPEC", "COUNTxCORES[xMEMORY][@SUCCESS], joined by +: 24x8x32@0.99.")
    ],
    given: Given,
    matching: Annotated[
        str, option("--matching NAME,…", "stable, greedy, best, random.")
    ] = "stable,greedy",
    jobs_out: Annotated[
        Path | None, option("--jobs-out FILE", "When each job ends under each matching, CSV.")
    ] = None,
    as_json: Annotated[bool, option("--json", "One JSON object.")] = False,
) -> None:
    """Follow very many short tasks that several schedulers place by estimates of their waits."""
    from simulate.short_tasks.comparison import compare_matchings  # noqa: PLC0415
    from simulate.short_tasks.files import read_short_tasks  # noqa: PLC0415

    names = [name.strip() for name in matching.split(",") if name.strip()]
    options, kinds = _options(given), _kinds(servers)
    jobs = read_short_tasks(file)
    if not jobs:
        raise BadInput(f"{file}: has no tasks")
    results = compare_matchings(jobs, kinds, names, options)
    if jobs_out is not None:
        _write(jobs_out, results)
    if as_json:
        told = {"schema": SCHEMA, "results": [result.figures() for result in results]}
        typer.echo(json.dumps(told, allow_nan=False))
        return
    for line in _table(results):
        typer.echo(line)


def _options(given: Given) -> Options:
    from simulate.short_tasks.options import Options  # noqa: PLC0415

    for flag, value, least in (
        ("--schedulers", given.schedulers, 1),
        ("--tokens", 1 if given.tokens is None else given.tokens, 1),
        ("--batch", given.batch, 1),
        ("--seed", given.seed, 0),
        ("--change", given.change, 0),
        ("--stale", given.stale, 0),
        ("--spread", given.spread, 0),
        ("--penalty", given.penalty, 1),
        ("--fetch", given.fetch, 0),
        ("--slow", given.slow, 1),
    ):
        endless = math.isinf(value) and flag not in ("--change", "--stale")
        if not value >= least or endless:
            raise BadInput(f"{flag} must be {least} or more, not {value:g}")
    if not 0.01 <= given.publish < math.inf:
        raise BadInput(f"--publish must be 0.01 s or more, not {given.publish:g}")
    if not 0 <= given.stragglers <= 1:
        raise BadInput(f"--stragglers must be from 0 to 1, not {given.stragglers:g}")
    return Options(
        schedulers=given.schedulers,
        tokens=given.tokens,
        publish_s=given.publish,
        change=given.change,
        stale_s=given.stale,
        spread=given.spread,
        penalty=given.penalty,
        fetch_s=given.fetch,
        batch=given.batch,
        opportunistic=given.opportunistic,
        corrections=given.corrections,
        straggler_share=given.stragglers,
        straggler_factor=given.slow,
        seed=given.seed,
    )


def _kinds(text: str) -> list[Kind]:
    from simulate.short_tasks.options import Kind  # noqa: PLC0415

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


def _table(results: Sequence[Result]) -> list[str]:
    from dlsched.cli.replay.text_table import TextTable  # noqa: PLC0415

    def shown(value: Any) -> str:
        return "-" if value is None else f"{value:.4g}"

    table = TextTable()
    table.add("Matching", [result.matching for result in results], left=True)
    for title, name in (
        ("Job mean (s)", "mean_jct_s"),
        ("Job 95% (s)", "p95_jct_s"),
        ("Last end (s)", "makespan_s"),
        ("Wait mean (s)", "mean_wait_s"),
        ("Wait 99% (s)", "p99_wait_s"),
        ("Wait error (s)", "wait_error_s"),
        ("Use", "utilisation"),
        ("Wasted", "wasted"),
    ):
        table.add(title, [shown(getattr(result, name)) for result in results])
    return list(table.lines())


def _write(path: Path, results: Sequence[Result]) -> None:
    from dlsched.system.output_files import appearing_whole  # noqa: PLC0415

    lines = [",".join(["job_id", "arrival", *(result.matching for result in results)])]
    for states in zip(*(result.jobs for result in results), strict=True):
        ends = ["" if s.ended_at is None else f"{s.ended_at:.12g}" for s in states]
        lines.append(",".join([states[0].job.id, f"{states[0].job.arrival:.12g}", *ends]))
    try:
        with appearing_whole(path) as part:
            part.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")
    except OSError as error:
        raise DlschedError(f"{path}: can't be written ({error.strerror or error})") from None
    print(f"dlsched: {path}: {len(lines) - 1} jobs", file=sys.stderr)
