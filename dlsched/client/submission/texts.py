"""What a text may hold before it leaves the client.

The daemon refuses the same; refusing here gives the user the option's name and exit code 2.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

from dlsched.core.errors import BadInput, shorten
from dlsched.jobs.task_sets import TaskSet, read_tasks

MAX_ARGUMENT = 128 * 1024  # bytes of one argument or variable, the kernel's own bound
MAX_WORDS = 1024 * 1024  # bytes of all arguments, or of the whole environment
MAX_SCRIPT = 1024 * 1024  # bytes
_LARGEST = 2**31 - 1
_WRAPPED = b"#!/bin/sh\n# made by --wrap\n"


def wrapped(command: str) -> bytes:
    """Return the script of a line for the shell (`--wrap`).

    Raises:
        BadInput: it is empty, or nothing that a shell can read.
    """
    check_words("--wrap", [command])
    if not command.strip():
        raise BadInput("--wrap: is empty")
    return _WRAPPED + f"{command}\n".encode()


def wrapped_line(script: bytes) -> str | None:
    """Return the line that `wrapped` made a script of; None for any other script."""
    if not script.startswith(_WRAPPED):
        return None
    return script.removeprefix(_WRAPPED).decode(errors="replace").removesuffix("\n")


def check_text(what: str, text: str, *, longest: int = 1024, empty: bool = False) -> str:
    """Return a text of one line; `what` names it in the error.

    Raises:
        BadInput: it is empty, too long, not valid UTF-8, or holds control characters.
    """
    if not text and not empty:
        raise BadInput(f"{what}: is empty")
    _check_encoding(what, text, longest)
    for letter in text:
        if unicodedata.category(letter) in {"Cc", "Zl", "Zp"}:
            raise BadInput(f"{what}: holds a control character ({ascii(letter)[1:-1]})")
    return text


def check_words(what: str, words: Iterable[str], *, most: int = MAX_WORDS) -> tuple[str, ...]:
    """Return arguments, in which line breaks and the like are allowed, but nothing unreadable.

    Raises:
        BadInput: a NUL, invalid UTF-8, one word or all together too long.
    """
    kept = tuple(words)
    total = 0
    for word in kept:
        if "\0" in word:
            raise BadInput(f"{what}: holds a NUL character")
        total += _check_encoding(what, word, MAX_ARGUMENT)
    if total > most:
        raise BadInput(f"{what}: {total} bytes; at most {most}")
    return kept


def whole_number(what: str, text: str, *, least: int = 0, most: int = _LARGEST) -> int:
    """Return a decimal number within bounds.

    Raises:
        BadInput: it is none, or out of bounds.
    """
    if not (text.isascii() and text.removeprefix("-").isdigit()) or len(text) > 20:
        raise BadInput(f"{what}: {shorten(text)!r} is not a whole number")
    number = int(text)
    if not least <= number <= most:
        raise BadInput(f"{what}: {shorten(text)} is out of bounds ({least} to {most})")
    return number


def task_set(what: str, text: str) -> TaskSet:
    """Read the tasks of an array; `what` names the option in the error.

    Raises:
        BadInput: malformed, backwards, or too many.
    """
    try:
        return read_tasks(text)
    except ValueError as error:
        raise BadInput(f"{what}: {error}") from None


def as_flag(what: str, text: str) -> str:
    """`yes` or `no`, of the usual words.

    Raises:
        BadInput: another word.
    """
    word = text.strip().lower()
    if word in {"1", "yes", "true", "on"}:
        return "yes"
    if word in {"0", "no", "false", "off", ""}:
        return "no"
    raise BadInput(f"{what}: {text!r} is neither yes nor no")


def _check_encoding(what: str, text: str, longest: int) -> int:
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise BadInput(f"{what}: not valid UTF-8") from None
    if size > longest:
        raise BadInput(f"{what}: {size} bytes; at most {longest}")
    return size
