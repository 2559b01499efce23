"""`dlsched`: the top of the command line.

A command is imported when it is called, and its module imports nothing heavy: `dlsched --help` must
cost no more than typer costs. Every error ends here, as one line on stderr and an exit code.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from dlsched import __version__
from dlsched.cli.command_table import COMMANDS, lazy_group
from dlsched.cli.extras import hint_of
from dlsched.cli.option_groups import option
from dlsched.core.errors import DlschedError

# the new names of options that have been renamed
RENAMED_OPTIONS = {"--courses-out": "--trajectories-out"}

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


@app.callback()
def _top(
    version: Annotated[
        bool,
        option("--version", "Show the version and exit.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    """A batch system for deep-learning GPU clusters."""


def run() -> None:
    """Run the command line; DLSCHED_DEBUG=1 shows where an error came from."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a sign that the terminal lacks is no error
    try:
        code = app(standalone_mode=False)
        sys.stdout.flush()
    except BrokenPipeError:
        # the reader ended (`| head`): keep the interpreter from flushing once more
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None
    except Exception as error:  # no error of the program may print a traceback
        if os.environ.get("DLSCHED_DEBUG", "") not in ("", "0"):
            raise
        text, code = _message_of(error)
        print(text, file=sys.stderr)
    raise SystemExit(code if isinstance(code, int) else 0)


def _message_of(error: Exception) -> tuple[str, int]:
    """Return the message of an error for the user, and the exit code."""
    if isinstance(error, DlschedError):
        return f"dlsched: {_one_line(str(error))}", error.exit_code
    usage = getattr(error, "format_message", None)  # typer's own errors of usage
    if usage is not None:
        text = usage()
        if "\n" in text:  # the help that an incomplete command shows
            return text, 2
        option = getattr(error, "option_name", "")
        if option in RENAMED_OPTIONS:
            text = f"{option} is now called {RENAMED_OPTIONS[option]}"
        return f"dlsched: {text[:1].lower()}{text[1:]}", 2
    if isinstance(error, typer.Abort):
        return "dlsched: stopped", 1
    if isinstance(error, MemoryError):
        return "dlsched: not enough memory", 1
    hint = hint_of(error.name) if isinstance(error, ModuleNotFoundError) else ""
    defect = f"a defect in dlsched: {_one_line(repr(error))}; DLSCHED_DEBUG=1 shows where"
    return f"dlsched: {hint or defect}", 1


def _one_line(text: str) -> str:
    """Return a text as one line that a terminal only prints."""
    from dlsched.cli.output.terminal import shown  # noqa: PLC0415  # only errors need it

    return shown(" ".join(text.splitlines()))
