"""The whole command line, as typer reads it: all commands, `--help`, completion, wrong usage."""

from __future__ import annotations

from typing import Annotated

import typer

from dlsched import __version__
from dlsched.cli.command_table import COMMANDS, lazy_group
from dlsched.cli.option_groups import option
from dlsched.cli.typer_commands import for_typer

app = typer.Typer(
    name="dlsched",
    help="A batch system for deep-learning GPU clusters.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    cls=lazy_group(COMMANDS),
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"dlsched {__version__}")
        raise typer.Exit


def _top(
    version: Annotated[
        bool,
        option("--version", "Show the version and exit.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    """A batch system for deep-learning GPU clusters."""


app.callback()(for_typer(_top))
