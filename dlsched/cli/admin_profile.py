"""`dlsched admin profile`: how fast kinds of trainings run, as measured or taken from a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dlsched.cli.connect import AsJson, ColourOption, DaemonOption, InsecureOption, client
from dlsched.core.errors import BadInput, DlschedError

if TYPE_CHECKING:
    from dlsched.core.throughputs import JobKind, Measurement
    from dlsched.rpc.v1.control_pb2 import SpeedView

__all__ = ["profile_app"]

SCHEMA = "dlsched.profile/1"
HEADER = (
    "accelerator", "scale_factor", "model", "batch_size", "co_model", "co_batch_size",
    "steps_per_s", "co_steps_per_s",
)  # fmt: skip

profile_app = typer.Typer(
    add_completion=False,
    help="How fast kinds of trainings run, by GPU type.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

ModelOption = Annotated[str, typer.Option("--model", metavar="NAME", help="Only of this model.")]
BatchOption = Annotated[
    int | None, typer.Option("--batch-size", metavar="N", min=0, help="Only of this; 0: not said.")
]
TypeOption = Annotated[
    str, typer.Option("--gpu-type", metavar="TYPE", help="Only on GPUs of this type.")
]


@profile_app.command("list")
def list_command(
    model: ModelOption = "",
    batch_size: BatchOption = None,
    gpu_type: TypeOption = "",
    as_json: AsJson = False,
    colour: ColourOption = "auto",
    daemon: DaemonOption = None,
    insecure: InsecureOption = False,
) -> None:
    """List what is known."""
    from dlsched.cli.json_output import print_json  # noqa: PLC0415
    from dlsched.cli.listing import Column, listing  # noqa: PLC0415
    from dlsched.cli.terminal import terminal  # noqa: PLC0415

    out = terminal(colour)
    with client(daemon, insecure) as cluster:
        found = cluster.speeds(model, batch_size, gpu_type)
    if as_json:
        print_json(SCHEMA, speeds=[_object(view) for view in found])
        return

    def number(name: str, title: str) -> Column[SpeedView]:
        return Column(
            name=name,
            title=title,
            doc="",
            text=lambda view: f"{getattr(view, name):g}" if getattr(view, name) else "-",
            align="right",
        )

    def text(name: str, title: str) -> Column[SpeedView]:
        return Column(
            name=name, title=title, doc="", text=lambda view: getattr(view, name) or "-", least=8
        )

    columns: list[Column[SpeedView]] = [
        text("model", "MODEL"),
        number("batch_size", "BATCH"),
        text("gpu_type", "TYPE"),
        number("gpus", "GPUS"),
        text("partner", "BESIDE"),
        Column(
            name="steps_per_s",
            title="STEPS/S",
            doc="",
            text=lambda view: f"{view.steps_per_s:.5g}",
            align="right",
        ),
        number("measurements", "MEASURED"),
        text("source", "FROM"),
    ]
    for line in listing(columns, found, out, header=True):
        typer.echo(line, color=out.colour)


@profile_app.command("import")
def import_command(
    place: Annotated[
        Path, typer.Argument(metavar="FILE|FOLDER", help="A table, as `replay --profiles` reads.")
    ],
    daemon: DaemonOption = None,
    insecure: InsecureOption = False,
) -> None:
    """Take speeds over from a table, in the place of those that are known. Operators only."""
    from dlsched.core.throughputs import ThroughputTable  # noqa: PLC0415
    from simulate.profiles.throughput_file import measurements_of  # noqa: PLC0415

    measured = measurements_of(place)
    ThroughputTable(measured)  # numbers, and whether rows contradict each other
    kept = [each for each in measured if not each.spread]
    views = [view for each in kept for view in _views(each)]
    unique = {_key(view): view for view in views}
    with client(daemon, insecure) as cluster:
        count = cluster.set_speeds(unique.values())
    left = len(measured) - len(kept)
    spread = f"; {left} rows of GPUs on several servers left out" if left else ""
    typer.echo(f"{count} speeds taken over{spread}")


@profile_app.command("export")
def export_command(
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="Where to; -: standard output.")
    ],
    model: ModelOption = "",
    batch_size: BatchOption = None,
    gpu_type: TypeOption = "",
    daemon: DaemonOption = None,
    insecure: InsecureOption = False,
) -> None:
    """Write what is known as a table for `replay --profiles`, or for another cluster."""
    import csv  # noqa: PLC0415
    import io  # noqa: PLC0415

    from dlsched.cli.admin_cluster import save  # noqa: PLC0415

    with client(daemon, insecure) as cluster:
        found = cluster.speeds(model, batch_size, gpu_type)
    known = {_key(view): view for view in found}
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEADER)
    count = 0
    for key, view in known.items():
        if view.partner and _mirrored(key) not in known:
            continue  # of a pair whose other half was not measured
        if view.partner and _mirrored(key) < key:
            continue  # it is in the other's row
        other = known[_mirrored(key)].steps_per_s if view.partner else ""
        writer.writerow(
            [
                view.gpu_type, view.gpus, view.model, view.batch_size or "", view.partner,
                view.partner_batch_size or "", view.steps_per_s, other,
            ]
        )  # fmt: skip
        count += 1
    if output == "-":
        typer.echo(text.getvalue(), nl=False)
        return
    if not count:
        raise DlschedError("no speeds are known that could be written")
    save(iter([text.getvalue().encode()]), output)
    typer.echo(f"{output}: {count} rows")


@profile_app.command("forget")
def forget_command(
    model: ModelOption = "",
    batch_size: BatchOption = None,
    gpu_type: TypeOption = "",
    everything: Annotated[bool, typer.Option("--all", help="All that is known.")] = False,
    daemon: DaemonOption = None,
    insecure: InsecureOption = False,
) -> None:
    """Forget speeds, so that they are measured anew. Operators only."""
    if not (model or gpu_type or batch_size is not None or everything):
        raise BadInput("say what to forget: --model, --batch-size, --gpu-type, or --all")
    with client(daemon, insecure) as cluster:
        count = cluster.forget_speeds(model, batch_size, gpu_type)
    typer.echo(f"{count} speeds forgotten")


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
    """A row as the daemon takes it; a pair is two."""
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
