"""`cancel`, `hold`, `release`, `requeue`, `suspend`, `resume`: on all that can be.

One line a failure; exit 1 if there was any.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from dlsched.cli.connect import DaemonOption, InsecureOption, client, report
from dlsched.core.errors import BadInput

__all__ = [
    "cancel_command",
    "hold_command",
    "release_command",
    "requeue_command",
    "resume_command",
    "suspend_command",
]

Ids = Annotated[list[str], typer.Argument(metavar="ID…", help="7, 7_3 or 7_[2-5].")]
MaybeIds = Annotated[list[str] | None, typer.Argument(metavar="[ID…]", help="7, 7_3 or 7_[2-5].")]
Why = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Kept with the job.")]


def cancel_command(
    jobs: MaybeIds = None,
    users: Annotated[
        list[str] | None, typer.Option("--user", "-u", metavar="NAME", help="Of these users.")
    ] = None,
    me: Annotated[bool, typer.Option("--me", help="All of one's own.")] = False,
    partitions: Annotated[
        list[str] | None, typer.Option("--partition", "-p", metavar="NAME", help="In these.")
    ] = None,
    vcs: Annotated[
        list[str] | None, typer.Option("--account", "--vc", "-A", metavar="NAME", help="Of these.")
    ] = None,
    states: Annotated[
        list[str] | None, typer.Option("--state", "-t", metavar="STATE", help="In this state.")
    ] = None,
    nodes: Annotated[
        list[str] | None, typer.Option("--nodelist", "-w", metavar="HOSTS", help="On these.")
    ] = None,
    names: Annotated[
        list[str] | None, typer.Option("--name", "-n", metavar="NAME", help="Called so.")
    ] = None,
    signal: Annotated[
        str | None,
        typer.Option("--signal", "-s", metavar="SIG", help="Send this and nothing else."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-Q", help="Print no count.")] = False,
    reason: Why = "",
    daemon: DaemonOption = None,
    insecure: InsecureOption = False,
) -> None:
    """End jobs by id, or one's own live jobs by filter; --signal sends and does not end them.

    A filter that meets several jobs asks first, on a terminal.
    """
    from dlsched.cli.job_filter import job_filter  # noqa: PLC0415
    from dlsched.client.submission.texts import check_text  # noqa: PLC0415
    from dlsched.client.submission.warning_signals import signal_number  # noqa: PLC0415

    by_filter = any((users, partitions, vcs, states, nodes, names))
    if not jobs and not by_filter and not me:
        raise BadInput("give job ids, a filter, or --me for all of your own jobs")
    number = signal_number("--signal", signal) if signal is not None else 0
    check_text("--reason", reason, empty=True)
    chosen = job_filter(
        jobs,
        users=users,
        partitions=partitions,
        vcs=vcs,
        states=states,
        nodes=nodes,
        called=names,
    )
    action = "signal" if number else "cancel"
    done = "signalled" if number else "cancelled"
    with client(daemon, insecure) as cluster:
        if not jobs and not yes and sys.stdin.isatty() and sys.stdout.isatty():
            count = len(cluster.act(action, chosen, signal=number, only_count=True).done)
            verb = "signal" if number else "cancel"
            if count > 1 and not typer.confirm(f"{verb} {count} jobs?"):
                raise typer.Abort
        report(cluster.act(action, chosen, signal=number, reason=reason), done, silent=quiet)


def hold_command(
    jobs: Ids, reason: Why = "", daemon: DaemonOption = None, insecure: InsecureOption = False
) -> None:
    """Keep pending jobs from starting until `dlsched release`."""
    _act("hold", "held", jobs, reason, daemon, insecure)


def release_command(
    jobs: Ids, daemon: DaemonOption = None, insecure: InsecureOption = False
) -> None:
    """Let held jobs start."""
    _act("release", "released", jobs, "", daemon, insecure)


def requeue_command(
    jobs: Ids, reason: Why = "", daemon: DaemonOption = None, insecure: InsecureOption = False
) -> None:
    """Stop running jobs, with their grace, and queue them again."""
    _act("requeue", "requeued", jobs, reason, daemon, insecure)


def suspend_command(
    jobs: Ids, reason: Why = "", daemon: DaemonOption = None, insecure: InsecureOption = False
) -> None:
    """Freeze running jobs where they are, until `dlsched resume`."""
    _act("suspend", "suspended", jobs, reason, daemon, insecure)


def resume_command(
    jobs: Ids, daemon: DaemonOption = None, insecure: InsecureOption = False
) -> None:
    """Let suspended jobs go on."""
    _act("resume", "resumed", jobs, "", daemon, insecure)


def _act(
    action: str, done: str, jobs: list[str], reason: str, daemon: str | None, insecure: bool
) -> None:
    from dlsched.cli.job_filter import ids_of, job_filter  # noqa: PLC0415
    from dlsched.client.submission.texts import check_text  # noqa: PLC0415

    check_text("--reason", reason, empty=True)
    ids_of(jobs)
    chosen = job_filter(jobs)
    with client(daemon, insecure) as cluster:
        report(cluster.act(action, chosen, reason=reason), done)
