"""`dlsched forward`: a port of this machine for a port inside a job."""

from __future__ import annotations

import contextlib
from typing import Annotated

import typer

from dlsched.cli.daemon_options import DaemonOptions
from dlsched.cli.jobs.job_filter import IdArgument
from dlsched.cli.option_groups import option
from dlsched.core.errors import BadInput, DlschedError

_LAST_PORT = 65535


def forward_command(
    job: IdArgument,
    ports: Annotated[
        str,
        typer.Argument(
            metavar="PORT[:LOCAL]", help="On the node, and here (0: any). [default: the same]"
        ),
    ],
    node: Annotated[
        str, option("--node NAME", "On this node of the job. [default: its first]")
    ] = "",
    *,
    daemon: DaemonOptions,
) -> None:
    """Reach a port at which a process of a running job listens, such as a notebook's.

    It listens on 127.0.0.1 here, for your own processes only, until Ctrl-C or the end of the job.
    """
    import threading  # noqa: PLC0415

    from dlsched.cli.jobs.logs import one_job  # noqa: PLC0415

    port, local = _ports(ports)
    with daemon.client() as cluster:
        number = one_job(cluster, job)
        forwarding = cluster.forwarding(number, port, node=node.lower())
        where = forwarding.check()
        try:
            at = forwarding.listen(local)
        except OSError as error:
            raise BadInput(
                f"local port {local}: {(error.strerror or str(error)).lower()}"
            ) from None
        typer.echo(f"127.0.0.1:{at} is port {port} of job {job} on {where}; Ctrl-C ends it")

        over, ended = threading.Event(), f"job {number} has ended"

        def refused(why: str) -> bool:
            if not over.is_set():
                typer.echo(f"dlsched: {why}", err=True)
            return why == ended

        def wait() -> None:
            with contextlib.suppress(DlschedError):  # connections say it, too
                cluster.wait_for(number)
                refused(ended)
                over.set()

        threading.Thread(target=wait, daemon=True).start()
        try:
            forwarding.serve(refused, over)
        except KeyboardInterrupt:
            raise SystemExit(0) from None
        raise SystemExit(1)


def _ports(text: str) -> tuple[int, int]:
    """The port on the node and the local one.

    Raises:
        BadInput: they are not ports.
    """
    port, colon, local = text.partition(":")
    numbers = []
    for word, least in ((port, 1), (local if colon else port, 0 if colon else 1)):
        if not word.isascii() or not word.isdigit() or not least <= int(word) <= _LAST_PORT:
            raise BadInput(f"ports {text!r}: PORT or PORT:LOCAL, each within 1 and {_LAST_PORT}")
        numbers.append(int(word))
    return numbers[0], numbers[1]
