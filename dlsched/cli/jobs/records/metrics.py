"""`dlsched metrics`: the course of a job's loss, speed and own metrics; also as a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated

import typer

from dlsched.cli.daemon_options import DaemonOptions
from dlsched.cli.jobs.job_filter import IdArgument
from dlsched.cli.option_groups import option
from dlsched.cli.output.output_options import JsonOptions
from dlsched.core.errors import BadInput, plural
from dlsched.core.sums import ordered_sum

if TYPE_CHECKING:
    from dlsched.client.records import Metrics

SCHEMA = "dlsched.metrics/1"
WIDTH = 26  # columns of a curve; a line has 80
_BLOCKS, _LETTERS = "▁▂▃▄▅▆▇█", "_.-=+*#%"
_GIB, _PERCENT = "gpu_memory_bytes", "gpu_utilization"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of the listing."""

    name: str
    values: tuple[float, ...]

    def text(self, value: float) -> str:
        """A value as it is shown."""
        from dlsched.cli.jobs.job_columns import brief, gib, percent  # noqa: PLC0415

        if self.name == _GIB:
            return gib(value)
        return percent(value) if self.name == _PERCENT else brief(value)


def metrics_command(
    job: IdArgument,
    export: Annotated[
        str | None, option("--export FILE", "Write all points: .csv, or a folder for TensorBoard.")
    ] = None,
    *,
    output: JsonOptions,
    daemon: DaemonOptions,
) -> None:
    """Show how a job's loss, speed and own metrics have developed, one line a metric."""
    from dlsched.cli.jobs.logs import one_job  # noqa: PLC0415
    from dlsched.cli.jobs.records.metrics_export import check_target, save_metrics  # noqa: PLC0415
    from dlsched.cli.output.json_output import object_of, print_json, print_json_lines  # noqa: PLC0415
    from dlsched.cli.output.listing import Column, listing  # noqa: PLC0415
    from dlsched.cli.output.terminal import terminal  # noqa: PLC0415

    if output.is_json and export is not None:
        raise BadInput("--json, --jsonl and --export: only one of them")
    out = terminal(output.colour)
    if export is not None:
        check_target(export)
    with daemon.client() as cluster:
        found = cluster.metrics(one_job(cluster, job))
    if export is not None:
        typer.echo(f"{plural(save_metrics(found, export), 'point')} in {export}", err=True)
        return
    if output.is_json:
        objects = [
            {"name": name, "points": [object_of(point) for point in points]}
            for name, points in found.curves.items()
        ]
        if output.as_lines:
            print_json_lines(objects)
        else:
            print_json(SCHEMA, job=job, left_out=found.left_out, metrics=objects)
        return
    marks = _BLOCKS if out.unicode else _LETTERS
    columns: list[Column[Line]] = [
        Column("name", "METRIC", "", lambda line: line.name, least=12),
        Column("newest", "NEWEST", "", lambda line: line.text(line.values[-1]), right=True),
        Column("least", "LEAST", "", lambda line: line.text(min(line.values)), right=True),
        Column("most", "MOST", "", lambda line: line.text(max(line.values)), right=True),
        Column("course", "COURSE", "", lambda line: curve(line.values, WIDTH, marks)),
    ]
    for text in listing(columns, _lines(found), out):
        typer.echo(text, color=out.colour)
    if found.left_out:
        why = "a job may have 24 metrics of its own"
        typer.echo(f"dlsched: not kept: {plural(found.left_out, 'value')}: {why}", err=True)


def _lines(found: Metrics) -> list[Line]:
    return [
        Line(name=name, values=tuple(point.value for point in points))
        for name, points in found.curves.items()
        if points
    ]


def curve(values: Sequence[float], width: int, marks: str) -> str:
    """Return a curve in one line: a mark for the mean of each part of the values.

    Args:
        values: at least one, at equal distances.
        width: the most marks.
        marks: from the lowest to the highest.
    """
    count = min(width, len(values))
    edges = [k * len(values) // count for k in range(count + 1)]
    parts = [values[a:b] for a, b in pairwise(edges)]
    means = [ordered_sum(part) / len(part) for part in parts]
    least, most = min(means), max(means)
    if least == most:
        return marks[len(marks) // 2] * count
    scale = (len(marks) - 1) / (most - least)
    return "".join(marks[round((mean - least) * scale)] for mean in means)
