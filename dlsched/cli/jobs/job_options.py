"""Options of commands that come from the table of job fields."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from dlsched.cli.option_groups import option as declared
from dlsched.client.submission.options import put_typed
from dlsched.jobs.field import Option

_KINDS: dict[str, Any] = {"flag": bool, "many": list[str] | None, "value": str | None}


def job_options(options: Iterable[Option]) -> list[tuple[str, Any, Any]]:
    """Return the name, the annotated type and the default of rows of the table, for typer."""
    annotated: Any = Annotated
    return [
        (
            option.name,
            annotated[
                _KINDS[option.kind],
                declared(" ".join([*option.words, option.metavar]), option.help),
            ],
            False if option.kind == "flag" else None,
        )
        for option in options
    ]


def layer_of(given: Mapping[str, Any], options: Iterable[Option]) -> dict[str, str]:
    """Return the values that typer read as a layer of options: texts by key.

    Raises:
        BadInput: a value is malformed.
    """
    layer: dict[str, str] = {}
    for option in options:
        value = given.get(option.name)
        if value is None or value is False or value == []:
            continue
        for text in value if isinstance(value, list) else [value]:
            put_typed(layer, option, option.words[-1], "yes" if text is True else text)
    return layer
