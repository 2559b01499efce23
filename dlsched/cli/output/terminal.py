"""Standard output: a terminal of some width, with or without colours, or a pipe.

Names come from other users: `shown` escapes what a terminal would act upon.
"""

from __future__ import annotations

import os
import sys
import unicodedata
from collections.abc import Sequence

from dlsched.core.errors import not_known
from dlsched.record import Record

_STYLES = {"good": "32", "wait": "33", "bad": "31", "faint": "2", "strong": "1"}
# Control characters, line and paragraph ends, and those that change the direction of writing.
_UNSAFE = {"Cc", "Cf", "Zl", "Zp", "Cs", "Co"}


class Terminal(Record):
    """How to write to standard output; `width` is None if nothing may be cut."""

    is_tty: bool = False
    colour: bool = False
    width: int | None = None
    unicode: bool = False

    def styled(self, text: str, style: str | None) -> str:
        """Return the text in a style, if the terminal has colours."""
        if not self.colour or style is None:
            return text
        return f"\x1b[{_STYLES[style]}m{text}\x1b[0m"

    def wrapped(self, text: str, indent: str = "") -> list[str]:
        """Return the lines of a sentence: broken between words where the terminal is narrower."""
        if self.width is None or columns_of(text) <= self.width:
            return [text]
        import textwrap  # noqa: PLC0415  # few need it

        return textwrap.wrap(
            text,
            self.width,
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
        )

    @property
    def ellipsis(self) -> str:
        """The sign at the end of a text that was cut."""
        return "…" if self.unicode else "~"


def terminal(colour: str = "auto") -> Terminal:
    """Return what standard output is.

    The colour is auto (as NO_COLOR and TERM say), always or never.

    Raises:
        BadInput: another word.
    """
    if colour not in {"auto", "always", "never"}:
        raise not_known("--color:", colour, ("auto", "always", "never"))
    is_tty = sys.stdout.isatty()
    width = None
    if is_tty:
        import shutil  # noqa: PLC0415  # most of its cost is compression

        width = shutil.get_terminal_size().columns
    plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    encoding = (getattr(sys.stdout, "encoding", None) or "").lower().replace("-", "")
    return Terminal(
        is_tty=is_tty,
        colour=colour == "always" or (colour == "auto" and is_tty and not plain),
        width=width,
        unicode=is_tty and encoding == "utf8",
    )


def shown(text: str, *, kept: str = "") -> str:
    """Return a text with all escaped that a terminal acts upon, but what is `kept`."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        letter
        if letter in kept or unicodedata.category(letter) not in _UNSAFE
        else ascii(letter)[1:-1]
        for letter in text
    )


def all_shown(texts: Sequence[str]) -> Sequence[str]:
    """Return many texts as `shown` returns each; most need no look at each one."""
    joined = "".join(texts)
    return texts if joined.isascii() and joined.isprintable() else list(map(shown, texts))


def columns_of(text: str) -> int:
    """Return the number of columns that a text takes on a terminal."""
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


def aligned(text: str, width: int, *, right: bool) -> str:
    """Return a text padded to a width in columns."""
    room = " " * max(0, width - columns_of(text))
    return room + text if right else text + room


def cut(text: str, width: int, ellipsis: str) -> str:
    """Return a text cut to a width in columns."""
    if columns_of(text) <= width:
        return text
    kept, room = "", width - columns_of(ellipsis)
    for letter in text:
        room -= columns_of(letter)
        if room < 0:
            break
        kept += letter
    return kept + ellipsis
