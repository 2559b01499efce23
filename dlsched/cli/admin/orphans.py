"""`dlsched admin orphans` and `run-over`: runs that are unknown, or perhaps over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from dlsched.cli.daemon_options import DaemonOptions, report
from dlsched.cli.option_groups import option
from dlsched.cli.output.output_options import AsJson, ColourOption
from dlsched.core.errors import BadInput, DlschedError

if TYPE_CHECKING:
    from dlsched.rpc.v1.control_pb2 import OrphanView

SCHEMA = "dlsched.orphans/1"


def orphans_command(
    end: Annotated[
        list[str] | None, option("--end RUN_ID", "Kill its processes. May be repeated.")
    ] = None,
    as_json: AsJson = False,
    colour: ColourOption = "auto",
    *,
    daemon: DaemonOptions,
) -> None:
    """Runs that nodes hold and the database does not know, as after a restore. Operators only.

    They go on and keep their GPUs until they end.
    """
    from dlsched.cli.output.json_output import print_json  # noqa: PLC0415
    from dlsched.cli.output.listing import Column, print_listing  # noqa: PLC0415
    from dlsched.cli.output.terminal import terminal  # noqa: PLC0415

    with daemon.client() as cluster:
        found = cluster.orphans(end or ())
    if as_json:
        texts = ("node", "job", "run", "run_id", "state")
        objects = (
            {name: getattr(each, name) for name in texts}
            | {"gpus": list(each.gpus), "nodes": list(each.nodes)}
            for each in found.orphans
        )
        print_json(SCHEMA, orphans=list(objects))
    else:
        columns: list[Column[OrphanView]] = [
            Column("node", "NODE", "", lambda each: each.node, least=6),
            Column("job", "JOB", "", lambda each: str(each.job), right=True),
            Column("run", "RUN", "", lambda each: str(each.run), right=True),
            Column("state", "STATE", "", lambda each: each.state),
            Column("gpus", "GPUS", "", lambda each: str(len(each.gpus)), right=True),
            Column("run_id", "RUN ID", "", lambda each: each.run_id, least=8),
        ]
        print_listing(columns, list(found.orphans), terminal(colour))
    for each in found.failed:
        typer.echo(f"dlsched: {each.subject}: {each.why}", err=True)
    if found.failed:
        raise SystemExit(DlschedError.exit_code)


def run_over_command(
    jobs: Annotated[list[str], typer.Argument(metavar="JOB…", help="Ids of running jobs.")],
    confirmed: Annotated[
        bool, option("--confirmed", "Confirm that none of their processes is left.")
    ] = False,
    *,
    daemon: DaemonOptions,
) -> None:
    """Confirm that runs are over whose keeper was lost where nodes cannot tell. Operators only."""
    if not confirmed:
        raise BadInput(
            "--confirmed is needed: if processes of the run are left, the job will run twice"
        )
    with daemon.client() as cluster:
        report(cluster.confirm_over(jobs), "over", kind="job")
