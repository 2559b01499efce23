"""`dlsched wait`: until jobs have ended; the exit code is theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from dlsched.cli.connect import DaemonOption, InsecureOption, client

if TYPE_CHECKING:
    from dlsched.client.cluster import Client
    from dlsched.client.views import Job
    from dlsched.rpc.v1.control_pb2 import Filter

__all__ = ["wait_command", "wait_for_all"]

_INTERRUPTED = 130  # as shells have it


def wait_command(
    jobs: Annotated[list[str], typer.Argument(metavar="ID…", help="7, 7_3 or 7_[2-5].")],
    daemon: DaemonOption = None,
    insecure: InsecureOption = False,
) -> None:
    """Wait for jobs; exit with the job's code, 128+signal, or 1 if it was cancelled.

    Of several jobs, the highest code counts. Ctrl-C leaves the jobs as they are.
    """
    from dlsched.cli.job_filter import ids_of, job_filter  # noqa: PLC0415

    ids_of(jobs)
    chosen = job_filter(jobs)
    with client(daemon, insecure) as cluster:
        raise typer.Exit(wait_for_all(cluster, chosen))


def wait_for_all(cluster: Client, chosen: Filter) -> int:
    """Wait, print a line a job on stderr as it ends, and return the highest exit code."""
    code = 0
    try:
        for job in cluster.wait(chosen, on_lost=_say_lost):
            typer.echo(f"dlsched: {ended_line(job)}", err=True)
            code = max(code, job.exit_status)
    except KeyboardInterrupt:
        typer.echo("dlsched: no longer waiting; the jobs go on", err=True)
        return _INTERRUPTED
    return code


def ended_line(job: Job) -> str:
    """How a job ended: `job 7: FAILED 3:0 after 1:41 (reason)`."""
    from dlsched.cli.job_columns import exit_text  # noqa: PLC0415
    from dlsched.cli.terminal import shown  # noqa: PLC0415
    from dlsched.client.submission.durations import duration_text  # noqa: PLC0415

    text = f"job {job.shown_id}: {job.state}"
    if job.cancelled_by:
        text += f" by {job.cancelled_by}"
    if job.exit_code is not None:
        text += f" {exit_text(job)}"
    if job.run_s is not None:
        text += f" after {duration_text(job.run_s)}"
    if job.reason:
        text += f" ({job.reason})"
    return shown(text)


def _say_lost(why: str) -> None:
    typer.echo(f"dlsched: {why}; trying again", err=True)
