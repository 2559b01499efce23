"""Bounds on what comes through the door: texts, counts and numbers, checked first."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable
from typing import TypeVar

from dlsched.core.errors import BadInput

__all__ = ["check_count", "check_number", "check_text", "check_whole"]

N = TypeVar("N", int, float)
LONGEST_S = 10 * 366 * 86400.0
ISOLATES = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")  # change direction


def check_text(what: str, text: str, longest: int = 256, *, lines: bool = False) -> str:
    """A text without control characters and not longer than a bound.

    Raises:
        BadInput: naming the bound, with what is wrong escaped.
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
    """Arguments or variables: any text but NUL, together not longer than a bound."""
    total = 0
    for word in words:
        if "\0" in word:
            raise BadInput(f"{what}: has a NUL character, which is not allowed")
        total += len(word.encode("utf-8", "surrogatepass")) + 1
    if total > longest:
        raise BadInput(f"{what}: {total} bytes, at most {longest}")


def check_whole(what: str, value: int | None, least: int, most: int) -> int | None:
    """A whole number within bounds, or none."""
    if value is not None and not least <= value <= most:
        raise BadInput(f"{what}: {value} is not within {least} and {most}")
    return value


def check_number(
    what: str, value: float | None, least: float = 0.0, most: float = LONGEST_S
) -> float | None:
    """A finite number within bounds, or none."""
    if value is None:
        return None
    if not math.isfinite(value) or not least <= value <= most:
        raise BadInput(f"{what}: {value:g} is not within {least:g} and {most:g}")
    return value


def check_count(what: str, number: int, most: int) -> None:
    """Not more of something than a bound."""
    if number > most:
        raise BadInput(f"{what}: {number}, at most {most}")
