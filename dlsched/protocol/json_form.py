"""Frozen values as JSON and back, by their annotations: for the database's rows and a node's files.

Text that an earlier version wrote stays readable: a field that is missing takes its default. What
does not fit its annotation is refused, never guessed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from dlsched.core.errors import BadInput

T = TypeVar("T")


def plain(value: object) -> Any:
    """The value as JSON has it: dataclasses as objects, enums by value, bytes in base64."""
    return msgspec.to_builtins(value, enc_hook=_plain)


def _plain(value: object) -> object:
    """The plain form of what the library does not know: other mappings, NumPy's floats."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, float):
        return float(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


def dumps(value: object) -> str:
    """The value as JSON text, ASCII only and without spaces."""
    return json.dumps(plain(value), separators=(",", ":"))


def value_of(kind: type[T], data: object, *, exact: bool = False) -> T:
    """The value in parsed JSON.

    `exact` refuses fields that `kind` does not have; else they are dropped.

    Raises:
        BadInput: when the data is not such a value.
    """
    try:
        found = msgspec.convert(data, kind)
    except ValueError as error:
        raise BadInput(f"not a {_name(kind)}: {error}") from None
    if exact and (field := _unknown_field(data, plain(found))):
        raise BadInput(f"not a {_name(kind)}: unknown field {field}")
    return found


def loads(kind: type[T], text: str | bytes, *, exact: bool = False) -> T:
    """The value in JSON text; bytes are UTF-8 with Python's escapes for other bytes.

    Raises:
        BadInput: when the text is not such a value.
    """
    try:
        given = text if isinstance(text, str) else text.decode("utf-8", "surrogateescape")
        data = json.loads(given)
    except ValueError as error:
        raise BadInput(f"not a {_name(kind)}: {error}") from None
    return value_of(kind, data, exact=exact)


def _unknown_field(data: object, known: object) -> str | None:
    """A field of the data that has not become part of the value."""
    pairs: Any = ()
    if isinstance(data, dict) and isinstance(known, dict):
        if unknown := data.keys() - known.keys():
            return str(min(unknown))
        pairs = ((value, known[name]) for name, value in data.items())
    elif isinstance(data, list) and isinstance(known, list | tuple):
        pairs = zip(data, known, strict=True)
    return next((name for pair in pairs if (name := _unknown_field(*pair))), None)


def _name(kind: object) -> str:
    return getattr(kind, "__name__", str(kind))
