"""`dlsched plan`: which operations of a training run on which of unlike GPUs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from dlsched.cli.named_number import named_number
from dlsched.cli.option_groups import option
from dlsched.cli.replay.option_values import seeds as seeds_of
from dlsched.cli.worlds.frame import (
    Figure,
    print_table,
    within,
    write_rows,
    write_text,
)
from dlsched.core.errors import BadInput, plural

if TYPE_CHECKING:
    from simulate.worlds.plans.devices import Devices
    from simulate.worlds.plans.order import Order
    from simulate.worlds.plans.search import Planned
    from simulate.worlds.results import Result

ORDERS = ("upward", "source", "fifo")
MOST_STEPS, MOST_PLANS = 100_000, 1_000_000
SPEEDS = ("accelerator", "scale_factor", "model", "batch_size", "steps_per_s")
FIGURES = (
    Figure("Iteration (ms)", "iteration_ms", ".3f"),
    Figure("Most memory (GiB)", "memory_gib", ".3f"),
    Figure("Fits", "fits"),
)


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
    seed: Annotated[str, option("--seed N[,N]", "Of the random steps.")] = "0",
    throughputs_out: Annotated[
        Path | None,
        option("--throughputs-out FILE", "Speeds by GPU type and number, for replay --profiles."),
    ] = None,
    out: Annotated[Path | None, option("--out FILE", "The plan, as JSON.")] = None,
    as_json: Annotated[bool, option("--json", "One JSON object.")] = False,
) -> None:
    """Plan a training on unlike GPUs: where each operation runs, and how gradients are summed."""
    from simulate.worlds.plans.devices import devices_of  # noqa: PLC0415
    from simulate.worlds.plans.model import read_model  # noqa: PLC0415
    from simulate.worlds.plans.search import Search, throughputs  # noqa: PLC0415
    from simulate.worlds.results import check_known  # noqa: PLC0415

    check_known("--order:", [order], ORDERS)
    within("--link-gbps", link, 0, open_=True)
    within("--nic-gbps", nic, 0, open_=True)
    within("--steps", steps, 0, MOST_STEPS)
    within("--exhaustive", exhaustive, 0, MOST_PLANS)
    seeds = seeds_of(seed)
    known = dict(_memory(text) for text in memory or ())
    training = read_model(model)
    devices = devices_of(gpus, link_gbps=link, nic_gbps=nic, memory_bytes=known)
    for gpu_type in known:
        if gpu_type not in devices.types:
            raise BadInput(f"--memory {gpu_type}: --gpus {gpus} has none of this type")
    for gpu_type in dict.fromkeys(devices.types):
        training.total_us(gpu_type)

    def search(on: Devices, seed: int = seeds[0]) -> Search:
        return Search(
            training,
            on,
            order=cast("Order", order),
            exhaustive=exhaustive,
            steps=steps,
            seed=seed,
        )

    searches = {seed: search(devices, seed) for seed in seeds}
    uniform = next(iter(searches.values())).uniform()
    found = {seed: each.best() for seed, each in searches.items()}
    best = min(found.values(), key=lambda each: each.score)
    tried = sum(each.tried for each in searches.values())
    told = {"schema": "dlsched.plan/1", "model": training.name} | _as_json(devices, best, uniform)
    told["plans_tried"] = tried
    if len(seeds) > 1:
        told["iteration_us_by_seed"] = {seed: each.iteration_us for seed, each in found.items()}
    if out is not None:
        write_text(out, [json.dumps(told, indent=1), "\n"], "the plan")
    if throughputs_out is not None:
        batch = training.batch_size or None
        rows = [
            (gpu, n, training.name, batch, speed) for gpu, n, speed in throughputs(search, devices)
        ]
        write_rows(throughputs_out, [SPEEDS, *rows], plural(len(rows), "speed"))
    if as_json:
        typer.echo(json.dumps(told, allow_nan=False))
        return
    _print_plan(devices, best)
    print_table(
        [_result("this one", seed, each) for seed, each in found.items()]
        + [_result(f"all: {name}", 0, each) for name, each in uniform.items()],
        FIGURES,
        "plan",
    )
    typer.echo(f"\n{tried} plans were tried.")


def _memory(text: str) -> tuple[str, int]:
    name, size = named_number(text, "--memory must be TYPE=GB with a number")
    return name, int(size * 2**30)


def _device(devices: Devices, number: int) -> str:
    return f"{devices.types[number]}-{number}"


def _as_json(devices: Devices, best: Planned, uniform: Mapping[str, Planned]) -> dict[str, object]:
    return {
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
    }


def _print_plan(devices: Devices, best: Planned) -> None:
    from dlsched.cli.replay.text_table import TextTable  # noqa: PLC0415

    table = TextTable()
    table.add("Group", list(best.plan), left=True)
    placed = [" ".join(_device(devices, d) for d in each.devices) for each in best.plan.values()]
    table.add("GPUs", placed, left=True)
    table.add("Gradients", [each.exchange for each in best.plan.values()], left=True)
    for line in (*table.lines(), ""):
        typer.echo(line)


def _result(name: str, seed: int, planned: Planned) -> Result:
    from simulate.worlds.results import Result  # noqa: PLC0415

    figures = {
        "iteration_ms": planned.iteration_us / 1000,
        "memory_gib": max(planned.peak_bytes.values()) / 2**30,
        "fits": "yes" if planned.fits else "no",
    }
    return Result(discipline=name, seed=seed, ends={}, figures=figures)
