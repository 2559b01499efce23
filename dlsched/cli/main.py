"""`dlsched`: the top of the command line.

Nothing heavy is imported here: `dlsched --help` must cost what typer costs.
"""

from __future__ import annotations

import sys

import typer

from dlsched.core.errors import DlschedError

__all__ = ["app", "run"]

app = typer.Typer(
    name="dlsched",
    help="A batch system for deep-learning GPU clusters.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def run() -> None:
    """Run the command line; a user's error is one line on stderr and its exit code."""
    try:
        app()
    except DlschedError as error:
        print(f"dlsched: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from None
