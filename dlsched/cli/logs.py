"""`dlsched logs`: what a job wrote, byte by byte as it wrote it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dlsched.cli.connect import DaemonOption, InsecureOption, client
from dlsched.core.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dlsched.client.cluster import Client

__all__ = ["follow_to_the_end", "logs_command"]

_INTERRUPTED = 130


def logs_command(
    job: Annotated[str, typer.Argument(metavar="ID", help="7 or 7_3.")],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as it is written.")] = False,
    lines: Annotated[
        int, typer.Option("--lines", "-n", metavar="N", min=-1, help="The last N only; -1: all.")
    ] = -1,
    run: Annotated[
        int | None,
        typer.Option("--run", metavar="K", min=1, help="Of the K-th run. [default: last]"),
    ] = None,
    rank: Annotated[int, typer.Option("--rank", metavar="R", min=0, help="Of this rank.")] = 0,
    stderr: Annotated[bool, typer.Option("--stderr", help="The file of -e.")] = False,
    daemon: DaemonOption = None,
    insecure: InsecureOption = False,
) -> None:
    """Show what a job wrote, from any machine."""
    from dlsched.client.ids import job_name  # noqa: PLC0415

    name = job_name(job)
    if len(name.tasks) > 1:
        raise BadInput(f"{job}: name one element ({name.job}_{name.tasks[0]})")
    with client(daemon, insecure) as cluster:
        number = name.job if not name.tasks else _element(cluster, name.job, name.tasks[0])
        wanted: dict[str, Any] = {"run": run, "rank": rank, "error": stderr, "tail_lines": lines}
        chunks = (
            cluster.follow(number, on_lost=_say_lost, **wanted)
            if follow
            else cluster.logs(number, **wanted)
        )
        try:
            _pour(chunks)
        except KeyboardInterrupt:
            raise typer.Exit(_INTERRUPTED) from None


def follow_to_the_end(cluster: Client, job: int) -> None:
    """The output of a job from its first byte, for as long as it is written.

    That there is none to be had is told, and no reason to fail: the job itself goes on.
    """
    from dlsched.client.errors import Refused  # noqa: PLC0415

    try:
        _pour(cluster.follow(job, on_lost=_say_lost))
    except Refused as error:
        typer.echo(f"dlsched: {error}", err=True)
    except KeyboardInterrupt:
        typer.echo(f"dlsched: no longer following; job {job} goes on", err=True)
        raise typer.Exit(_INTERRUPTED) from None


def _say_lost(why: str) -> None:
    typer.echo(f"dlsched: {why}; trying again", err=True)


def _element(cluster: Client, array: int, task: int) -> int:
    """The id of an element, which its number in the array does not tell."""
    from dlsched.client.cluster import filter_of  # noqa: PLC0415
    from dlsched.client.errors import NotFound  # noqa: PLC0415
    from dlsched.client.ids import JobName  # noqa: PLC0415

    found = cluster.show(filter_of([JobName(job=array, tasks=(task,))]))
    if not found:
        raise NotFound(f"job {array}_{task}: not known")
    return found[0].job.job_id


def _pour(chunks: Iterable[bytes]) -> None:
    """The bytes as they are: the owner's own output, as `cat` would show it."""
    out = sys.stdout.buffer
    for chunk in chunks:
        out.write(chunk)
        out.flush()
