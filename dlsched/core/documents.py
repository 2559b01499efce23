"""Documents that users write, TOML or JSON, as plain values.

An error is one line with the file and, where the text itself is broken, the line.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable
from typing import Any

from dlsched.core.errors import BadInput, shorten


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
