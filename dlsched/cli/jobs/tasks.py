"""`dlsched tasks`: how the short tasks of a job stand."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dlsched.cli.daemon_options import DaemonOptions
from dlsched.cli.option_groups import option
from dlsched.cli.output.output_options import JsonOptions
from dlsched.core.errors import BadInput

if TYPE_CHECKING:
    from dlsched.client.daemon_client import Client
    from dlsched.rpc.v1.control_pb2 import TasksReply, TaskView

SCHEMA = "dlsched.tasks/1"
_SHOWN = 20  # failed tasks in a listing that does not ask for all


def tasks_command(
    job: Annotated[str, typer.Argument(metavar="ID", help="The job: 11160.")],
    every: Annotated[bool, option("--all", "All tasks, not only those that have failed.")] = False,
    as_csv: Annotated[
        bool, option("--csv", "A table of all tasks, to be read by programs.")
    ] = False,
    *,
    output: JsonOptions,
    daemon: DaemonOptions,
) -> None:
    """Count the short tasks of a job, and list those that have failed."""
    from dlsched.cli.output.json_output import print_json, print_json_lines  # noqa: PLC0415
    from dlsched.cli.output.listing import print_listing  # noqa: PLC0415
    from dlsched.cli.output.terminal import terminal  # noqa: PLC0415
    from dlsched.client.job_ids import job_name  # noqa: PLC0415

    if sum((output.as_json, output.as_lines, as_csv)) > 1:
        raise BadInput("--json, --jsonl and --csv: only one of them")
    out = terminal(output.colour)
    number = job_name(job).job
    with daemon.client() as cluster:
        failed_only = not (every or as_csv)
        found = cluster.short_tasks(number, only_failed=failed_only)
        rest = _pages(cluster, number, found, failed_only)
        if as_csv:
            _print_csv(rest)
        elif output.as_lines:
            print_json_lines(map(_object, rest))
        elif output.as_json:
            print_json(SCHEMA, **_counts(found), tasks=map(_object, rest))
        else:
            counts = _counts(found)
            mean = "" if counts["mean_s"] is None else f", {counts['mean_s']:.3g} s each"
            typer.echo(
                f"{found.total} tasks: {found.done} done, {found.failed} failed, "
                f"{found.running} running, {counts['waiting']} waiting{mean}"
            )
            shown = list(rest) if every else list(found.tasks)[:_SHOWN]
            if shown:
                print_listing(_columns(), shown, out)
            if failed_only and found.failed > len(shown):
                typer.echo(f"… and {found.failed - len(shown)} more that failed (--csv)")


def _pages(cluster: Client, job: int, first: TasksReply, only_failed: bool) -> Iterator[TaskView]:
    """All tasks, a page after the other."""
    page = first
    while True:
        yield from page.tasks
        if not page.more:
            return
        after = page.tasks[-1].number
        page = cluster.short_tasks(job, after=after, only_failed=only_failed)


def _counts(found: TasksReply) -> dict[str, Any]:
    counts = {name: getattr(found, name) for name in ("job", "name", "total", "running", "done")}
    waiting = found.total - found.running - found.done - found.failed
    mean = found.mean_s if found.HasField("mean_s") else None
    return {**counts, "failed": found.failed, "waiting": waiting, "mean_s": mean}


def _object(task: TaskView) -> dict[str, Any]:
    names = ("number", "state", "code", "signal", "node", "ran_s", "line")
    found = {name: getattr(task, name) for name in names}
    if task.state not in ("done", "failed"):
        found |= dict.fromkeys(("code", "signal", "ran_s"))
    return found | {"node": task.node or None}


def _columns() -> list[Any]:
    from dlsched.cli.output.listing import Column  # noqa: PLC0415

    def how(task: TaskView) -> str:
        if task.signal:
            return f"signal {task.signal}"
        return f"exit {task.code}" if task.state in ("done", "failed") else "-"

    return [
        Column("task", "TASK", "", lambda task: str(task.number), right=True),
        Column("state", "STATE", "", lambda task: task.state),
        Column("end", "END", "", how),
        Column("node", "NODE", "", lambda task: task.node or "-"),
        Column("line", "LINE", "", lambda task: task.line, least=8),
    ]


def _print_csv(tasks: Iterator[TaskView]) -> None:
    import csv  # noqa: PLC0415

    from dlsched.cli.output.file_output import plain_cell  # noqa: PLC0415

    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow(["task", "state", "code", "signal", "node", "ran_s", "line"])
    for task in tasks:
        table.writerow("" if v is None else plain_cell(v) for v in _object(task).values())
