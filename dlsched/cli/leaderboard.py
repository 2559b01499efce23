"""`dlsched leaderboard`: all policies on the same traces, loads and seeds; one page of tables."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated

import typer

from dlsched.cli.option_groups import option
from dlsched.cli.output.file_output import check_writable, save
from dlsched.cli.replay.option_values import loads as option_loads
from dlsched.core.errors import BadInput, not_known


def leaderboard_command(
    output: Annotated[Path, option("--output -o FILE", "The page, in Markdown.")] = Path(
        "leaderboard.md"
    ),
    kept: Annotated[
        Path, option("--resume DIR", "Finished runs are kept here and not run again.")
    ] = Path("leaderboard-runs"),
    division: Annotated[
        str,
        option("--division NAME,…", "rigid, deadlines, elastic, types, sharing. [default: all]"),
    ] = "",
    track: Annotated[
        str,
        option("--track NAME,…", "philly, helios, pai, philly-like, venus-like. [default: all]"),
    ] = "",
    policy: Annotated[str, option("--policy NAME,…", "Only these. [default: all]")] = "",
    jobs: Annotated[int, option("--jobs N", "Of each trace.", min=10)] = 1000,
    loads: Annotated[str, option("--load X,…", "Offered loads.")] = "0.7,0.9,1.1",
    seeds: Annotated[int, option("--seeds N", "Traces of each kind.", min=1)] = 5,
    data: Annotated[
        Path | None, option("--data DIR", "Of recorded traces; default: $DLSCHED_DATA.")
    ] = None,
    traces: Annotated[
        list[str] | None, option("--trace TRACK=FILE", "A recorded trace of your own; repeat it.")
    ] = None,
    workloads: Annotated[
        Path | None, option("--workloads FILE", "What jobs train, for the division sharing.")
    ] = None,
    executor: Annotated[
        str, option("--executor HOW", "processes, processes:N or dask://HOST:PORT.")
    ] = "processes",
) -> None:
    """Run every policy on the same traces and write one page of tables.

    Hours on two processors; what has been run is kept, so it may be interrupted.
    """
    from simulate.leaderboard.divisions import DIVISIONS, GENERATED, RECORDED  # noqa: PLC0415
    from simulate.leaderboard.page import page_of  # noqa: PLC0415
    from simulate.leaderboard.playing import Games, entries_of, play  # noqa: PLC0415
    from simulate.profiles.workloads import read_workloads  # noqa: PLC0415

    known = (*RECORDED, *GENERATED)
    offered = [load for load in option_loads(loads) if load is not None]
    wanted = _names("division", division, DIVISIONS)
    files = _files(data, traces or (), RECORDED)
    names = _names("track", track, known)
    policies = [name.strip() for name in policy.split(",") if name.strip()]
    taking_part = {each.policy for name in wanted for each in entries_of(name, ())}
    for name in policies:
        if name not in taking_part:
            raise not_known("policy of the leaderboard", name, sorted(taking_part))
    missing = [name for name in names if name in RECORDED and name not in files]
    if missing and track:
        raise BadInput(
            f"no recorded trace of {missing[0]}: --data DIR, or --trace {missing[0]}=FILE"
        )
    for name in missing:
        print(f"{name}: no recorded trace; left out", file=sys.stderr)
    there = [name for name in names if name not in missing]
    check_writable("--output", output)
    games = Games(
        files=files,
        jobs=jobs,
        loads=offered,
        seeds=range(1, seeds + 1),
        executor=executor,
        kept=kept,
        workloads=None if workloads is None else read_workloads(workloads),
    )
    played = []
    for name in wanted:
        each = DIVISIONS[name]
        tracks = [one for one in each.tracks if one in there]
        entries = entries_of(name, policies)
        if not tracks or not entries:
            continue
        if each.workloads and workloads is None:
            print(f"{name}: left out: it needs --workloads FILE", file=sys.stderr)
            continue
        total = len(entries) * len(tracks) * len(games.loads) * len(games.seeds)
        played.append(play(each, tracks, entries, games, _progress(name, total)))
        save([page_of(played, games).encode()], str(output))
    if not played:
        raise BadInput("nothing to run: no division has these tracks and policies")
    typer.echo(f"{output}: {sum(len(each.summaries) for each in played)} runs")


def _progress(division: str, total: int) -> Callable[[str], None]:
    done = itertools.count(1)

    def finished(title: str) -> None:
        print(f"{division}: {next(done)} of {total}: {title}", file=sys.stderr)

    return finished


def _names(option: str, text: str, known: Iterable[str]) -> list[str]:
    """The names of a comma-separated option; all that are known where it has none."""
    found = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if lost := [name for name in found if name not in known]:
        raise not_known(f"--{option}", lost[0], known)
    return found or list(known)


def _files(
    data: Path | None, given: Iterable[str], below_data: Mapping[str, str]
) -> dict[str, Path]:
    """The recorded traces that there are, by track."""
    if data is not None and not data.is_dir():
        raise BadInput(f"--data: no folder {data}")
    folder = data or (Path(text) if (text := os.environ.get("DLSCHED_DATA")) else None)
    found = {
        track: folder / name
        for track, name in below_data.items()
        if folder is not None and (folder / name).exists()
    }
    for text in given:
        track, _, name = text.partition("=")
        if track not in below_data or not name:
            known = ", ".join(below_data)
            raise BadInput(f"--trace must be TRACK=FILE with a track of {known}, not {text!r}")
        if not Path(name).exists():
            raise BadInput(f"--trace {track}: no file {name}")
        found[track] = Path(name)
    return found
