"""What typer reads of a command: its parameters, those of its groups of options, one by one."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperCommand, TyperOption

from dlsched.cli.option_groups import Declared
from dlsched.core.errors import BadInput
from dlsched.record import Record


class Command(TyperCommand):
    """A command whose options have values: `--`, which ends the options, is none."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the words as typer does.

        Raises:
            BadInput: an option is the last word, or `--` follows it, and it needs a value.
        """
        if not ctx.resilient_parsing:  # which a shell asks for that completes a line
            self._check_values(ctx, iter(args))
        return super().parse_args(ctx, args)

    def _check_values(self, ctx: Any, words: Iterator[str]) -> None:
        with_value = {
            spelling
            for each in self.get_params(ctx)
            if isinstance(each, TyperOption) and not (each.is_flag or each.count)
            for spelling in each.opts
        }
        for word in words:
            is_argument = word[:1] != "-" or word == "-"  # which is standard input
            if is_argument and ctx.allow_interspersed_args:
                continue
            if is_argument or word == "--":
                return
            option = word
            if word[:2] != "--":  # letters: one that takes a value takes the letters behind it
                places = (k for k in range(1, len(word)) if f"-{word[k]}" in with_value)
                option = f"-{word[next(places, len(word)) :]}"
            if option in with_value and next(words, "--") == "--":
                raise BadInput(f"{option}: needs a value")


class CommandGroup(typer.Typer):
    """A group of commands; without a command it prints its help."""

    def __init__(self, help_: str) -> None:
        super().__init__(
            add_completion=False, help=help_, no_args_is_help=True, rich_markup_mode=None
        )

    def command(self, *names: Any, **settings: Any) -> Callable[[Any], Any]:
        """Register a command, as typer does."""
        register = super().command(*names, **{"cls": Command} | settings)

        def registered(command: Any) -> Any:
            register(for_typer(command))
            return command

        return registered


def option_hints(group: type[Record]) -> dict[str, Any]:
    """Return the annotated types of a group's fields, as typer reads them."""
    hints = get_type_hints(group, include_extras=True)
    return {
        each.name: _read_by_typer(
            Annotated[hints[each.name], *each.metadata["typed"]]
            if "typed" in each.metadata
            else hints[each.name]
        )
        for each in fields(group)
    }


def for_typer(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command of which typer reads each option, also those in groups.

    A group is a parameter of a `Record`; its fields are `typed`, or annotated. All names of fields
    and parameters must differ. The annotation of `**given` lists further options, each as its name,
    its annotated type and its default.
    """
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, type[Record]] = {}
    parameters: list[inspect.Parameter] = []

    def add(name: str, hint: Any, default: Any) -> None:
        kind = inspect.Parameter.KEYWORD_ONLY
        parameters.append(
            inspect.Parameter(name, kind, annotation=_read_by_typer(hint), default=default)
        )

    for parameter in inspect.signature(command).parameters.values():
        hint = hints[parameter.name]
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            for further in get_args(hint)[1]:
                add(*further)
        elif isinstance(hint, type) and issubclass(hint, Record):
            groups[parameter.name] = hint
            of_fields = option_hints(hint)
            for each in fields(hint):
                default = inspect.Parameter.empty if each.default is MISSING else each.default
                add(each.name, of_fields[each.name], default)
        else:
            add(parameter.name, hint, parameter.default)

    @functools.wraps(command)
    def called(**given: Any) -> None:
        made = {
            name: group(**{each.name: given.pop(each.name) for each in fields(group)})
            for name, group in groups.items()
        }
        command(**made, **given)

    seen: Any = called
    seen.__signature__ = inspect.Signature(parameters)
    seen.__annotations__ = {each.name: each.annotation for each in parameters}
    return called


def _read_by_typer(hint: Any) -> Any:
    """The same type with typer's own objects in the place of what was declared."""
    if get_origin(hint) is not Annotated:
        return hint
    kind, *metadata = get_args(hint)
    made = (each.for_typer() if isinstance(each, Declared) else each for each in metadata)
    return Annotated[kind, *made]
