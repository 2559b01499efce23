"""`dlsched admin calibration`: predictions compared with what happened."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from dlsched.cli.daemon_options import DaemonOptions
from dlsched.cli.option_groups import option
from dlsched.cli.output.output_options import AsJson, ColourOption
from dlsched.core.errors import not_known

if TYPE_CHECKING:
    from dlsched.rpc.v1.control_pb2 import CalibrationView

SCHEMA = "dlsched.calibration/1"
GROUPS = ("basis", "policy", "class")
_ALWAYS = (
    *("jobs", "mean_error_s", "median_abs_error_s", "p90_abs_error_s", "mean_lead_s", "ended"),
)
_SHARES = ("start_within", "start_relative", "end_within", "end_relative")


def calibration_command(
    since: Annotated[
        str | None, option("--since -S TIME", "Started since: 2h (ago), a day. [default: all]")
    ] = None,
    by: Annotated[
        str, option("--by GROUP", "basis, policy, or class: GPUs and source of the duration.")
    ] = "basis",
    as_json: AsJson = False,
    colour: ColourOption = "auto",
    *,
    daemon: DaemonOptions,
) -> None:
    """How exact first predictions were: of starts, and of the ends of jobs that completed."""
    from dlsched.cli.output.json_output import print_json  # noqa: PLC0415
    from dlsched.cli.output.listing import Column, print_listing  # noqa: PLC0415
    from dlsched.cli.output.terminal import terminal  # noqa: PLC0415
    from dlsched.cli.output.times import moment_or_ago  # noqa: PLC0415
    from dlsched.client.submission.durations import duration_text  # noqa: PLC0415

    if by not in GROUPS:
        raise not_known("--by:", by, GROUPS)
    out = terminal(colour)
    start = moment_or_ago("--since", since) if since is not None else None
    with daemon.client() as cluster:
        found = cluster.calibration(start)
    if as_json:
        lists = {f"by_{name}": getattr(found, f"by_{name}") for name in GROUPS}
        print_json(
            SCHEMA, **{key: [_object(key[3:], e) for e in views] for key, views in lists.items()}
        )
        return

    def span(name: str, title: str, doc: str) -> Column[CalibrationView]:
        def text(each: CalibrationView) -> str:
            seconds = getattr(each, name)
            return ("-" if seconds <= -0.5 else "") + duration_text(abs(seconds))

        return Column(name, title, doc, text, right=True)

    def share(name: str, title: str, doc: str) -> Column[CalibrationView]:
        def text(each: CalibrationView) -> str:
            return f"{getattr(each, name):.0%}" if each.HasField(name) else "-"

        return Column(name, title, doc, text, right=True)

    columns: list[Column[CalibrationView]] = [
        Column(by, by.upper(), "", lambda each: each.basis or "-", least=8),
        Column("jobs", "JOBS", "", lambda each: str(each.jobs), right=True),
        span("mean_error_s", "MEAN ERROR", "late is positive"),
        span("median_abs_error_s", "MEDIAN", "of its absolute value"),
        span("p90_abs_error_s", "90%", "nine of ten are not larger"),
        span("mean_lead_s", "AHEAD", "on average"),
        share("start_within", "WITHIN", "of the starts, in their interval"),
        share("start_relative", "RELATIVE", "median error over the predicted wait"),
        Column("ended", "ENDED", "", lambda each: str(each.ended), right=True),
        share("end_within", "WITHIN", "of the ends, in their interval"),
        share("end_relative", "RELATIVE", "median error over the predicted time to the end"),
    ]
    print_listing(columns, getattr(found, f"by_{by}"), out)


def _object(key: str, each: CalibrationView) -> dict[str, Any]:
    shares = {name: getattr(each, name) if each.HasField(name) else None for name in _SHARES}
    return {key: each.basis, **{name: getattr(each, name) for name in _ALWAYS}, **shares}
