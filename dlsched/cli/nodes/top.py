"""`dlsched top`: nodes and the queue, printed repeatedly."""

from __future__ import annotations

from typing import Annotated

import typer

from dlsched.cli.daemon_options import DaemonOptions
from dlsched.cli.option_groups import option
from dlsched.cli.output.output_options import ColourOption

COLUMNS = "id,name,user,st,gpus,time,loss,steps_s,where"
WIDE = "id,name,user,st,gpus,time,loss,steps_s,samples_s,gpu_use,gpu_memory,report_age,where"
WIDE_FROM = 120  # columns of the terminal


def top_command(
    every: Annotated[float, option("--every -i S", "Repeat every S seconds.", min=0.2)] = 2.0,
    once: Annotated[bool, option("--once", "Print once and exit.")] = False,
    colour: ColourOption = "auto",
    *,
    daemon: DaemonOptions,
) -> None:
    """Show nodes and the jobs of all users until Ctrl-C."""
    from dlsched.cli.jobs.job_columns import COLUMNS as JOB_COLUMNS  # noqa: PLC0415
    from dlsched.cli.jobs.job_columns import rows_of  # noqa: PLC0415
    from dlsched.cli.jobs.job_filter import job_filter  # noqa: PLC0415
    from dlsched.cli.jobs.queue import summary_line, watch  # noqa: PLC0415
    from dlsched.cli.nodes.node_columns import node_columns  # noqa: PLC0415
    from dlsched.cli.output.listing import chosen_columns, listing  # noqa: PLC0415
    from dlsched.cli.output.terminal import terminal  # noqa: PLC0415

    out = terminal(colour)
    nodes = chosen_columns(node_columns(out), "name,state,gpus,type,jobs")
    wide = out.width is None or out.width >= WIDE_FROM
    jobs = chosen_columns(JOB_COLUMNS, WIDE if wide else COLUMNS)
    wanted = job_filter(all_users=True)
    with daemon.client() as cluster:

        def look() -> list[str]:
            found = cluster.queue(wanted, brief=True)
            return [
                *listing(nodes, cluster.nodes(), out),
                "",
                *listing(jobs, rows_of(found.rows(), predicted=False), out),
                out.styled(summary_line(found), "faint"),
            ]

        if once:
            typer.echo("\n".join(look()), color=out.colour)
        else:
            watch(look, every, out)
