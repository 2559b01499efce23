"""`dlsched admin profile`: speeds of kinds of trainings, measured or read from a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dlsched.cli.admin.host_profile import host_command
from dlsched.cli.daemon_options import DaemonOptions
from dlsched.cli.option_groups import option, typed
from dlsched.cli.output.output_options import AsJson, ColourOption
from dlsched.cli.typer_commands import CommandGroup
from dlsched.core.errors import BadInput, DlschedError, plural
from dlsched.record import Record

if TYPE_CHECKING:
    from dlsched.core.speed.throughput_table import JobKind, Measurement
    from dlsched.rpc.v1.control_pb2 import SpeedView

SCHEMA = "dlsched.profile/1"
HEADER = (
    "accelerator", "scale_factor", "model", "batch_size", "co_model", "co_batch_size",
    "steps_per_s", "co_steps_per_s",
)  # fmt: skip

profile_app = CommandGroup("Speeds of kinds of trainings, by GPU type.")
profile_app.command("host")(host_command)


class SpeedFilter(Record, kw_only=False):
    """Speeds by model, batch size and GPU type."""

    model: str = typed("--model NAME", "Only of this model.", default="")
    batch_size: int | None = typed("--batch-size N", "Only of this size; 0: not given.", min=0)
    gpu_type: str = typed("--gpu-type TYPE", "Only on GPUs of this type.", default="")


@profile_app.command("list")
def list_command(
    only: SpeedFilter,
    as_json: AsJson = False,
    colour: ColourOption = "auto",
    *,
    daemon: DaemonOptions,
) -> None:
    """List the known speeds."""
    from dlsched.cli.output.json_output import print_json  # noqa: PLC0415
    from dlsched.cli.output.listing import Column, print_listing  # noqa: PLC0415
    from dlsched.cli.output.terminal import terminal  # noqa: PLC0415

    out = terminal(colour)
    with daemon.client() as cluster:
        found = cluster.speeds(only.model, only.batch_size, only.gpu_type)
    if as_json:
        print_json(SCHEMA, speeds=[_object(view) for view in found])
        return

    def number(name: str, title: str) -> Column[SpeedView]:
        def text(view: SpeedView) -> str:
            return f"{getattr(view, name):g}" if getattr(view, name) else "-"

        return Column(name, title, "", text, right=True)

    def word(name: str, title: str) -> Column[SpeedView]:
        return Column(name, title, "", lambda view: getattr(view, name) or "-", least=8)

    columns: list[Column[SpeedView]] = [
        word("model", "MODEL"),
        number("batch_size", "BATCH"),
        word("gpu_type", "TYPE"),
        number("gpus", "GPUS"),
        word("partner", "PARTNER"),
        Column("steps_per_s", "STEPS/S", "", lambda view: f"{view.steps_per_s:.5g}", right=True),
        number("measurements", "MEASURED"),
        word("source", "FROM"),
    ]
    print_listing(columns, found, out)


@profile_app.command("import")
def import_command(
    place: Annotated[
        Path, typer.Argument(metavar="FILE|FOLDER", help="A table as for `replay --profiles`.")
    ],
    *,
    daemon: DaemonOptions,
) -> None:
    """Read speeds from a table; they replace known ones. Operators only."""
    from dlsched.core.speed.throughput_table import ThroughputTable  # noqa: PLC0415
    from simulate.profiles.throughput_file import measurements_of  # noqa: PLC0415

    measured = measurements_of(place)
    ThroughputTable(measured)  # numbers, and whether rows contradict each other
    kept = [each for each in measured if not each.spread]
    views = [view for each in kept for view in _views(each)]
    unique = {_key(view): view for view in views}
    with daemon.client() as cluster:
        count = cluster.set_speeds(unique.values())
    left = len(measured) - len(kept)
    spread = f"; {plural(left, 'row')} of GPUs on several nodes left out" if left else ""
    typer.echo(f"{plural(count, 'speed')} imported{spread}")


@profile_app.command("export")
def export_command(
    output: Annotated[str, option("--output -o FILE", "A file to write; -: stdout.")],
    only: SpeedFilter,
    *,
    daemon: DaemonOptions,
) -> None:
    """Write the known speeds as a table for `replay --profiles`, or for another cluster."""
    import csv  # noqa: PLC0415
    import io  # noqa: PLC0415

    from dlsched.cli.output.file_output import plain_cell, save  # noqa: PLC0415

    with daemon.client() as cluster:
        found = cluster.speeds(only.model, only.batch_size, only.gpu_type)
    known = {_key(view): view for view in found}
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEADER)
    count = 0
    for key, view in known.items():
        if view.partner and _mirrored(key) not in known:
            continue  # the speed of the other job of the pair was not measured
        if view.partner and _mirrored(key) < key:
            continue  # the pair is in the other job's row
        other = known[_mirrored(key)].steps_per_s if view.partner else ""
        cells = (
            *(view.gpu_type, view.gpus, view.model, view.batch_size or "", view.partner),
            *(view.partner_batch_size or "", view.steps_per_s, other),
        )
        writer.writerow(map(plain_cell, cells))
        count += 1
    if output == "-":
        typer.echo(text.getvalue(), nl=False)
        return
    if not count:
        raise DlschedError("no speeds are known")
    save([text.getvalue().encode()], output)
    typer.echo(f"{output}: {plural(count, 'row')}")


@profile_app.command("forget")
def forget_command(
    only: SpeedFilter,
    everything: Annotated[bool, option("--all", "All speeds.")] = False,
    *,
    daemon: DaemonOptions,
) -> None:
    """Forget speeds, so that they are measured again. Operators only."""
    if only == SpeedFilter() and not everything:
        raise BadInput("say what to forget: --model, --batch-size, --gpu-type, or --all")
    with daemon.client() as cluster:
        count = cluster.forget_speeds(only.model, only.batch_size, only.gpu_type)
    typer.echo(f"{plural(count, 'speed')} forgotten")


Key = tuple[str, int, str, int, str, int]


def _key(view: SpeedView) -> Key:
    return (
        view.model, view.batch_size, view.gpu_type, view.gpus, view.partner,
        view.partner_batch_size,
    )  # fmt: skip


def _mirrored(key: Key) -> Key:
    model, size, gpu_type, gpus, partner, partner_size = key
    return partner, partner_size, gpu_type, gpus, model, size


def _views(measured: Measurement) -> list[SpeedView]:
    """Return a row as the daemon stores it; a pair of jobs gives two speeds."""
    from dlsched.rpc.v1.control_pb2 import SpeedView  # noqa: PLC0415

    def view(kind: JobKind, rate: float, partner: JobKind | None) -> SpeedView:
        return SpeedView(
            model=kind.model,
            batch_size=kind.batch_size or 0,
            gpu_type=measured.gpu_type,
            gpus=measured.scale,
            partner=partner.model if partner is not None else "",
            partner_batch_size=(partner.batch_size or 0) if partner is not None else 0,
            steps_per_s=rate,
        )

    found = [view(measured.kind, measured.rate, measured.partner)]
    if measured.partner is not None:
        found.append(view(measured.partner, measured.partner_rate, measured.kind))
    return found


def _object(view: SpeedView) -> dict[str, object]:
    return {
        "model": view.model,
        "batch_size": view.batch_size or None,
        "gpu_type": view.gpu_type,
        "gpus": view.gpus,
        "partner": view.partner or None,
        "partner_batch_size": view.partner_batch_size or None,
        "steps_per_s": view.steps_per_s,
        "measurements": view.measurements,
        "source": view.source,
        "at": view.at,
    }
