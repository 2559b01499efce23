"""`dlsched sweep`: the jobs of a sweep side by side, the best by a metric first."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from dlsched.cli.daemon_options import DaemonOptions
from dlsched.cli.option_groups import option
from dlsched.cli.output.output_options import JsonOptions
from dlsched.core.errors import BadInput, DlschedError

if TYPE_CHECKING:
    from dlsched.cli.output.listing import Column
    from dlsched.client.records import Sweep, SweptJob

SCHEMA = "dlsched.sweep/1"


def sweep_command(
    job: Annotated[str, typer.Argument(metavar="ID", help="The sweep: 11160.")],
    by: Annotated[
        str | None, option("--by METRIC", "Compare this. [default: that of --halving, else loss]")
    ] = None,
    order: Annotated[
        str | None, option("--order WHICH", "What is better, min or max. [default: min]")
    ] = None,
    as_csv: Annotated[
        bool, option("--csv", "A table with all metrics, to be read by programs.")
    ] = False,
    *,
    output: JsonOptions,
    daemon: DaemonOptions,
) -> None:
    """List the jobs of a sweep with their parameters and newest values, the best first."""
    from dlsched.cli.output.json_output import object_of, print_json, print_json_lines  # noqa: PLC0415
    from dlsched.cli.output.listing import print_listing  # noqa: PLC0415
    from dlsched.cli.output.terminal import terminal  # noqa: PLC0415
    from dlsched.client.job_ids import job_name  # noqa: PLC0415

    if order not in (None, "min", "max"):
        raise BadInput(f"--order: {order!r} is neither min nor max")
    if sum((output.as_json, output.as_lines, as_csv)) > 1:
        raise BadInput("--json, --jsonl and --csv: only one of them")
    out = terminal(output.colour)
    with daemon.client() as cluster:
        found = cluster.sweep(job_name(job).job)
    rule = found.halving
    metric = by or (rule.metric if rule is not None else "loss")
    mode = order or (rule.mode if rule is not None and rule.metric == metric else "min")
    _require_metric(found, by)
    jobs = found.ranked(metric, largest_first=mode == "max")
    if as_csv:
        _print_csv(found, jobs)
    elif output.as_lines:
        print_json_lines(map(object_of, jobs))
    elif output.as_json:
        rule_object = None if rule is None else object_of(rule)
        print_json(
            SCHEMA, name=found.name, by=metric, order=mode, halving=rule_object,
            jobs=map(object_of, jobs),
        )  # fmt: skip
    else:
        print_listing(_columns(found, metric), jobs, out)


def _require_metric(found: Sweep, by: str | None) -> None:
    """Refuse a metric that no job has reported, when they have reported others.

    Raises:
        DlschedError: one line with those that there are.
    """
    known = {name for job in found.jobs for name in (*job.metrics, *job.not_finite)}
    if by is not None and known and by not in known:
        raise DlschedError(
            f"--by: no job has reported {by!r}; reported: {', '.join(sorted(known))}"
        )


def _columns(found: Sweep, metric: str) -> list[Column[SweptJob]]:
    from dlsched.cli.jobs.job_columns import STATE_CODES, brief  # noqa: PLC0415
    from dlsched.cli.output.listing import Column  # noqa: PLC0415

    def parameter(name: str) -> Column[SweptJob]:
        return Column(name, name, "", lambda job: job.parameters.get(name, "-"), least=4)

    return [
        Column("id", "ID", "", lambda job: job.shown_id, right=True),
        *map(parameter, found.columns),
        Column("st", "ST", "", lambda job: STATE_CODES.get(job.state, job.state)),
        Column("step", "STEP", "", lambda job: str(job.step or "-"), right=True),
        Column(metric, metric.upper(), "", lambda job: brief(job.value(metric)), right=True),
        Column("why", "WHY", "", lambda job: job.reason or "", least=8),
    ]


def _print_csv(found: Sweep, jobs: list[SweptJob]) -> None:
    """Print a row for each job: its parameters, its state, and its newest values."""
    import csv  # noqa: PLC0415

    from dlsched.cli.output.file_output import plain_cell  # noqa: PLC0415

    names = sorted({name for job in jobs for name in (*job.metrics, *job.not_finite)})
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow(map(plain_cell, ["id", *found.columns, "state", "reason", "step", *names]))
    for job in jobs:
        values = [job.value(name) for name in names]
        cells = [job.shown_id, *job.parameters.values(), job.state, job.reason, job.step, *values]
        table.writerow(map(plain_cell, cells))
