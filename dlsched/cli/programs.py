"""`dlsched run`, `daemon`, `agent`, `login`, `quickstart`: they start another program of ours."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Annotated

import typer

from dlsched.cli.extras import check_installed
from dlsched.cli.option_groups import option

Words = Annotated[
    list[str] | None, typer.Argument(help="Options of the program; see its `--help`.")
]


def run_command(words: Annotated[list[str] | None, typer.Argument(help="COMMAND.")] = None) -> None:
    """Start ranks inside an allocation."""
    from dlsched.job import launch  # noqa: PLC0415  # only this command needs it

    raise SystemExit(launch.main(words or []))


def daemon_command(words: Words = None) -> None:
    """Run the daemon in the foreground."""
    _run_service("daemon", "dlsched.daemon.__main__", words or [])


def agent_command(words: Words = None) -> None:
    """Run a node's agent in the foreground."""
    _run_service("agent", "dlsched.nodeagent.__main__", words or [])


def login_command(words: Words = None) -> None:
    """Run the service of a login node, by which its users reach the daemon without tokens."""
    _run_service("agent", "dlsched.rpc.login_node", words or [])


def quickstart_command(
    folder: Annotated[
        Path | None, option("--folder", "Folder for everything. [default: a temporary one]")
    ] = None,
    keep: Annotated[
        bool, option("--keep", "Leave the cluster running and print how to use it.")
    ] = False,
    pretend: Annotated[
        bool, option("--pretend", "Pretend GPUs even if this machine has real ones.")
    ] = False,
    stop: Annotated[Path | None, option("--stop FOLDER", "End a cluster that was kept.")] = None,
) -> None:
    """Start a daemon and agents, run trainings on them, show what happened, and clean up.

    Everything is real, except the GPUs if this machine has none: the policy preempts jobs, they
    continue from their checkpoints, and their history is replayed under other policies.
    """
    check_installed("daemon", "agent")
    from dlsched.quickstart.demonstration import quickstart, stop_quickstart  # noqa: PLC0415

    if stop is not None:
        stop_quickstart(stop)
        return
    raise SystemExit(quickstart(folder, keep=keep, pretend=pretend))


def _run_service(extra: str, module: str, words: list[str]) -> None:
    check_installed(extra)
    code = importlib.import_module(module).main(words)
    raise SystemExit(int(code or 0))
