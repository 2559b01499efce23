"""Groups of verbs that are imported only when they are called.

The help of a group comes from its table, so that `dlsched --help` costs what typer costs however
many verbs there are.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["LazyVerb", "lazy_group"]


@dataclass(frozen=True, slots=True)
class LazyVerb:
    """Where a verb is, `module:name` of a function or a `typer.Typer`, and its line of help."""

    where: str
    help: str
    passes: bool = False  # hands all its words on, as they are


def lazy_group(verbs: Mapping[str, LazyVerb]) -> type[TyperGroup]:
    """A group class that makes its commands out of a table, one by one."""

    class LazyGroup(TyperGroup):
        """The verbs of a table, and those registered in the usual way."""

        def list_commands(self, ctx: Any) -> list[str]:
            return [*verbs, *(name for name in super().list_commands(ctx) if name not in verbs)]

        def get_command(self, ctx: Any, cmd_name: str) -> Any:
            found = super().get_command(ctx, cmd_name)
            if found is None and cmd_name in verbs:
                found = _made(cmd_name, verbs[cmd_name])
                self.commands[cmd_name] = found
            return found

        def format_commands(self, ctx: Any, formatter: Any) -> None:
            rows = list(self._rows(ctx))
            if rows:
                with formatter.section("Commands"):
                    formatter.write_dl(rows)

        def _rows(self, ctx: Any) -> Iterator[tuple[str, str]]:
            for name in self.list_commands(ctx):
                if name in verbs:
                    yield name, verbs[name].help
                else:
                    command = super().get_command(ctx, name)
                    if command is not None and not command.hidden:
                        yield name, command.get_short_help_str(70)

    return LazyGroup


def _made(name: str, verb: LazyVerb) -> Any:
    module, _, attribute = verb.where.partition(":")
    found = getattr(importlib.import_module(module), attribute)
    if isinstance(found, typer.Typer):
        command: Any = typer.main.get_command(found)
        command.name = name
        return command
    lone = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    settings: dict[str, Any] = (
        {"ignore_unknown_options": True, "help_option_names": [], "allow_interspersed_args": False}
        if verb.passes
        else {}
    )
    lone.command(name, context_settings=settings)(found)
    return typer.main.get_command(lone)
