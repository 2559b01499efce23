"""`dlsched quickstart`: a whole cluster on this machine for a minute, with jobs that share it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["quickstart_command"]


def quickstart_command(
    folder: Annotated[
        Path | None, typer.Option("--folder", help="Where to keep it all. [default: a new one]")
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the cluster running, and say how to use it.")
    ] = False,
    pretend: Annotated[
        bool, typer.Option("--pretend", help="Pretend GPUs also where there are real ones.")
    ] = False,
    stop: Annotated[
        Path | None, typer.Option("--stop", metavar="FOLDER", help="End a cluster that was kept.")
    ] = None,
) -> None:
    """Start a daemon and agents, train on them, look at what happened; clean up.

    Everything is real, but for the GPUs where this machine has none: jobs are preempted by the
    policy and go on from their checkpoints, and their history is replayed under other policies.
    """
    from dlsched.quickstart.show import quickstart, stop_quickstart  # noqa: PLC0415

    if stop is not None:
        stop_quickstart(stop)
        return
    raise typer.Exit(quickstart(folder, keep=keep, pretend=pretend))
