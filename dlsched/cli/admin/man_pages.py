"""`dlsched admin man-pages`: manual pages of all commands, made of the same texts as their help."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from dlsched import __version__
from dlsched.core.errors import DlschedError, plural

_CODES = (
    ("0", "Done."),
    ("1", "The cluster refuses, or something failed on the way; one line says what."),
    ("2", "The call is wrong; nothing was done."),
)
_ENVIRONMENT = (
    ("DLSCHED_DAEMON", "Where the daemon is, as for --daemon."),
    ("DLSCHED_SUBMIT_…", "Options of submit by their names, for example DLSCHED_SUBMIT_TIME."),
    ("DLSCHED_DEBUG", "1 shows where in the program an error came from."),
    ("NO_COLOR", "Any value: no colours."),
)


def man_pages_command(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Such as /usr/share/man/man1.")],
) -> None:
    """Write a manual page for each command, for `man dlsched-submit`."""
    from dlsched.cli.typer_app import app  # noqa: PLC0415

    top: Any = typer.main.get_command(app)
    pages = dict(_pages("dlsched", top, typer.Context(top, info_name="dlsched")))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in pages.items():
            (folder / f"{name}.1").write_text(text, encoding="utf-8")
    except OSError as error:
        raise DlschedError(f"{error.filename}: cannot be written ({error.strerror})") from None
    typer.echo(f"{plural(len(pages), 'page')} written to {folder}")


def _pages(name: str, command: Any, ctx: Any) -> Iterator[tuple[str, str]]:
    """The pages of a command and of those below it, by name."""
    below = {
        word: found
        for word in (command.list_commands(ctx) if hasattr(command, "list_commands") else ())
        if not (found := command.get_command(ctx, word)).hidden
    }
    yield name, "\n".join(_lines(name, command, ctx, below)) + "\n"
    for word, found in below.items():
        inner = typer.Context(found, info_name=word, parent=ctx)
        yield from _pages(f"{name}-{word}", found, inner)


def _lines(name: str, command: Any, ctx: Any, below: dict[str, Any]) -> Iterator[str]:
    first, _, more = (command.help or "").partition("\n\n")
    summary = " ".join(first.split()).rstrip(".")
    yield f'.TH "{_text(name.upper())}" 1 "" "dlsched {__version__}" "dlsched"'
    yield from (".SH NAME", f"{_text(name)} \\- {_text(summary)}")
    words = " ".join(command.collect_usage_pieces(ctx))
    yield from (".SH SYNOPSIS", f".B {_text(ctx.command_path)}", _text(words))
    if more:
        yield ".SH DESCRIPTION"
        for paragraph in more.split("\n\n"):
            yield from (".PP", _text(" ".join(paragraph.split())))
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    yield from _section(
        "ARGUMENTS", [(each.make_metavar(ctx), each.help or "") for each in arguments if each.help]
    )
    options = [each.get_help_record(ctx) for each in command.params if each not in arguments]
    yield from _section("OPTIONS", [record for record in options if record is not None])
    yield from _section(
        "COMMANDS", [(word, found.get_short_help_str(400)) for word, found in below.items()]
    )
    if ctx.parent is None:
        yield from _section("EXIT STATUS", _CODES)
        yield from _section("ENVIRONMENT", _ENVIRONMENT)
    others = [f"{name}-{word}" for word in below]
    others += [name.rpartition("-")[0]] if ctx.parent is not None else []
    yield from (".SH SEE ALSO", ", ".join(f"\\fB{_text(other)}\\fR(1)" for other in others))


def _section(title: str, rows: Any) -> Iterator[str]:
    """A list of words and what they mean; nothing where there are none."""
    if rows:
        yield f".SH {title}"
    for words, meaning in rows:
        yield from (".TP", f"\\fB{_text(words)}\\fR", _text(" ".join(meaning.split())))


def _text(text: str) -> str:
    """A line as roff reads it."""
    plain = text.replace("\\", "\\e").replace("-", "\\-")
    plain = "".join(c if c.isascii() else f"\\[u{ord(c):04X}]" for c in plain)
    return f"\\&{plain}" if plain[:1] in {".", "'"} else plain
