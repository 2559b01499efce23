"""`dlsched slots`: jobs with workers and parameter servers, divided anew in every slot."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dlsched.cli.option_groups import option
from dlsched.core.errors import BadInput, not_known

if TYPE_CHECKING:
    from simulate.slots.baselines import Divide
    from simulate.slots.jobs import SlotJobs
    from simulate.slots.world import Conditions, SlotOutcome

SCHEMA = "dlsched.slots/1"
LEARNED = "dl2"
MOST_NODES, MOST_WORKERS = 100_000, 256


def slots_command(
    jobs: Annotated[Path, typer.Argument(metavar="JOBS", help="A CSV file of jobs.")],
    speeds: Annotated[
        Path, option("--speeds FILE", "Measured speeds by model, servers and workers, CSV.")
    ],
    nodes: Annotated[int, option("--nodes N", "Nodes, each with 8 processors and 2 GPUs.")],
    policy: Annotated[
        str, option("--policy NAME,…", "drf, fifo, srtf, tetris, optimus, dl2.")
    ] = "drf,fifo,srtf,tetris,optimus",
    options: Annotated[
        list[str] | None, option("-o --option KEY=VALUE", "model=FILE: the network of dl2.")
    ] = None,
    seed: Annotated[int, option("--seed N", "Of the actions that dl2 draws.")] = 0,
    slot: Annotated[float, option("--slot S", "Seconds of a slot.")] = 1200.0,
    most: Annotated[
        int, option("--most-workers N", "Of a job, and as many parameter servers.")
    ] = 16,
    jobs_out: Annotated[
        Path | None, option("--jobs-out FILE", "Slots of each job under each policy, CSV.")
    ] = None,
    as_json: Annotated[bool, option("--json", "One JSON object.")] = False,
) -> None:
    """Replay jobs of workers and parameter servers, divided anew in every slot (DL2's world)."""
    from simulate.slots.baselines import BASELINES  # noqa: PLC0415
    from simulate.slots.jobs import read_jobs  # noqa: PLC0415
    from simulate.slots.speeds import read_speeds  # noqa: PLC0415
    from simulate.slots.world import SlotWorld, run_slots  # noqa: PLC0415

    names = [name.strip() for name in policy.split(",") if name.strip()]
    divides: dict[str, Divide] = {}
    for name in names:
        if name not in (*BASELINES, LEARNED):
            raise not_known("--policy:", name, [*BASELINES, LEARNED])
        divides[name] = _learned(options or [], seed) if name == LEARNED else BASELINES[name]
    if options and LEARNED not in names:
        raise BadInput(f"-o {options[0]}: only --policy dl2 has options")
    conditions = slot_conditions(nodes, slot, most)
    surface = read_speeds(speeds, most + 1)
    trace = read_jobs(jobs)
    outcomes = {
        name: run_slots(SlotWorld(trace, surface, conditions), divide)
        for name, divide in divides.items()
    }
    if jobs_out is not None:
        _write_jobs(jobs_out, trace, outcomes)
    if as_json:
        told = {"schema": SCHEMA, "jobs": len(trace), "results": _told(outcomes)}
        typer.echo(json.dumps(told, allow_nan=False))
        return
    for line in _lines(outcomes):
        typer.echo(line)


def _learned(options: list[str], seed: int) -> Divide:
    """The policy dl2 with its network.

    Raises:
        BadInput: no file, or one that is of no such network.
    """
    import numpy as np  # noqa: PLC0415

    from dlsched.composition.network_files import read_network  # noqa: PLC0415
    from simulate.slots.learned import LearnedSlots  # noqa: PLC0415

    given = dict(text.partition("=")[::2] for text in options)
    if set(given) != {"model"}:
        raise BadInput("--policy dl2 needs -o model=FILE, and has no other option")
    return LearnedSlots(read_network(given["model"]), np.random.default_rng(seed))


def slot_conditions(nodes: int, slot_s: float, most: int) -> Conditions:
    """The conditions of a slot world, as they were typed.

    Raises:
        BadInput: one of them is out of range.
    """
    from simulate.slots.world import Conditions  # noqa: PLC0415

    if not 1 <= nodes <= MOST_NODES:
        raise BadInput(f"--nodes must be from 1 to {MOST_NODES:,}, not {nodes}")
    if not 0 < slot_s < float("inf"):
        raise BadInput(f"--slot must be above 0, not {slot_s:g}")
    if not 1 <= most <= MOST_WORKERS:
        raise BadInput(f"--most-workers must be from 1 to {MOST_WORKERS}, not {most}")
    return Conditions(nodes, slot_s, most)


def _told(outcomes: dict[str, SlotOutcome]) -> list[dict[str, object]]:
    return [
        {
            "policy": name,
            "avg_jct_slots": float(each.completion.mean()),
            "makespan_slots": each.makespan,
            "avg_reward": float(each.rewards.mean()),
            "slots": len(each.rewards),
        }
        for name, each in outcomes.items()
    ]


def _lines(outcomes: dict[str, SlotOutcome]) -> list[str]:
    from dlsched.cli.replay.text_table import TextTable  # noqa: PLC0415

    table = TextTable()
    table.add("Policy", list(outcomes), left=True)
    runs = list(outcomes.values())
    table.add("Avg JCT (slots)", [f"{each.completion.mean():.3f}" for each in runs])
    table.add("Makespan (slots)", [f"{each.makespan:.3f}" for each in runs])
    table.add("Avg reward", [f"{each.rewards.mean():.3f}" for each in runs])
    return list(table.lines())


def _write_jobs(path: Path, jobs: SlotJobs, outcomes: dict[str, SlotOutcome]) -> None:
    from dlsched.cli.output.csv_cells import plain_cell  # noqa: PLC0415
    from dlsched.cli.output.file_output import save  # noqa: PLC0415

    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(("job_id", "model", "arrival_ts", *(f"jct_ts_{name}" for name in outcomes)))
    for place, number in enumerate(jobs.number.tolist()):
        found = (repr(float(each.completion[place])) for each in outcomes.values())
        table.writerow((number, plain_cell(jobs.model[place]), jobs.arrival.item(place), *found))
    save([text.getvalue().encode()], str(path))
    print(f"dlsched: {path}: {len(jobs)} jobs", file=sys.stderr)
