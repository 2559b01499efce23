"""`dlsched plan`: which operations of a training run on which of unlike GPUs."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from dlsched.cli.named_number import named_number
from dlsched.cli.option_groups import option
from dlsched.core.errors import BadInput

if TYPE_CHECKING:
    from simulate.plans.devices import Devices
    from simulate.plans.model import Model
    from simulate.plans.order import Order
    from simulate.plans.search import Planned, Search

SCHEMA = "dlsched.plan/1"
ORDERS = ("upward", "source", "fifo")
MOST_STEPS, MOST_PLANS = 100_000, 1_000_000


def plan_command(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A JSON file of operations.")],
    gpus: Annotated[
        str, option("--gpus NxTYPE,…", "Nodes, each with so many GPUs of a type: 2xv100,4xt4.")
    ],
    link: Annotated[
        float, option("--link-gbps G", "Between two GPUs of a node, Gbit/s each way.")
    ] = 80.0,
    nic: Annotated[float, option("--nic-gbps G", "Of a node's network card, Gbit/s.")] = 50.0,
    memory: Annotated[
        list[str] | None,
        option("--memory TYPE=GB", "Memory of a GPU of this type; repeat it. [default: no bound]"),
    ] = None,
    order: Annotated[
        str, option("--order NAME", "Of operations on a GPU: upward, source, fifo.")
    ] = "upward",
    exhaustive: Annotated[
        int, option("--exhaustive N", "Try all plans where there are no more than N.")
    ] = 5_000,
    steps: Annotated[int, option("--steps N", "Random steps of the search after that.")] = 500,
    seed: Annotated[int, option("--seed N", "Of the random steps.")] = 0,
    throughputs_out: Annotated[
        Path | None,
        option("--throughputs-out FILE", "Speeds by GPU type and number, for replay --profiles."),
    ] = None,
    out: Annotated[Path | None, option("--out FILE", "The plan, as JSON.")] = None,
    as_json: Annotated[bool, option("--json", "One JSON object.")] = False,
) -> None:
    """Plan a training on unlike GPUs: where each operation runs, and how gradients are summed."""
    from simulate.plans.devices import devices_of  # noqa: PLC0415
    from simulate.plans.model import read_model  # noqa: PLC0415
    from simulate.plans.search import Search, throughputs  # noqa: PLC0415

    if order not in ORDERS:
        raise BadInput(f"--order must be one of {', '.join(ORDERS)}, not {order!r}")
    for flag, value in (("--link-gbps", link), ("--nic-gbps", nic)):
        if not 0 < value < float("inf"):
            raise BadInput(f"{flag} must be above 0, not {value:g}")
    for flag, number, most in (
        ("--steps", steps, MOST_STEPS),
        ("--exhaustive", exhaustive, MOST_PLANS),
    ):
        if not 0 <= number <= most:
            raise BadInput(f"{flag} must be from 0 to {most:,}, not {number}")
    known = dict(_memory(text) for text in memory or ())
    training = read_model(model)
    devices = devices_of(gpus, link_gbps=link, nic_gbps=nic, memory_bytes=known)
    for gpu_type in known:
        if gpu_type not in devices.types:
            raise BadInput(f"--memory {gpu_type}: --gpus {gpus} has none of this type")
    for gpu_type in dict.fromkeys(devices.types):
        training.total_us(gpu_type)

    def search(on: Devices) -> Search:
        return Search(
            training,
            on,
            order=cast("Order", order),
            exhaustive=exhaustive,
            steps=steps,
            seed=seed,
        )

    searching = search(devices)
    uniform, best = searching.uniform(), searching.best()
    told = _told(training, devices, best, uniform, searching.tried)
    if out is not None:
        _write(out, json.dumps(told, indent=1) + "\n", "the plan")
    if throughputs_out is not None:
        rows = throughputs(search, devices)
        _write(throughputs_out, _table_file(training, rows), f"{len(rows)} speeds")
    if as_json:
        typer.echo(json.dumps(told, allow_nan=False))
        return
    for line in _lines(devices, best, uniform, told):
        typer.echo(line)


def _memory(text: str) -> tuple[str, int]:
    name, size = named_number(text, "--memory must be TYPE=GB with a number")
    return name, int(size * 2**30)


def _device(devices: Devices, number: int) -> str:
    return f"{devices.types[number]}-{number}"


def _told(
    model: Model,
    devices: Devices,
    best: Planned,
    uniform: Mapping[str, Planned],
    tried: int,
) -> dict[str, object]:
    return {
        "schema": SCHEMA,
        "model": model.name,
        "devices": [
            {"name": _device(devices, number), "type": gpu_type, "node": devices.nodes[number]}
            for number, gpu_type in enumerate(devices.types)
        ],
        "plan": {
            group: {
                "devices": [_device(devices, each) for each in choice.devices],
                "exchange": choice.exchange,
            }
            for group, choice in best.plan.items()
        },
        "iteration_us": best.iteration_us,
        "peak_bytes": {_device(devices, n): size for n, size in sorted(best.peak_bytes.items())},
        "uniform": {
            name: {"iteration_us": each.iteration_us, "fits": each.fits}
            for name, each in uniform.items()
        },
        "plans_tried": tried,
    }


def _lines(
    devices: Devices, best: Planned, uniform: Mapping[str, Planned], told: Mapping[str, object]
) -> list[str]:
    from dlsched.cli.replay.text_table import TextTable  # noqa: PLC0415

    table = TextTable()
    table.add("Group", list(best.plan), left=True)
    table.add(
        "GPUs",
        [" ".join(_device(devices, d) for d in each.devices) for each in best.plan.values()],
        left=True,
    )
    table.add("Gradients", [each.exchange for each in best.plan.values()], left=True)
    compared = TextTable()
    compared.add("Plan", ["this one", *(f"all: {name}" for name in uniform)], left=True)
    plans = [best, *uniform.values()]
    compared.add("Iteration (ms)", [f"{each.iteration_us / 1000:.3f}" for each in plans])
    compared.add("Most memory (GiB)", [f"{max(p.peak_bytes.values()) / 2**30:.3f}" for p in plans])
    compared.add("Fits", ["yes" if each.fits else "no" for each in plans], left=True)
    tried = f"{told['plans_tried']} plans were tried."
    return [*table.lines(), "", *compared.lines(), "", tried]


def _table_file(model: Model, rows: list[tuple[str, int, float]]) -> str:
    from dlsched.cli.output.csv_cells import plain_cell  # noqa: PLC0415

    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(("accelerator", "scale_factor", "model", "batch_size", "steps_per_s"))
    for gpu_type, count, speed in rows:
        batch = model.batch_size or ""
        table.writerow((gpu_type, count, plain_cell(model.name), batch, f"{speed:.12g}"))
    return text.getvalue()


def _write(path: Path, text: str, what: str) -> None:
    from dlsched.cli.output.file_output import save  # noqa: PLC0415

    save([text.encode()], str(path))
    print(f"dlsched: {path}: {what}", file=sys.stderr)
