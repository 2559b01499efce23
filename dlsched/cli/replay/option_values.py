"""The values of replay's options: texts to numbers and names, checked before a file is read."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

from dlsched.core.errors import BadInput

T = TypeVar("T")


def several(flag: str, text: str | None) -> tuple[str, ...]:
    """Return the names of a comma list; ("",) for None.

    Raises:
        BadInput: an empty or a repeated entry.
    """
    if text is None:
        return ("",)
    return _entries(flag, text, lambda entry: entry)


def loads(text: str | None) -> tuple[float | None, ...]:
    """Return the factors of `--load`; (None,) for None.

    Raises:
        BadInput: an entry that is not a positive number, or is listed twice.
    """
    return (None,) if text is None else _entries("--load", text, _load)


def seeds(text: str) -> tuple[int, ...]:
    """Return the numbers of `--seed`.

    Raises:
        BadInput: an entry that is not a whole number of at least 0, or is listed twice.
    """
    return _entries("--seed", text, _seed)


def tracked(text: str | None) -> tuple[str, str] | None:
    """Return the first and the last job id of `--track A:B`; None for None.

    Raises:
        BadInput: the text is not A:B.
    """
    if text is None:
        return None
    first, colon, last = text.partition(":")
    if not colon or not first.strip() or not last.strip():
        raise BadInput(f"--track {text!r} is not A:B, two job ids")
    return first.strip(), last.strip()


def positive(flag: str, value: float | None) -> float | None:
    """Return a positive number of seconds, or None.

    Raises:
        BadInput: it is 0, negative or infinite.
    """
    if value is not None and not 0 < value < math.inf:
        raise BadInput(f"{flag} must be a positive number of seconds, not {value:g}")
    return value


def at_least(flag: str, value: float, low: float = 0.0) -> float:
    """Return a number of seconds of at least `low`.

    Raises:
        BadInput: it is less, or infinite.
    """
    if not low <= value < math.inf:
        raise BadInput(f"{flag} must be a number of seconds of at least {low:g}, not {value:g}")
    return value


def _entries(flag: str, text: str, parse: Callable[[str], T]) -> tuple[T, ...]:
    entries = [entry.strip() for entry in text.split(",")]
    if not all(entries):
        raise BadInput(f"{flag} {text!r} has an empty entry")
    parsed = [parse(entry) for entry in entries]
    for place, value in enumerate(parsed):
        if value in parsed[:place]:
            raise BadInput(f"{flag} lists {entries[place]} twice")
    return tuple(parsed)


def _load(entry: str) -> float:
    try:
        value = float(entry)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise BadInput(f"--load must be a positive number, not {entry!r}")
    return value


def _seed(entry: str) -> int:
    if not (entry.isascii() and entry.isdigit()):
        raise BadInput(f"--seed must be a whole number of at least 0, not {entry!r}")
    return int(entry)
