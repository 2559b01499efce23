"""Bounds on requests: texts, counts and numbers, checked before anything else."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable
from typing import Any

from dlsched.core.errors import BadInput
from dlsched.core.rewards import RewardCurve
from dlsched.jobs.field import Field, Value

LONGEST_S = 10 * 366 * 86400.0
# characters that change the direction of text
ISOLATES = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def check_text(what: str, text: str, longest: int = 256, *, lines: bool = False) -> str:
    """Check that a text has no control characters and is not too long; returns it.

    Raises:
        BadInput: one line with the bound; the wrong character is escaped.
    """
    if len(text.encode("utf-8", "surrogatepass")) > longest:
        raise BadInput(f"{what}: longer than {longest} bytes")
    for letter in text:
        if lines and letter in "\n\t":
            continue
        if unicodedata.category(letter) in ("Cc", "Cs") or letter in ISOLATES:
            shown = ascii(letter)[1:-1]
            raise BadInput(f"{what}: has the character {shown}, which is not allowed")
    return text


def check_words(what: str, words: Iterable[str], longest: int) -> None:
    """Check that arguments or variables have no NUL and are not too long together."""
    total = 0
    for word in words:
        if "\0" in word:
            raise BadInput(f"{what}: has a NUL character, which is not allowed")
        total += len(word.encode("utf-8", "surrogatepass")) + 1
    if total > longest:
        raise BadInput(f"{what}: {total} bytes, at most {longest}")


def check_whole(what: str, value: int | None, least: int, most: int) -> int | None:
    """Check that a whole number is within bounds, or None; returns it."""
    if value is not None and not least <= value <= most:
        raise BadInput(f"{what}: {value} is not within {least} and {most}")
    return value


def check_number(
    what: str, value: float | None, least: float = 0.0, most: float = LONGEST_S
) -> float | None:
    """Check that a number is finite and within bounds, or None; returns it."""
    if value is None:
        return None
    if not math.isfinite(value) or not least <= value <= most:
        raise BadInput(f"{what}: {value:g} is not within {least:g} and {most:g}")
    return value


def check_count(what: str, number: int, most: int) -> None:
    """Check that there are not too many of something."""
    if number > most:
        raise BadInput(f"{what}: {number}, at most {most}")


def _curve(what: str, text: str) -> str:
    """A reward curve as points with times in seconds."""
    try:
        return RewardCurve.of_text(text).to_text() if text else ""
    except ValueError as error:
        raise BadInput(f"{what}: {error}") from None


def check_field(row: Field, value: Any, now: float) -> Value:
    """The value of a job's field, within the bounds of its row.

    Raises:
        BadInput: naming the field and the bound.
    """
    found: Value = value
    match row.form:
        case "text" | "pattern" | "events" | "lines" | "features":
            check_text(row.title, value, row.longest, lines=row.form == "lines")
        case "curve":
            check_text(row.title, value, row.longest)
            found = _curve(row.title, value)
        case "number":
            check_number(row.title, value, row.least, row.most)
        case "seconds" | "limit":
            check_number(row.title, value, row.least)
        case "moment":
            check_number(row.title, value, 0.0, now + LONGEST_S)
        case "whole":
            check_whole(row.title, value, int(row.least), int(row.most))
        case "choice" if value is not None and value not in row.choices:
            raise BadInput(f"{row.title} {value!r} is not known to this version")
    return found
