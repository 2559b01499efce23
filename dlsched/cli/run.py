"""`dlsched run`: hand every word on to the job library, which has the command."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["run_command"]


def run_command(words: Annotated[list[str] | None, typer.Argument(help="COMMAND.")] = None) -> None:
    """Start ranks inside an allocation."""
    from dlsched.job import launch  # noqa: PLC0415  # the help of the others does without

    raise typer.Exit(launch.main(words or []))
