"""Documents that users write, TOML or JSON, as plain values, and what is asked of these values.

An error is one line with the file and, where the text itself is broken, the line; otherwise the
place in the document.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Collection
from typing import Any

from dlsched.core.errors import BadInput, not_known, shorten


def parse_document(name: str, data: bytes, *, number: Callable[[str], Any] = float) -> Any:
    """Parse a JSON document, by the file's name or by its first character `{`; else TOML.

    Args:
        name: of the file, for messages.
        data: its bytes; UTF-8, with or without a byte order mark.
        number: makes a value of a number with a point or an exponent.

    Raises:
        BadInput: one line with the file's name and, where it is known, the line number.
    """
    text = _text(name, data)
    if not name.endswith(".json") and text.lstrip()[:1] != "{":
        return _toml(name, text, number)
    try:
        return json.loads(
            text,
            parse_float=number,
            parse_constant=_no_number,
            object_pairs_hook=_each_key_once,
        )
    except json.JSONDecodeError as error:
        raise BadInput(f"{name}:{error.lineno}: not JSON: {error.msg}") from None
    except RecursionError:
        raise BadInput(f"{name}: nested too deeply") from None
    except ValueError as error:
        raise BadInput(f"{name}: {error}") from None


def parse_toml(name: str, data: bytes) -> dict[str, Any]:
    """Parse a TOML document.

    Raises:
        BadInput: one line with the file's name and the line number.
    """
    return _toml(name, _text(name, data), float)


def table(where: str, said: Any, keys: Collection[str]) -> dict[str, Any]:
    """A table of a document.

    Raises:
        BadInput: it is none, or has a key that is not among `keys`.
    """
    if not isinstance(said, dict):
        raise BadInput(f"{where}: must be a table of {', '.join(keys)}")
    for key in said:
        if key not in keys:
            raise not_known(f"{where}:", key, keys)
    return said


def named_tables(
    where: str, noun: str, said: Any, keys: Collection[str], *, name: str = "name", most: int
) -> dict[str, tuple[str, dict[str, Any]]]:
    """The tables of a list by their names, each with its place for messages.

    Args:
        where: the file and the place in it.
        noun: what a table describes.
        said: the list.
        keys: that each table may have.
        name: the key of the name.
        most: tables of the list.

    Raises:
        BadInput: no list of so many tables, one without a name, or two with the same.
    """
    if not isinstance(said, list) or not 1 <= len(said) <= most:
        raise BadInput(f"{where}: needs a list `{noun}s` of 1 to {most:,}")
    found: dict[str, tuple[str, dict[str, Any]]] = {}
    for number, each in enumerate(said, 1):
        place = f"{where}: {noun} {number}"
        called = str(table(place, each, keys).get(name, ""))
        if not called:
            raise BadInput(f"{place}: needs a{'n' if name == 'id' else ''} {name}")
        place = f"{where}: {noun} {shorten(called)}"
        if called in found:
            raise BadInput(f"{place}: is there twice")
        found[called] = (place, each)
    return found


def names_listed(where: str, key: str, said: Any) -> list[str]:
    """A list of names.

    Raises:
        BadInput: it is none.
    """
    if not isinstance(said, list) or not all(isinstance(each, str) for each in said):
        raise BadInput(f"{where}: {key} must be a list of names")
    return said


def whole_number(where: str, key: str, said: Any, *, least: int = 0, most: int = 2**53) -> int:
    """A whole number.

    Raises:
        BadInput: it is none, or out of bounds.
    """
    if not isinstance(said, int) or isinstance(said, bool) or not least <= said <= most:
        raise BadInput(
            f"{where}: {key} must be a whole number from {least} to {most:,}, "
            f"not {shorten(str(said))!r}"
        )
    return said


def _text(name: str, data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadInput(f"{name}: not UTF-8 text") from None


def _toml(name: str, text: str, number: Callable[[str], Any]) -> dict[str, Any]:
    try:
        return tomllib.loads(text, parse_float=number)
    except tomllib.TOMLDecodeError as error:
        raise BadInput(_with_line(name, str(error))) from None
    except RecursionError:
        raise BadInput(f"{name}: nested too deeply") from None
    except ValueError as error:  # a number that `number` can't read
        raise BadInput(f"{name}: {error}") from None


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is no number")


def _each_key_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"{shorten(key)!r} is there twice")
        found[key] = value
    return found


def _with_line(name: str, message: str) -> str:
    """What the TOML reader says, with the line number behind the file's name."""
    found = re.search(r" \(at line (\d+), column (\d+)\)", message)
    if found is None:  # "at end of document"
        return f"{name}: not TOML: {message}"
    line, column = found.groups()
    return f"{name}:{line}: not TOML: {message.replace(found[0], '')} (column {column})"
