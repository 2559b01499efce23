"""`dlsched history`: jobs that have ended, and a trace of them that `dlsched replay` reads."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from dlsched.cli.connect import (
    AsJson,
    AsJsonLines,
    ColourOption,
    DaemonOption,
    InsecureOption,
    client,
)
from dlsched.core.errors import BadInput

if TYPE_CHECKING:
    from dlsched.client.views import Job

__all__ = ["history_command"]

SCHEMA = "dlsched.history/1"


def history_command(
    jobs: Annotated[
        list[str] | None, typer.Option("--job", "-j", metavar="ID", help="These: 7, 7_3, 7_[2-5].")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            "-S",
            metavar="TIME",
            help="Ended since: 2h (ago), a day, a time. [default: 1d]",
        ),
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", "-E", metavar="TIME", help="Ended before.")
    ] = None,
    users: Annotated[
        list[str] | None, typer.Option("--user", "-u", metavar="NAME", help="Of these users.")
    ] = None,
    all_users: Annotated[bool, typer.Option("--all", "-a", help="Of everybody.")] = False,
    partitions: Annotated[
        list[str] | None, typer.Option("--partition", "-p", metavar="NAME", help="In these.")
    ] = None,
    vcs: Annotated[
        list[str] | None, typer.Option("--account", "--vc", "-A", metavar="NAME", help="Of these.")
    ] = None,
    states: Annotated[
        list[str] | None, typer.Option("--state", "-s", metavar="STATE", help="FAILED or F, …")
    ] = None,
    nodes: Annotated[
        list[str] | None, typer.Option("--nodelist", "-w", metavar="HOSTS", help="On these.")
    ] = None,
    names: Annotated[
        list[str] | None, typer.Option("--name", "-n", metavar="NAME", help="Called so.")
    ] = None,
    live_too: Annotated[
        bool, typer.Option("--live", help="Those that have not ended as well.")
    ] = False,
    limit: Annotated[
        int, typer.Option("--limit", "-l", metavar="N", min=0, help="The latest N; 0: all.")
    ] = 0,
    columns: Annotated[
        str | None, typer.Option("--format", "-o", metavar="NAME,…", help="Columns by name.")
    ] = None,
    about_columns: Annotated[
        str | None, typer.Option("--columns", metavar="help", help="List the columns and exit.")
    ] = None,
    export: Annotated[
        str | None,
        typer.Option(
            "--export", metavar="FILE", help="A trace to replay: .csv or .csv.gz; -: stdout."
        ),
    ] = None,
    no_header: Annotated[bool, typer.Option("--noheader", "-h", help="No titles.")] = False,
    as_json: AsJson = False,
    as_lines: AsJsonLines = False,
    colour: ColourOption = "auto",
    daemon: DaemonOption = None,
    insecure: InsecureOption = False,
) -> None:
    """List jobs that have ended, with what they cost; or export them as a trace."""
    from dlsched.cli.job_columns import COLUMNS, HISTORY, rows_of  # noqa: PLC0415
    from dlsched.cli.job_filter import job_filter  # noqa: PLC0415
    from dlsched.cli.json_output import object_of, print_json, print_json_lines  # noqa: PLC0415
    from dlsched.cli.listing import chosen_columns, described, listing  # noqa: PLC0415
    from dlsched.cli.since import DAY_S, moment_or_ago  # noqa: PLC0415
    from dlsched.cli.terminal import terminal  # noqa: PLC0415

    if about_columns is not None:
        typer.echo("\n".join(described(COLUMNS)))
        return
    if columns is not None and (as_json or as_lines):
        raise BadInput("-o: JSON has all fields; leave it out")
    if sum((as_json, as_lines, export is not None)) > 1:
        raise BadInput("--json, --jsonl and --export: only one of them")
    if export is not None:
        from dlsched.cli.trace_export import check_target  # noqa: PLC0415

        check_target(export)
    chosen = chosen_columns(COLUMNS, columns or HISTORY)
    out = terminal(colour)
    everything = jobs or export is not None
    start = (
        moment_or_ago("--since", since) if since is not None else _ago(0.0 if everything else DAY_S)
    )
    end = moment_or_ago("--until", until) if until is not None else None
    wanted = job_filter(
        jobs,
        users=users,
        partitions=partitions,
        vcs=vcs,
        states=states,
        nodes=nodes,
        called=names,
        all_users=all_users,
    )
    with client(daemon, insecure) as cluster:
        found = cluster.history(wanted, since=start, until=end, limit=limit, live_too=live_too)
        if export is not None:
            _export(found, export)
        elif as_lines:
            print_json_lines(object_of(job) for job in found)
        elif as_json:
            print_json(SCHEMA, jobs=(object_of(job) for job in found))
        else:
            rows = rows_of(list(found), predicted=False)
            for line in listing(chosen, rows, out, header=not no_header):
                sys.stdout.write(line + "\n")


def _export(found: Iterator[Job], export: str) -> None:
    from dlsched.cli.trace_export import write_history  # noqa: PLC0415

    told = write_history(list(found), export)
    typer.echo(f"dlsched: {told}", err=True)


def _ago(seconds: float) -> float | None:
    import time  # noqa: PLC0415

    return time.time() - seconds if seconds else None
