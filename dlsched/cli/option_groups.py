"""How commands declare their options, without loading typer.

A command names a `Record` of options as the type of one of its parameters; typer sees its fields,
the command gets the record. `dlsched.cli.typer_commands` makes what typer reads.
"""

from __future__ import annotations

from typing import Any

from dlsched.record import field


class Declared:
    """An option or an argument, until typer's own object is made of it."""

    __slots__ = ("completed_by", "is_argument", "more", "words")

    def __init__(
        self, *words: str, is_argument: bool = False, completed_by: str = "", **more: Any
    ) -> None:
        self.words = words
        self.is_argument = is_argument
        self.completed_by = completed_by
        self.more = more

    def for_typer(self) -> Any:
        """Typer's object."""
        import typer  # noqa: PLC0415  # costs five times what Python's start does

        more = dict(self.more)
        if self.completed_by:
            from dlsched.cli import completions  # noqa: PLC0415

            more["autocompletion"] = getattr(completions, self.completed_by)
        return (typer.Argument if self.is_argument else typer.Option)(*self.words, **more)


def option(spelling: str, help_: str, **more: Any) -> Any:
    """Declare an option by its words and its value, such as `--since -S TIME`, and its help."""
    *words, last = spelling.split()
    if last.startswith("-"):
        return Declared(*words, last, help=help_, **more)
    return Declared(*words, metavar=last, help=help_, **more)


def argument(metavar: str, help_: str, *, completed_by: str = "") -> Any:
    """Declare an argument by what stands for it in `--help`, and its help.

    Args:
        metavar: what stands for it.
        help_: one line.
        completed_by: the function of `completions` that a shell asks; empty: none.
    """
    return Declared(metavar=metavar, help=help_, is_argument=True, completed_by=completed_by)


def typed(spelling: str, help_: str, *, default: Any = None, mark: str = "", **more: Any) -> Any:
    """Declare a field of a group as an `option`; `mark` is added to the metadata of its type."""
    declared = option(spelling, help_, **more)
    return field(default=default, metadata={"typed": (declared, mark) if mark else (declared,)})
