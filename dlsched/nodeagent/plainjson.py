"""Frozen values of the protocol to JSON and back, by their type hints.

Used between agent and keeper and for records on disk; light enough for a keeper. What does not fit
its type raises `BadInput`, so a damaged record is noticed where it is read.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import types
import typing
from enum import Enum
from typing import Any, TypeVar

from dlsched.core.errors import BadInput

T = TypeVar("T")
Decoder = typing.Callable[[Any], Any]
_decoders: dict[Any, Decoder] = {}


def plain(value: Any) -> Any:  # noqa: PLR0911  # one case a kind of value
    """What JSON can hold of a value."""
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return {name: plain(getattr(value, name)) for name in value.__dataclass_fields__}


def dumps(value: Any) -> bytes:
    """A value as JSON."""
    return json.dumps(plain(value), separators=(",", ":"), ensure_ascii=False).encode(
        "utf-8", "surrogateescape"
    )


def loads(kind: type[T], data: bytes) -> T:
    """The value in JSON.

    Raises:
        BadInput: when it is not one of this type.
    """
    try:
        given = json.loads(data.decode("utf-8", "surrogateescape"))
        found: T = decoder(kind)(given)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadInput(f"not a {kind.__name__}: {error}") from None
    return found


def value_of(kind: type[T], given: Any) -> T:
    """The value in parsed JSON.

    Raises:
        BadInput: when it is not one of this type.
    """
    try:
        found: T = decoder(kind)(given)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadInput(f"not a {kind.__name__}: {error}") from None
    return found


def decoder(kind: Any) -> Decoder:
    """How to read a type; made once a type."""
    found = _decoders.get(kind)
    if found is None:
        found = _decoders[kind] = _make(kind)
    return found


def _make(kind: Any) -> Decoder:  # noqa: PLR0911  # one case a kind of type
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
            raise TypeError(f"{kind.__name__} expected, found {given!r:.40}")
        return given

    return read


def _fields(kind: Any) -> Decoder:
    hints = typing.get_type_hints(kind)
    readers = {field.name: decoder(hints[field.name]) for field in dataclasses.fields(kind)}

    def read(given: Any) -> Any:
        # a field of a newer version is dropped, one of an older version takes its default
        return kind(**{name: readers[name](given[name]) for name in readers if name in given})

    return read
