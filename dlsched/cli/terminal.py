"""What standard output is: a terminal of some width, with or without colours, or a pipe.

Names come from other users: `shown` makes them harmless before they reach a terminal.
"""

from __future__ import annotations

import os
import shutil
import sys
import unicodedata
from dataclasses import dataclass
from typing import Literal

from dlsched.core.errors import BadInput

__all__ = ["Terminal", "shown", "terminal"]

_STYLES = {"good": "32", "wait": "33", "bad": "31", "faint": "2", "strong": "1"}
# Control characters, line and paragraph ends, and those that turn the direction of writing.
_UNSAFE = {"Cc", "Cf", "Zl", "Zp", "Cs", "Co"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Terminal:
    """How to write; `width` is None where nothing may be cut."""

    is_tty: bool = False
    colour: bool = False
    width: int | None = None
    unicode: bool = False

    def styled(self, text: str, style: str | None) -> str:
        """The text in a style, where there are colours."""
        if not self.colour or style is None:
            return text
        return f"\x1b[{_STYLES[style]}m{text}\x1b[0m"

    @property
    def ellipsis(self) -> str:
        """What stands for the rest of a cut text."""
        return "…" if self.unicode else "~"


def terminal(colour: str = "auto") -> Terminal:
    """Look at standard output.

    Args:
        colour: auto, always or never; auto follows NO_COLOR and TERM.

    Raises:
        BadInput: another word.
    """
    if colour not in {"auto", "always", "never"}:
        raise BadInput(f"--color: {colour!r} is not known; known: auto, always, never")
    is_tty = sys.stdout.isatty()
    plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    encoding = (getattr(sys.stdout, "encoding", None) or "").lower().replace("-", "")
    return Terminal(
        is_tty=is_tty,
        colour=colour == "always" or (colour == "auto" and is_tty and not plain),
        width=shutil.get_terminal_size().columns if is_tty else None,
        unicode=is_tty and encoding == "utf8",
    )


def shown(text: str, *, lines: bool = False) -> str:
    """A text with everything escaped that a terminal would act upon.

    Args:
        text: from anywhere.
        lines: line breaks and tabs may stay.
    """
    if text.isascii() and text.isprintable():
        return text
    kept = "\n\t" if lines else ""
    return "".join(
        letter
        if letter in kept or unicodedata.category(letter) not in _UNSAFE
        else ascii(letter)[1:-1]
        for letter in text
    )


def columns_of(text: str) -> int:
    """How many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    return sum(
        0
        if unicodedata.combining(letter)
        else 2
        if unicodedata.east_asian_width(letter) in "WF"
        else 1
        for letter in text
    )


Align = Literal["left", "right"]


def aligned(text: str, width: int, align: Align) -> str:
    """Padded to a width in columns."""
    room = " " * max(0, width - columns_of(text))
    return text + room if align == "left" else room + text


def cut(text: str, width: int, ellipsis: str) -> str:
    """A text in at most so many columns."""
    if columns_of(text) <= width:
        return text
    kept, room = "", width - columns_of(ellipsis)
    for letter in text:
        room -= columns_of(letter)
        if room < 0:
            break
        kept += letter
    return kept + ellipsis
