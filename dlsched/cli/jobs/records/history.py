"""`dlsched history`: jobs that have ended, and a trace of them that `dlsched replay` reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from dlsched.cli.daemon_options import DaemonOptions
from dlsched.cli.jobs.job_filter import FilterOptions, job_filter
from dlsched.cli.option_groups import option
from dlsched.cli.output.output_options import ListingOptions
from dlsched.core.errors import BadInput, plural

if TYPE_CHECKING:
    from dlsched.client.job_records import Job

SCHEMA = "dlsched.history/1"
_WIDE = 130  # columns of a terminal on which a line of all usual columns fits


def history_command(
    *,
    jobs: Annotated[list[str] | None, option("--job -j ID", "Only these: 7, 7_3, 7_[2-5].")] = None,
    since: Annotated[
        str | None, option("--since -S TIME", "Ended since: 2h (ago), a day, a time. [default: 1d]")
    ] = None,
    until: Annotated[str | None, option("--until -E TIME", "Ended before.")] = None,
    options: FilterOptions,
    all_users: Annotated[bool, option("--all -a", "Of all users.")] = False,
    states: Annotated[list[str] | None, option("--state -s STATE", "FAILED or F, …")] = None,
    live_too: Annotated[bool, option("--live", "Also jobs that have not ended.")] = False,
    limit: Annotated[int, option("--limit -l N", "The last N; 0: all.", min=0)] = 0,
    export: Annotated[
        str | None, option("--export FILE", "Write a trace to replay: .csv or .csv.gz; -: stdout.")
    ] = None,
    output: ListingOptions,
    daemon: DaemonOptions,
) -> None:
    """List jobs that have ended, with the GPU time that they used; or export them as a trace."""
    from dlsched.cli.jobs.job_columns import COLUMNS, HISTORY, NARROW_HISTORY, rows_of  # noqa: PLC0415
    from dlsched.cli.output.json_output import job_object, print_json, print_json_lines  # noqa: PLC0415
    from dlsched.cli.output.listing import chosen_columns, described, print_listing  # noqa: PLC0415
    from dlsched.cli.output.terminal import terminal  # noqa: PLC0415
    from dlsched.cli.output.times import DAY_S, moment_or_ago  # noqa: PLC0415

    if output.about_columns is not None:
        typer.echo("\n".join(described(COLUMNS)))
        return
    output.check()
    if output.is_json and export is not None:
        raise BadInput("--json, --jsonl and --export: only one of them")
    if export is not None:
        from dlsched.cli.jobs.records.history_export import check_target  # noqa: PLC0415

        check_target(export)
    out = terminal(output.colour)
    usual = HISTORY if out.width is None or out.width >= _WIDE else NARROW_HISTORY
    chosen = chosen_columns(COLUMNS, output.columns or usual)
    everything = jobs or export is not None
    start = (
        moment_or_ago("--since", since) if since is not None else _ago(0.0 if everything else DAY_S)
    )
    end = moment_or_ago("--until", until) if until is not None else None
    wanted = job_filter(jobs, options, states=states, all_users=all_users)
    with daemon.client() as cluster:
        found = cluster.history(wanted, since=start, until=end, limit=limit, live_too=live_too)
        if export is not None:
            _export(found, export)
        elif output.as_lines:
            print_json_lines(job_object(job) for job in found)
        elif output.as_json:
            print_json(SCHEMA, jobs=(job_object(job) for job in found))
        else:
            rows = rows_of(list(found), predicted=False)
            print_listing(chosen, rows, out, header=not output.no_header)


def _export(found: Iterator[Job], export: str) -> None:
    from dlsched.cli.jobs.records.history_export import write_history  # noqa: PLC0415

    jobs, left_out = write_history(list(found), export)
    told = f"{plural(jobs, 'job')} written to {'stdout' if export == '-' else export}"
    typer.echo(f"dlsched: {told}{left_out and '; '}{left_out}", err=True)


def _ago(seconds: float) -> float | None:
    import time  # noqa: PLC0415

    return time.time() - seconds if seconds else None
