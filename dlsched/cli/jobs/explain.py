"""`dlsched explain`: what a pending job's place in the order comes from."""

from __future__ import annotations

from typing import Annotated

import typer

from dlsched.cli.daemon_options import DaemonOptions
from dlsched.cli.jobs.job_filter import ids_of, job_filter
from dlsched.cli.output.output_options import JsonOptions
from dlsched.core.errors import DlschedError

SCHEMA = "dlsched.explained/1"


def explain_command(
    job: Annotated[str, typer.Argument(metavar="JOB", help="A pending job.")],
    *,
    output: JsonOptions,
    daemon: DaemonOptions,
) -> None:
    """What a pending job's place comes from: its rank, and the terms of its predicted duration."""
    from dlsched.cli.output.explanation import explanation_lines  # noqa: PLC0415
    from dlsched.cli.output.json_output import print_json  # noqa: PLC0415

    ids_of([job])
    with daemon.client() as cluster:
        (detail, *_) = cluster.show(job_filter([job]), why_order=True)
    said = dict(detail.order_numbers)
    policy, position = said.pop("policy", ""), said.pop("position", "")
    if not position:
        raise DlschedError(f"job {job} is {detail.job.state}: only a pending job has a place")
    numbers = {name: float(value) for name, value in said.items()}
    if output.is_json:
        told = {"job": job, "policy": policy, "rank": int(position), "numbers": numbers}
        print_json(SCHEMA, **told)
        return
    typer.echo(f"job {job}: rank {position} under {policy}")
    for line in explanation_lines(numbers):
        typer.echo(line)
