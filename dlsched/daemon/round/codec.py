"""Plain values and arrays as bytes, the same bytes for equal values.

Snapshots and states of policies are stored, sent and compared. A file of them may come from anyone,
so reading one must not execute anything, as unpickling would. The text part is JSON; objects with a
key of one letter stand for what JSON lacks: `{"t": …}` a tuple, `{"m": …}` a mapping whose keys are
not texts, `{"a": n}` an array and `{"b": n}` bytes, both of which follow the text.
"""

from __future__ import annotations

import json
import signal
import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlsched.core.errors import BadInput

HEADER = struct.Struct("<Q")  # between daemon and worker: the bytes of what follows
SHOW_STACK = signal.SIGUSR2  # has the worker write the lines that it is in to stderr
_MAGIC = b"DLS1"
_MARKS = frozenset("tmab")


def encode(value: Any) -> bytes:
    """Encode a value of None, bool, int, float, str, bytes, list, tuple, dict and arrays.

    Numpy scalars become plain numbers, sets become sorted lists. The order of a dictionary is part
    of the value.

    Raises:
        BadInput: a value of another kind.
    """
    pieces: list[bytes] = []
    shapes: list[list[Any]] = []
    plain = _plain(value, pieces, shapes)
    text = json.dumps([plain, shapes], separators=(",", ":"), ensure_ascii=False).encode(
        "utf-8", "surrogatepass"
    )
    return b"".join([_MAGIC, len(text).to_bytes(8, "little"), text, *pieces])


def decode(data: bytes) -> Any:
    """Decode the bytes of `encode`; arrays are copies and may be written to.

    Raises:
        BadInput: the bytes are not of this form.
    """
    if data[:4] != _MAGIC:
        raise BadInput("not a snapshot or policy state: it does not begin as one")
    try:
        end = 12 + int.from_bytes(data[4:12], "little")
        plain, shapes = json.loads(data[12:end].decode("utf-8", "surrogatepass"))
        pieces: list[Any] = []
        for dtype, shape, size in shapes:
            raw = data[end : end + size]
            if len(raw) < size:
                raise ValueError("it ends too early")
            pieces.append(_array(raw, dtype, shape) if dtype else raw)
            end += size
        return _value(plain, pieces)
    except (ValueError, TypeError, KeyError, IndexError, RecursionError) as error:
        raise BadInput(f"a damaged snapshot or policy state: {error}") from None


def _plain(value: Any, pieces: list[bytes], shapes: list[list[Any]]) -> Any:  # noqa: PLR0911 - one return a kind
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, int | float):
        return value
    if isinstance(value, np.ndarray):
        return _store_array(value, pieces, shapes)
    if isinstance(value, bytes):
        pieces.append(value)
        shapes.append(["", [], len(value)])
        return {"b": len(pieces) - 1}
    if isinstance(value, list):
        return [_plain(item, pieces, shapes) for item in value]
    if isinstance(value, tuple):
        return {"t": [_plain(item, pieces, shapes) for item in value]}
    if isinstance(value, set | frozenset):
        return [_plain(item, pieces, shapes) for item in sorted(value)]
    if isinstance(value, dict):
        if all(isinstance(key, str) for key in value) and not (
            len(value) == 1 and _MARKS & {*value}
        ):
            return {key: _plain(item, pieces, shapes) for key, item in value.items()}
        pairs = [[_plain(k, pieces, shapes), _plain(v, pieces, shapes)] for k, v in value.items()]
        return {"m": pairs}
    raise BadInput(f"a value of type {type(value).__name__} cannot be kept: {value!r:.60}")


def _store_array(
    array: NDArray[Any], pieces: list[bytes], shapes: list[list[Any]]
) -> dict[str, Any]:
    if array.dtype.kind == "O":
        return {"a": _plain(array.tolist(), pieces, shapes)}
    pieces.append(np.ascontiguousarray(array).tobytes())
    shapes.append([array.dtype.str, list(array.shape), len(pieces[-1])])
    return {"a": len(pieces) - 1}


def _array(raw: bytes, dtype: str, shape: list[int]) -> NDArray[Any]:
    if np.dtype(dtype).kind not in "biuf":
        raise ValueError(f"an array of {dtype}")
    return np.frombuffer(raw, dtype).reshape(shape).copy()


def _value(plain: Any, pieces: list[Any]) -> Any:  # noqa: PLR0911 - one return a kind
    if isinstance(plain, list):
        return [_value(item, pieces) for item in plain]
    if not isinstance(plain, dict):
        return plain
    if len(plain) == 1:
        (mark, inner), *_ = plain.items()
        if mark == "t":
            return tuple(_value(item, pieces) for item in inner)
        if mark == "m":
            return {_value(k, pieces): _value(v, pieces) for k, v in inner}
        if mark == "b":
            return pieces[inner]
        if mark == "a":
            return pieces[inner] if isinstance(inner, int) else _objects(_value(inner, pieces))
    return {key: _value(item, pieces) for key, item in plain.items()}


def _objects(values: list[Any]) -> NDArray[Any]:
    array = np.empty(len(values), np.object_)
    array[:] = values
    return array
