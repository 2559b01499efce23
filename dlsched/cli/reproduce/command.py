"""`dlsched reproduce`: the list, the runs, and the page that is made from them."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from dlsched.cli.option_groups import option
from dlsched.cli.output.file_output import check_writable, save
from dlsched.cli.replay.text_table import TextTable
from dlsched.cli.reproduce.catalogue import DATA, Reproduction, catalogue, chosen
from dlsched.cli.reproduce.comparing import Compared, reproduce
from dlsched.cli.reproduce.page import named, page_of, shown
from dlsched.core.errors import BadInput

SCHEMA = "dlsched.reproduce/1"
Found = tuple[Reproduction, list[Compared]]


def reproduce_command(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]…", help="Names from --list, or names of systems."),
    ] = None,
    listed: Annotated[
        bool, option("--list", "What can be reproduced, and where it was published.")
    ] = False,
    everything: Annotated[bool, option("--all", "All whose published data is there.")] = False,
    data: Annotated[
        Path | None, option("--data DIR", "The published data; default: $DLSCHED_DATA.")
    ] = None,
    page: Annotated[
        Path | None, option("--page FILE", "Write the table as a Markdown page.")
    ] = None,
    as_json: Annotated[bool, option("--json", "One JSON object.")] = False,
) -> None:
    """Run what was published, and put each published figure beside ours.

    Ends with 1 if a figure differs and the difference is not explained.
    """
    folder = data or (Path(given) if (given := os.environ.get("DLSCHED_DATA")) else None)
    if data is not None and not data.is_dir():
        raise BadInput(f"--data: no folder {data}")
    if listed:
        _list(catalogue().values(), folder, as_json=as_json)
        return
    if bool(names) == everything:
        raise BadInput("name what to reproduce, or --all; --list shows what there is")
    wanted = list(catalogue().values()) if everything else chosen(names or ())
    if page is not None:
        check_writable("--page", page)
    found: list[Found] = []
    for each in wanted:
        lost = each.missing(folder)
        if lost and not everything:
            raise BadInput(f"{each.name}: {lost}")
        if lost:
            print(f"{each.name}: not run: {lost}", file=sys.stderr)
            continue
        print(f"{each.name}: {each.cpu_s:g} s or so", file=sys.stderr)
        found.append((each, reproduce(each, folder)))
    if page is not None:
        save([page_of(found).encode()], str(page))
    if as_json:
        rows = [{**_as_json(each), "figures": [row.told() for row in rows]} for each, rows in found]
        typer.echo(json.dumps({"schema": SCHEMA, "reproductions": rows}, allow_nan=False))
    else:
        for each, compared in found:
            _show(each, compared, folder)
    if any(row.verdict == "differs" for _, rows in found for row in rows):
        raise SystemExit(1)


def _as_json(each: Reproduction) -> dict[str, object]:
    return {
        "name": each.name,
        "system": each.system,
        "shows": each.shows,
        "source": each.source,
        "commands": each.commands,
    }


def _list(known: Iterable[Reproduction], folder: Path | None, *, as_json: bool) -> None:
    all_of_them = list(known)
    if as_json:
        rows = [{**_as_json(each), "missing": each.missing(folder) or None} for each in all_of_them]
        typer.echo(json.dumps({"schema": SCHEMA, "reproductions": rows}, allow_nan=False))
        return
    table = TextTable()
    table.add("Name", [each.name for each in all_of_them], left=True)
    table.add("System", [each.system for each in all_of_them], left=True)
    table.add("Source", [each.source for each in all_of_them], left=True)
    table.add("CPU (s)", [f"{each.cpu_s:g}" for each in all_of_them])
    table.add("Data", ["no" if each.missing(folder) else "yes" for each in all_of_them], left=True)
    table.add("What it shows", [each.shows for each in all_of_them], left=True)
    for line in table.lines():  # the last column may be long: a terminal wraps it
        typer.echo(line)


def _show(each: Reproduction, compared: list[Compared], folder: Path | None) -> None:
    typer.echo(f"\n{each.name}: {each.shows} ({each.source})")
    for line in each.commands:
        typer.echo(f"$ {line.replace(DATA, str(folder))}")
    table = TextTable(names=2)
    table.add("Run", [row.label for row in compared], left=True)
    table.add("Figure", [named(row) for row in compared], left=True)
    table.add("Published", [row.figure.published for row in compared])
    table.add("Ours", [shown(row) for row in compared])
    table.add("Off (%)", [f"{round(100 * row.off, 3) + 0.0:+.3f}" for row in compared])
    table.add("Asked", [row.condition for row in compared], left=True)
    table.add("Verdict", [row.verdict for row in compared], left=True)
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for line in table.lines(width=width):
        typer.echo(line)
    for reason in dict.fromkeys(row.figure.because for row in compared if row.figure.because):
        typer.echo(f"why: {reason}")
