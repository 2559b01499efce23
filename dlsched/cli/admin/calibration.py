"""`dlsched admin calibration`: predicted starts compared with actual ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from dlsched.cli.daemon_options import DaemonOptions
from dlsched.cli.option_groups import option, with_option_groups
from dlsched.cli.output.output_options import AsJson, ColourOption

if TYPE_CHECKING:
    from dlsched.rpc.v1.control_pb2 import CalibrationView

SCHEMA = "dlsched.calibration/1"


@with_option_groups
def calibration_command(
    since: Annotated[
        str | None, option("--since -S TIME", "Started since: 2h (ago), a day. [default: all]")
    ] = None,
    as_json: AsJson = False,
    colour: ColourOption = "auto",
    *,
    daemon: DaemonOptions,
) -> None:
    """How exact predicted starts were: actual start minus first predicted start."""
    from dlsched.cli.output.json_output import print_json  # noqa: PLC0415
    from dlsched.cli.output.listing import Column, print_listing  # noqa: PLC0415
    from dlsched.cli.output.terminal import terminal  # noqa: PLC0415
    from dlsched.cli.output.times import moment_or_ago  # noqa: PLC0415
    from dlsched.client.submission.durations import duration_text  # noqa: PLC0415

    out = terminal(colour)
    start = moment_or_ago("--since", since) if since is not None else None
    with daemon.client() as cluster:
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

        return Column(name, title, doc, text, right=True)

    columns: list[Column[CalibrationView]] = [
        Column("basis", "BASIS", "", lambda each: each.basis or "-", least=8),
        Column("jobs", "JOBS", "", lambda each: str(each.jobs), right=True),
        span("mean_error_s", "MEAN ERROR", "late is positive"),
        span("median_abs_error_s", "MEDIAN", "of its absolute value"),
        span("p90_abs_error_s", "90%", "nine of ten are not larger"),
        span("mean_lead_s", "AHEAD", "on average"),
    ]
    print_listing(columns, found, out)
