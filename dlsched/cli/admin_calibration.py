"""`dlsched admin calibration`: foretold starts beside what came."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from dlsched.cli.connect import AsJson, ColourOption, DaemonOption, InsecureOption, client

if TYPE_CHECKING:
    from dlsched.rpc.v1.control_pb2 import CalibrationView

__all__ = ["calibration_command"]

SCHEMA = "dlsched.calibration/1"


def calibration_command(
    since: Annotated[
        str | None,
        typer.Option(
            "--since", "-S", metavar="TIME", help="Started since: 2h (ago), a day. [default: all]"
        ),
    ] = None,
    as_json: AsJson = False,
    colour: ColourOption = "auto",
    daemon: DaemonOption = None,
    insecure: InsecureOption = False,
) -> None:
    """How well starts were foretold: actual minus first foretold start."""
    from dlsched.cli.json_output import print_json  # noqa: PLC0415
    from dlsched.cli.listing import Column, listing  # noqa: PLC0415
    from dlsched.cli.since import moment_or_ago  # noqa: PLC0415
    from dlsched.cli.terminal import terminal  # noqa: PLC0415
    from dlsched.client.submission.durations import duration_text  # noqa: PLC0415

    out = terminal(colour)
    start = moment_or_ago("--since", since) if since is not None else None
    with client(daemon, insecure) as cluster:
        found = cluster.calibration(start)
    if as_json:
        names = ("jobs", "mean_error_s", "median_abs_error_s", "p90_abs_error_s", "mean_lead_s")
        objects = (
            {"basis": each.basis, **{name: getattr(each, name) for name in names}} for each in found
        )
        print_json(SCHEMA, by_basis=list(objects))
        return

    def span(name: str, title: str, doc: str) -> Column[CalibrationView]:
        def text(each: CalibrationView) -> str:
            seconds = getattr(each, name)
            return ("-" if seconds <= -0.5 else "") + duration_text(abs(seconds))

        return Column(name=name, title=title, doc=doc, text=text, align="right")

    columns: list[Column[CalibrationView]] = [
        Column(name="basis", title="BASIS", doc="", text=lambda each: each.basis or "-", least=8),
        Column(name="jobs", title="JOBS", doc="", text=lambda each: str(each.jobs), align="right"),
        span("mean_error_s", "MEAN ERROR", "late is positive"),
        span("median_abs_error_s", "MEDIAN", "of its size"),
        span("p90_abs_error_s", "90%", "nine of ten are within"),
        span("mean_lead_s", "TOLD AHEAD", "on average"),
    ]
    for line in listing(columns, found, out, header=True):
        typer.echo(line, color=out.colour)
