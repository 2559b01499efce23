"""`dlsched`: where a command line begins and ends.

A plain line of a frequent command is read by `plain_lines`, all others by typer. A command is
imported when it is called, and its module imports nothing heavy: `dlsched --help` must cost no more
than typer costs. Every error ends here, as one line on stderr and an exit code.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from dlsched.cli.output.closed_output import (
    UNTOLD,
    give_up_output,
    open_closed_output,
    why_untold,
)
from dlsched.cli.plain_lines import plain_call
from dlsched.core.errors import DlschedError

# the new names of options that have been renamed
RENAMED_OPTIONS = {"--courses-out": "--trajectories-out"}
INTERRUPTED = 130


def run() -> None:
    """Run the command line; DLSCHED_DEBUG=1 shows where an error came from."""
    open_closed_output()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a sign that the terminal lacks is no error
    try:
        code = _run(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:
        give_up_output()  # the reader ended (`| head`)
        raise SystemExit(1) from None
    except Exception as error:  # no error of the program may print a traceback
        if why := why_untold(error):
            print(f"dlsched: standard output: {why}", file=sys.stderr)
            raise SystemExit(UNTOLD) from None
        if os.environ.get("DLSCHED_DEBUG", "") not in ("", "0"):
            raise
        text, code = _message_of(error)
        print(text, file=sys.stderr)
    raise SystemExit(code if isinstance(code, int) else 0)


def _run(words: list[str]) -> Any:
    """Call the command that some words name; return its exit code, or None."""
    call = plain_call(words)
    try:
        if call is not None:
            return call()
        from dlsched.cli.typer_app import app  # noqa: PLC0415  # costs more than many commands

        return app(standalone_mode=False)
    except SystemExit as end:
        return end.code
    except KeyboardInterrupt:
        return INTERRUPTED


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
    import typer  # noqa: PLC0415

    from dlsched.cli.extras import hint_of  # noqa: PLC0415

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
