"""`dlsched`: the top of the command line.

Verbs are imported when they are called, and no module of a verb imports anything heavy:
`dlsched --help` must cost what typer costs. Every error ends here, as one line on stderr and an
exit code.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from dlsched import __version__
from dlsched.cli.lazy import lazy_group
from dlsched.cli.verbs import VERBS
from dlsched.core.errors import DlschedError

__all__ = ["app", "run"]

app = typer.Typer(
    name="dlsched",
    help="A batch system for deep-learning GPU clusters.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    cls=lazy_group(VERBS),
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"dlsched {__version__}")
        raise typer.Exit


@app.callback()
def _top(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Say it.")
    ] = False,
) -> None:
    """A batch system for deep-learning GPU clusters."""


def run() -> None:
    """Run the command line; DLSCHED_DEBUG=1 shows where an error came from."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal that lacks a sign is no error
    try:
        code = app(standalone_mode=False)
        sys.stdout.flush()
    except BrokenPipeError:
        # the reader has had enough (`| head`); keep the interpreter from flushing once more
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None
    except Exception as error:  # the top of the program: nothing may end in a traceback
        if os.environ.get("DLSCHED_DEBUG", "") not in ("", "0"):
            raise
        text, code = _told(error)
        print(text, file=sys.stderr)
    raise SystemExit(code if isinstance(code, int) else 0)


def _told(error: Exception) -> tuple[str, int]:
    """What the user reads of an error, and the exit code."""
    if isinstance(error, DlschedError):
        return f"dlsched: {_one_line(str(error))}", error.exit_code
    usage = getattr(error, "format_message", None)  # typer's own errors of usage
    if usage is not None:
        text = usage()
        if "\n" in text:  # the help that an incomplete command shows
            return text, 2
        return f"dlsched: {text[:1].lower()}{text[1:]}", 2
    if isinstance(error, typer.Abort):
        return "dlsched: stopped", 1
    if isinstance(error, MemoryError):
        return "dlsched: not enough memory", 1
    return (
        f"dlsched: a defect in dlsched: {_one_line(repr(error))}; DLSCHED_DEBUG=1 shows where",
        1,
    )


def _one_line(text: str) -> str:
    """Whatever it holds, it is one line and does nothing to a terminal."""
    from dlsched.cli.terminal import shown  # noqa: PLC0415  # only errors need it

    return shown(" ".join(text.splitlines()))
