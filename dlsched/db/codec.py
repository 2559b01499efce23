"""Frozen dataclasses as JSON text and back, led by their annotations.

Invariant: `decode(type(x), encode(x)) == x` for every value that the store keeps. What does not
fit its annotation is refused, never guessed; a field that is missing takes its default, so that a
row from before the field was added can be read.
"""

from __future__ import annotations

import base64
import json
import types
import typing
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, TypeVar

__all__ = ["as_is", "decode", "decoder_of_field", "dumps", "encode", "encode_fields", "loads"]

T = TypeVar("T")


def encode(value: Any) -> Any:
    """A value as what JSON knows."""
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, tuple | list):
        return [encode(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): encode(item) for key, item in value.items()}
    if is_dataclass(value):
        return encode_fields(value)
    raise TypeError(f"{type(value).__name__} has no form in the database")


def encode_fields(value: Any, without: Collection[str] = ()) -> dict[str, Any]:
    """A dataclass as a JSON object; fields whose default is to be empty are left out when they are.

    Every other default is written, so that a later one does not change what was stored.
    """
    found = {}
    for name, empty in _fields(typing.cast("Any", type(value))):
        item = getattr(value, name)
        if (item is empty) or (name in without) or (empty is not _NEEDED and item == empty):
            continue
        found[name] = encode(item)
    return found


_NEEDED: Any = object()


@cache
def _fields(kind: type) -> tuple[tuple[str, Any], ...]:
    """The fields of a dataclass, each with its default where that is empty."""
    found = []
    for f in fields(kind):
        default = f.default_factory() if f.default_factory is not MISSING else f.default
        is_empty = default is not MISSING and not default
        found.append((f.name, default if is_empty else _NEEDED))
    return tuple(found)


def dumps(value: Any) -> str:
    """A value as JSON text, ASCII only and without spaces."""
    return json.dumps(encode(value), separators=(",", ":"))


def loads(kind: type[T], text: str) -> T:
    """A value from its JSON text.

    Raises:
        ValueError: when the text is not such a value.
    """
    return decode(kind, json.loads(text))


def decode(kind: type[T], data: Any) -> T:
    """A value from what JSON made of it.

    Raises:
        ValueError: when it is not such a value.
    """
    made: T = _decoder(typing.cast("Any", kind))(data)
    return made


def decoder_of_field(kind: type, name: str) -> Callable[[Any], Any]:
    """What reads one field of a dataclass; what is no field is taken as it is."""
    hints = _hints(kind)
    return _decoder(hints[name]) if name in hints else as_is


@cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def as_is(data: Any) -> Any:
    """What has no annotation."""
    return data


@cache
def _decoder(kind: Any) -> Callable[[Any], Any]:  # noqa: PLR0911  # one case a kind
    if isinstance(kind, typing.NewType):
        return _decoder(kind.__supertype__)
    if kind is Any or kind is object:
        return as_is
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        (inner,) = (arg for arg in typing.get_args(kind) if arg is not type(None))
        known = _decoder(inner)
        return lambda data: None if data is None else known(data)
    if origin is tuple:
        return _sequence(tuple, _decoder(typing.get_args(kind)[0]))
    if origin is frozenset:
        return _sequence(frozenset, _decoder(typing.get_args(kind)[0]))
    if origin is not None and issubclass(origin, Mapping):
        return _mapping(_decoder(typing.get_args(kind)[1]))
    if kind is bytes:
        return _bytes
    if kind is float:
        return _float
    if kind in (str, int, bool):
        return _exactly(kind)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind
    if is_dataclass(kind):
        return _dataclass(kind)
    raise TypeError(f"{kind} has no form in the database")


def _wrong(expected: str, data: Any) -> ValueError:
    return ValueError(f"{data!r:.80} is not {expected}")


def _exactly(kind: type) -> Callable[[Any], Any]:
    def read(data: Any) -> Any:
        if type(data) is not kind:
            raise _wrong(kind.__name__, data)
        return data

    return read


def _float(data: Any) -> float:
    if type(data) not in (int, float):
        raise _wrong("a number", data)
    return float(data)


def _bytes(data: Any) -> bytes:
    if not isinstance(data, str):
        raise _wrong("bytes", data)
    return base64.b64decode(data, validate=True)


def _sequence(make: Callable[[Any], Any], item: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def read(data: Any) -> Any:
        if not isinstance(data, list):
            raise _wrong("a list", data)
        return make(map(item, data))

    return read


def _mapping(item: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def read(data: Any) -> Any:
        if not isinstance(data, dict):
            raise _wrong("an object", data)
        return {key: item(value) for key, value in data.items()}

    return read


def _dataclass(kind: Any) -> Callable[[Any], Any]:
    hints = _hints(kind)
    readers = {f.name: _decoder(hints[f.name]) for f in fields(kind)}
    needed = [f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING]

    def read(data: Any) -> Any:
        if not isinstance(data, dict):
            raise _wrong(f"a {kind.__name__}", data)
        unknown = data.keys() - readers.keys()
        missing = [name for name in needed if name not in data]
        if unknown or missing:
            raise ValueError(
                f"{kind.__name__} "
                + (f"without {missing[0]}" if missing else "")
                + (f"with unknown {sorted(unknown)[0]}" if unknown else "")
            )
        given = {}
        for name, value in data.items():
            try:
                given[name] = readers[name](value)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from error
        return kind(**given)

    return read
