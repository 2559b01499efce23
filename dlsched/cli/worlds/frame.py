"""What the commands of the small worlds share: their lists, bounds, tables and files."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from dlsched.cli.option_groups import typed
from dlsched.core.errors import BadInput, plural
from dlsched.record import Record

if TYPE_CHECKING:
    from simulate.worlds.results import Result

LARGEST = sys.float_info.max


class Output(Record):
    """Where results go."""

    jobs_out: Path | None = typed("--jobs-out FILE", "When each job ends under each of them, CSV.")
    as_json: bool = typed("--json", "One JSON object.", default=False)


class Figure(NamedTuple):
    """A column of the table: its title, the figure's name, and how a value is written."""

    title: str
    key: str
    form: str = ".4g"


def within(
    flag: str, value: float, least: float, most: float = LARGEST, *, open_: bool = False
) -> None:
    """Refuse a number that is out of bounds, or none.

    Args:
        flag: the option.
        value: as it was typed.
        least: the lower bound; without `open_` it may be the value.
        most: the upper bound; without it, an endless value is refused.
        open_: must the value lie above the lower bound?

    Raises:
        BadInput: it is not within them.
    """
    below = value <= least if open_ else value < least
    if math.isnan(value) or below or value > most:
        low = f"above {least:g}" if open_ else f"at least {least:g}"
        high = "" if most >= LARGEST else f" and at most {most:,.12g}"
        raise BadInput(f"{flag} must be {low}{high}, not {value:g}")


def report(
    results: Sequence[Result],
    figures: Iterable[Figure],
    output: Output,
    about: Mapping[str, Iterable[object]],
    *,
    schema: str,
    noun: str = "discipline",
    told: Mapping[str, object] | None = None,
    prefix: str = "",
) -> None:
    """Print a table with a row for each discipline, or all figures as one JSON object.

    Of several seeds, the table has means with 95 % intervals, and the object one entry for each.

    Args:
        results: of all disciplines and seeds.
        figures: of the table.
        output: whether the object is printed, and where the ends of jobs are written.
        about: columns about the jobs for this file; the first has the keys of `Result.ends`.
        schema: of the object.
        noun: what the names of the results are names of.
        told: what the object says beside the results.
        prefix: of the disciplines' columns in the file.

    Raises:
        DlschedError: the file cannot be written.
    """
    if output.jobs_out is not None:
        rows = _rows_of_ends(about, results, prefix)
        write_rows(output.jobs_out, rows, plural(len(rows) - 1, "row"))
    if not output.as_json:
        print_table(results, figures, noun)
        return
    seeds = dict.fromkeys(each.seed for each in results)
    entries = [
        {noun: each.discipline}
        | ({"seed": each.seed} if len(seeds) > 1 else {})
        | dict(each.figures)
        for each in results
    ]
    whole = {"schema": schema} | dict(told or {}) | {"results": entries}
    typer.echo(json.dumps(whole, allow_nan=False))


def print_table(results: Sequence[Result], figures: Iterable[Figure], noun: str) -> None:
    """Print a table with a row for each discipline: figures, or their means over seeds."""
    from dlsched.cli.replay.text_table import TextTable  # noqa: PLC0415

    runs: dict[str, list[Mapping[str, Any]]] = {}
    for each in results:
        runs.setdefault(each.discipline, []).append(each.figures)
    table = TextTable()
    table.add(noun.capitalize(), list(runs), left=True)
    for title, key, form in figures:
        table.add(title, [_cell([each[key] for each in found], form) for found in runs.values()])
    for line in table.lines():
        typer.echo(line)


def _cell(values: Sequence[float | str | None], form: str) -> str:
    """The mean of the seeds with its interval, or their words; "-" where one is not known."""
    if words := [value for value in values if isinstance(value, str)]:
        return ", ".join(dict.fromkeys(words))
    from simulate.report.intervals import estimate  # noqa: PLC0415

    found = estimate({seed: math.nan if v is None else float(v) for seed, v in enumerate(values)})
    if math.isnan(found.mean):
        return "-"
    said = f"{found.mean:{form}}"
    return said if math.isnan(found.half_width) else f"{said} ± {found.half_width:{form}}"


def _rows_of_ends(
    about: Mapping[str, Iterable[object]], results: Sequence[Result], prefix: str
) -> list[Sequence[object]]:
    """A row for each job; of several seeds, each has its rows, and a first column `seed`."""
    by_seed: dict[int, list[Result]] = {}
    for each in results:
        by_seed.setdefault(each.seed, []).append(each)
    several, columns = len(by_seed) > 1, [list(column) for column in about.values()]
    names = [f"{prefix}{each.discipline}" for each in next(iter(by_seed.values()), [])]
    rows: list[Sequence[object]] = [[*(["seed"] if several else []), *about, *names]]
    for seed, mine in by_seed.items():
        for job, *more in zip(*columns, strict=True):
            ends = (None if (end := each.ends[job]) is None else float(end) for each in mine)
            rows.append([*([seed] if several else []), job, *more, *ends])
    return rows


def write_rows(path: Path, rows: Iterable[Sequence[object]], what: str) -> None:
    """Write a CSV file, and say what is in it; no text in it is a formula.

    Raises:
        DlschedError: it cannot be written.
    """
    from dlsched.cli.output.file_output import plain_cell  # noqa: PLC0415
    from simulate.csv_text import cell  # noqa: PLC0415

    lines = (",".join(cell(plain_cell(value)) for value in row) + "\n" for row in rows)
    write_text(path, lines, what)


def write_text(path: Path, lines: Iterable[str], what: str) -> None:
    """Write a file, and say what is in it.

    Raises:
        DlschedError: it cannot be written.
    """
    from dlsched.cli.output.file_output import save  # noqa: PLC0415

    save(map(str.encode, lines), str(path))
    print(f"dlsched: {path}: {what}", file=sys.stderr)
