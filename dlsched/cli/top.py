"""`dlsched top`: nodes and the queue, live; a watched `queue` with the nodes above it."""

from __future__ import annotations

from typing import Annotated

import typer

from dlsched.cli.connect import ColourOption, DaemonOption, InsecureOption, client

__all__ = ["top_command"]

COLUMNS = "id,name,user,st,gpus,time,where"


def top_command(
    every: Annotated[
        float, typer.Option("--every", "-i", metavar="S", min=0.2, help="Seconds between looks.")
    ] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="One look, and done.")] = False,
    colour: ColourOption = "auto",
    daemon: DaemonOption = None,
    insecure: InsecureOption = False,
) -> None:
    """Nodes and everybody's jobs, again and again until Ctrl-C."""
    from dlsched.cli.job_columns import COLUMNS as JOB_COLUMNS  # noqa: PLC0415
    from dlsched.cli.job_filter import job_filter  # noqa: PLC0415
    from dlsched.cli.listing import chosen_columns, listing  # noqa: PLC0415
    from dlsched.cli.node_columns import node_columns  # noqa: PLC0415
    from dlsched.cli.queue import queue_lines, watch  # noqa: PLC0415
    from dlsched.cli.terminal import terminal  # noqa: PLC0415

    out = terminal(colour)
    nodes = chosen_columns(node_columns(out), "name,state,gpus,type,jobs")
    jobs = chosen_columns(JOB_COLUMNS, COLUMNS)
    wanted = job_filter(all_users=True)
    with client(daemon, insecure) as cluster:

        def look() -> list[str]:
            found = cluster.queue(wanted)
            return [
                *listing(nodes, cluster.nodes(), out),
                "",
                *queue_lines(found, jobs, out, header=True, footer=True, predicted=False),
            ]

        if once:
            typer.echo("\n".join(look()), color=out.colour)
        else:
            watch(look, every, out)
