"""`dlsched attach`: a shell, or a command, inside a running job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from dlsched.cli.daemon_options import DaemonOptions
from dlsched.cli.jobs.job_filter import IdArgument
from dlsched.cli.option_groups import option

if TYPE_CHECKING:
    from dlsched.client.attaching.attachment import AttachEnded, Told

FAILED = 1


def attach_command(
    job: IdArgument,
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- COMMAND [ARG]…]", help="In place of a shell."),
    ] = None,
    node: Annotated[
        str, option("--node NAME", "On this node of the job. [default: its first]")
    ] = "",
    fresh: Annotated[
        bool, option("--new", "A new shell, even if there is one to come back to.")
    ] = False,
    *,
    daemon: DaemonOptions,
) -> None:
    """Open a shell inside a running job, with its GPUs and its environment.

    A shell goes on when the connection is lost, or with the keys ~. at the beginning of a line; the
    next attach comes back to it. The exit code is that of the shell or the command.
    """
    from dlsched.cli.jobs.logs import one_job  # noqa: PLC0415

    with daemon.client() as cluster:
        number = one_job(cluster, job)
        attachment = cluster.attachment(
            number, argv=words or (), node=node.lower(), fresh=fresh, told=told("dlsched")
        )
        raise SystemExit(exit_code(attachment.run(), number))


def told(name: str) -> Told:
    """What a user reads of an attachment, after the name of the program."""
    from dlsched.client.attaching.attachment import Told  # noqa: PLC0415

    return Told(
        notice=lambda line: say(name, line),
        lost=lambda why: say(name, f"{why}; trying again"),
        again=lambda: say(name, "attached again"),
    )


def say(name: str, line: str) -> None:
    """Print a line on stderr, also while the terminal passes every key on."""
    from dlsched.cli.output.terminal import shown  # noqa: PLC0415
    from dlsched.client.attaching.local_terminal import is_raw  # noqa: PLC0415

    edge = "\r" if is_raw(2) else ""
    typer.echo(f"{edge}{name}: {shown(line)}{edge}", err=True)


def exit_code(end: AttachEnded, job: int, name: str = "dlsched") -> int:
    """Say how an attachment ended, where that is not plain; return the exit code."""
    if end.detached:
        say(name, f"detached; dlsched attach {job} comes back to it")
        return 0
    if end.elsewhere:
        say(name, "another client has the shell now")
        return FAILED
    if end.why and not end.is_told:
        say(name, end.why)
    return FAILED if end.code is None else end.code
