"""`dlsched admin cells`: what virtual clusters own, and which machines stand for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from dlsched.cli.daemon_options import DaemonOptions
from dlsched.cli.option_groups import option
from dlsched.cli.output.output_options import AsJson, ColourOption
from dlsched.cli.typer_commands import CommandGroup

if TYPE_CHECKING:
    from dlsched.daemon.round.cells_view import CellJob, CellsView, OwnedCell

SCHEMA = "dlsched.cells/1"

cells_app = CommandGroup("Cells of virtual clusters, under placement hived.")


@cells_app.callback()
def _group() -> None:
    """Keeps `show` a word of its own, although it is the only one."""


@cells_app.command("show")
def show_command(
    snapshot: Annotated[
        str | None, option("--snapshot FILE", "A file of `admin snapshot`; not the live cluster.")
    ] = None,
    as_json: AsJson = False,
    colour: ColourOption = "auto",
    *,
    daemon: DaemonOptions,
) -> None:
    """Cells of virtual clusters, free cells, jobs on them, bad nodes. Operators only."""
    from dlsched.cli.output.json_output import object_of, print_json  # noqa: PLC0415
    from dlsched.cli.output.listing import Column, print_listing  # noqa: PLC0415
    from dlsched.cli.output.terminal import shown, terminal  # noqa: PLC0415
    from dlsched.daemon.round.cells_view import cells_view  # noqa: PLC0415
    from dlsched.daemon.round.snapshot import LiveSnapshot, read_snapshot  # noqa: PLC0415

    if snapshot is not None:
        saved = read_snapshot(snapshot)
    else:
        with daemon.client() as cluster:
            saved = LiveSnapshot.from_bytes(b"".join(cluster.snapshot()))
    found = cells_view(saved)
    if as_json:
        parts = ("owned", "free", "jobs", "bad")
        print_json(SCHEMA, **{name: list(map(object_of, getattr(found, name))) for name in parts})
        return
    columns: list[Column[OwnedCell]] = [
        Column("vc", "VC", "", lambda each: each.vc or "-", least=6),
        Column("type", "CELL", "", _type, least=6),
        Column("address", "ADDRESS", "", lambda each: each.address),
        Column("state", "STATE", "", lambda each: each.state),
        Column("on", "ON", "", lambda each: each.physical or "-", least=6),
        Column("nodes", "NODES", "", lambda each: ",".join(each.nodes) or "-", least=6),
        Column("used", "GPUS", "", lambda each: f"{each.used}/{each.gpus}", right=True),
        Column("jobs", "JOBS", "", lambda each: ",".join(map(str, each.jobs)) or "-", least=6),
    ]
    print_listing(columns, list(found.owned), terminal(colour))
    for line in _lines(found):
        typer.echo(shown(line))


def _type(cell: OwnedCell) -> str:
    return cell.type if cell.pinned is None else f"{cell.type} ({cell.pinned})"


def _lines(found: CellsView) -> Iterator[str]:
    for cell in found.free:
        nodes = ",".join(cell.nodes)
        facts = [f"free      {cell.type} {cell.address} on {nodes}"]
        if cell.opportunistic:
            facts.append(f"{cell.opportunistic} of {cell.gpus} GPUs used by opportunistic jobs")
        if not cell.healthy:
            facts.append("bad")
        yield ", ".join(facts)
    for job in found.jobs:
        if job.kind != "guaranteed" or job.state != "runs":
            yield f"job       {job.job}: {job.kind}, {job.state}, on {_gpus(job)}"
    for bad in found.bad:
        seen = f"seen by {', '.join(filter(None, bad.seen_by)) or 'its jobs'}"
        hidden = "hidden from virtual clusters: healthy cells stand for theirs"
        yield f"bad       {bad.node} {bad.why}; {seen if bad.seen_by else hidden}"


def _gpus(job: CellJob) -> str:
    names = (f"{node}[{','.join(map(str, gpus))}]" for node, gpus in job.gpus.items())
    return " ".join(names) or "GPUs of no cell"
