"""`dlsched slots`: jobs with workers and parameter servers, divided anew in every slot."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dlsched.cli.option_groups import option
from dlsched.cli.replay.option_values import seeds as seeds_of
from dlsched.cli.replay.option_values import several
from dlsched.cli.worlds.frame import Figure, Output, report, within
from dlsched.core.errors import BadInput

if TYPE_CHECKING:
    from dlsched.policies.learning.network import Network
    from simulate.worlds.slots.world import Conditions

MOST_NODES, MOST_WORKERS = 100_000, 256
FIGURES = (
    Figure("Avg JCT (slots)", "avg_jct_slots", ".3f"),
    Figure("Makespan (slots)", "makespan_slots", ".3f"),
    Figure("Avg reward", "avg_reward", ".3f"),
)


def slots_command(
    jobs: Annotated[Path, typer.Argument(metavar="JOBS", help="A CSV file of jobs.")],
    speeds: Annotated[
        Path, option("--speeds FILE", "Measured speeds by model, servers and workers, CSV.")
    ],
    nodes: Annotated[int, option("--nodes N", "Nodes, each with 8 processors and 2 GPUs.")],
    output: Output,
    policy: Annotated[
        str, option("--policy NAME,…", "drf, fifo, srtf, tetris, optimus, dl2.")
    ] = "drf,fifo,srtf,tetris,optimus",
    options: Annotated[
        list[str] | None, option("-o --option KEY=VALUE", "model=FILE: the network of dl2.")
    ] = None,
    seed: Annotated[str, option("--seed N[,N]", "Of the actions that dl2 draws.")] = "0",
    slot: Annotated[float, option("--slot S", "Seconds of a slot.")] = 1200.0,
    most: Annotated[
        int, option("--most-workers N", "Of a job, and as many parameter servers.")
    ] = 16,
) -> None:
    """Replay jobs of workers and parameter servers, divided anew in every slot (DL2's world)."""
    from simulate.worlds.slots.comparison import LEARNED, compare  # noqa: PLC0415
    from simulate.worlds.slots.jobs import read_jobs  # noqa: PLC0415
    from simulate.worlds.slots.speeds import read_speeds  # noqa: PLC0415

    names, seeds = several("--policy", policy), seeds_of(seed)
    if options and LEARNED not in names:
        raise BadInput(f"-o {options[0]}: only --policy dl2 has options")
    network = _network(options or []) if LEARNED in names else None
    conditions = slot_conditions(nodes, slot, most)
    surface, trace = read_speeds(speeds, most + 1), read_jobs(jobs)
    results = compare(trace, surface, conditions, names, network=network, seeds=seeds)
    about = {
        "job_id": trace.number.tolist(),
        "model": trace.model,
        "arrival_ts": trace.arrival.tolist(),
    }
    report(
        results,
        FIGURES,
        output,
        about,
        schema="dlsched.slots/1",
        noun="policy",
        told={"jobs": len(trace)},
        prefix="jct_ts_",
    )


def _network(options: list[str]) -> Network:
    """The network of the policy dl2.

    Raises:
        BadInput: no file, or one that holds none.
    """
    from dlsched.composition.network_files import read_network  # noqa: PLC0415

    given = dict(text.partition("=")[::2] for text in options)
    if set(given) != {"model"}:
        raise BadInput("--policy dl2 needs -o model=FILE, and has no other option")
    return read_network(given["model"])


def slot_conditions(nodes: int, slot_s: float, most: int) -> Conditions:
    """The conditions of a slot world, as they were typed.

    Raises:
        BadInput: one of them is out of range.
    """
    from simulate.worlds.slots.world import Conditions  # noqa: PLC0415

    within("--nodes", nodes, 1, MOST_NODES)
    within("--slot", slot_s, 0, open_=True)
    within("--most-workers", most, 1, MOST_WORKERS)
    return Conditions(nodes, slot_s, most)
