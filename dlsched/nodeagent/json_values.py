"""Frozen dataclasses of the protocol as JSON and back, by their type hints.

Agents and keepers use it for messages between them and for records on disk; its imports are light
enough for a keeper. A value that does not fit its type raises `BadInput`, so a damaged record is
noticed where it is read.
"""

from __future__ import annotations

import base64
import dataclasses
import functools
import json
import types
import typing
from enum import Enum
from typing import Any, TypeVar

from dlsched.core.errors import BadInput

T = TypeVar("T")
# what reading a message that is not as expected may raise
UNCLEAR = (BadInput, LookupError, TypeError, ValueError, AttributeError, ArithmeticError)
Decoder = typing.Callable[[Any], Any]


def plain(value: Any) -> Any:
    """Return a value that JSON does not have as one that it has: a dataclass as an object.

    What is in it stays as it is: an encoder with `default=plain` asks again for each such value.
    """
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, frozenset):
        return sorted(value)
    return {name: getattr(value, name) for name in value.__dataclass_fields__}


_text = json.JSONEncoder(
    separators=(",", ":"), ensure_ascii=False, check_circular=False, default=plain
).encode


def dumps(value: Any) -> bytes:
    """Return a value as JSON text in UTF-8."""
    return _text(value).encode("utf-8", "surrogateescape")


def loads(kind: type[T], data: bytes) -> T:
    """Read a value of a type from JSON text.

    Raises:
        BadInput: when it is not one of this type.
    """
    try:
        given = json.loads(data.decode("utf-8", "surrogateescape"))
    except (ValueError, RecursionError) as error:
        raise BadInput(f"not a {kind.__name__}: {error}") from None
    return value_of(kind, given)


def value_of(kind: type[T], given: Any) -> T:
    """Read a value of a type from parsed JSON.

    Raises:
        BadInput: when it is not one of this type.
    """
    try:
        read: Decoder = decoder(typing.cast(Any, kind))
        found: T = read(given)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadInput(f"not a {kind.__name__}: {error}") from None
    return found


@functools.cache
def decoder(kind: Any) -> Decoder:  # noqa: PLR0911  # one case for each kind of type
    """Return what reads values of a type from parsed JSON."""
    while isinstance(kind, typing.NewType):
        kind = kind.__supertype__
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        inner = decoder(next(each for each in typing.get_args(kind) if each is not type(None)))
        return lambda given: None if given is None else inner(given)
    if origin in (tuple, frozenset):
        item = decoder(typing.get_args(kind)[0])
        return lambda given: origin(item(each) for each in given)
    if origin is dict:
        item = decoder(typing.get_args(kind)[1])
        return lambda given: {str(key): item(each) for key, each in given.items()}
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind
    if kind is bytes:
        return base64.b64decode
    if kind is float:
        return float
    if kind in (int, str, bool):
        return _exactly(kind)
    if dataclasses.is_dataclass(kind):
        return _fields(kind)
    raise TypeError(f"no JSON for {kind}")


def _exactly(kind: type) -> Decoder:
    def read(given: Any) -> Any:
        if not isinstance(given, kind):
            raise TypeError(f"{kind.__name__} is expected, found {given!r:.40}")
        return given

    return read


def _fields(kind: Any) -> Decoder:
    hints = typing.get_type_hints(kind)
    readers = {field.name: decoder(hints[field.name]) for field in dataclasses.fields(kind)}

    def read(given: Any) -> Any:
        # a field of a newer version is dropped, one of an older version takes its default
        return kind(**{name: readers[name](given[name]) for name in readers if name in given})

    return read
