"""Options that belong together, spelled once as the fields of a dataclass.

A command names such a dataclass as the type of one of its parameters; typer sees the fields, the
command gets the dataclass.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, field, fields, is_dataclass
from typing import Annotated, Any, get_type_hints

import typer


def option(spelling: str, help_: str, **more: Any) -> Any:
    """Declare an option by its words and its value, such as `--since -S TIME`, and its help."""
    *words, last = spelling.split()
    if last.startswith("-"):
        return typer.Option(*words, last, help=help_, **more)
    return typer.Option(*words, metavar=last, help=help_, **more)


def typed(spelling: str, help_: str, *, default: Any = None, mark: str = "", **more: Any) -> Any:
    """Declare a field of a group as an `option`; `mark` is added to the metadata of its type."""
    declared = option(spelling, help_, **more)
    return field(default=default, metadata={"typed": (declared, mark) if mark else (declared,)})


def command_group(help_: str) -> typer.Typer:
    """Make a group of commands; without a command it prints its help."""
    return typer.Typer(
        add_completion=False, help=help_, no_args_is_help=True, rich_markup_mode=None
    )


def option_hints(group: Any) -> dict[str, Any]:
    """Return the annotated types of a group's fields, as typer reads them."""
    hints = get_type_hints(group, include_extras=True)
    return {
        each.name: Annotated[hints[each.name], *each.metadata["typed"]]
        if "typed" in each.metadata
        else hints[each.name]
        for each in fields(group)
    }


def with_option_groups(
    command: Callable[..., None], further: Sequence[inspect.Parameter] = ()
) -> Callable[..., None]:
    """Return a command in which typer reads the fields of dataclass parameters.

    The fields are `typed`, or annotated as typer wants it. All names of fields and parameters must
    differ. Further parameters are the options that the command takes as `**given`.
    """
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {}
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        hint = hints[parameter.name]
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            parameters += further
        elif is_dataclass(hint):
            groups[parameter.name] = hint
            field_hints = option_hints(hint)
            parameters += [_parameter(each, field_hints[each.name]) for each in fields(hint)]
        else:
            kind = inspect.Parameter.KEYWORD_ONLY
            parameters.append(parameter.replace(annotation=hint, kind=kind))

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


def _parameter(field: Field[Any], annotation: Any) -> inspect.Parameter:
    return inspect.Parameter(
        field.name,
        inspect.Parameter.KEYWORD_ONLY,
        annotation=annotation,
        default=inspect.Parameter.empty if field.default is MISSING else field.default,
    )
