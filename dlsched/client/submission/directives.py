"""`#DLSCHED` and `#SBATCH` lines of a script: its first block of comments, and nothing after it.

What is not known is refused by its name and line. `#DLSCHED` lines win over `#SBATCH` lines.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from dlsched.client.submission.options import BY_WORD, merged, put
from dlsched.client.submission.texts import MAX_SCRIPT
from dlsched.core.errors import BadInput, shorten
from dlsched.jobs.field import Option

_MARKS = ("#DLSCHED", "#SBATCH")


@dataclass(frozen=True, slots=True, kw_only=True)
class Directives:
    """What a script says about itself, and what the user should know about that."""

    layer: dict[str, str]
    notes: tuple[str, ...] = ()


def read_directives(name: str, script: bytes, *, ignore_unknown: bool = False) -> Directives:
    """Read a script's directives; `ignore_unknown` leaves out unknown ones, each with a note.

    Raises:
        BadInput: no script at all, or a line that is not understood, as `name:line: what`.
    """
    _check_script(name, script)
    found: dict[str, dict[str, str]] = {mark: {} for mark in _MARKS}
    notes: list[str] = []
    for place, mark, text in _lines(name, script, notes):
        for option, value in _parsed(place, mark, text, notes if ignore_unknown else None):
            put(found[mark], option, f"{place}: {option.words[-1]}", value)
    return Directives(layer=merged(*found.values()), notes=tuple(notes))


def _check_script(name: str, script: bytes) -> None:
    if len(script) > MAX_SCRIPT:
        raise BadInput(f"{name}: {len(script)} bytes; at most {MAX_SCRIPT}")
    if not script.strip():
        raise BadInput(f"{name}: is empty")
    if b"\0" in script:
        raise BadInput(f"{name}: holds a NUL character; not a script")
    first = script.split(b"\n", 1)[0]
    if not first.startswith(b"#!") or not first[2:].strip():
        raise BadInput(f"{name}:1: the first line must name the interpreter (#!/bin/bash)")
    if first.endswith(b"\r"):
        raise BadInput(f"{name}:1: has DOS line ends; convert it first (sed -i 's/\\r$//')")


def _lines(name: str, script: bytes, notes: list[str]) -> Iterator[tuple[str, str, str]]:
    """Place, mark and rest of each directive."""
    block = True
    for number, line in enumerate(script.split(b"\n"), 1):
        block = block and (line.lstrip() == b"" or line.lstrip().startswith(b"#"))
        mark = next((each for each in _MARKS if line.startswith(each.encode())), None)
        rest = line[len(mark) :] if mark else b""
        if mark is None or (rest and not rest[:1].isspace()):
            continue
        place = f"{name}:{number}"
        if not block:
            notes.append(f"{place}: {mark} after the first command is not read")
            continue
        try:
            yield place, mark, rest.decode()
        except UnicodeDecodeError:
            raise BadInput(f"{place}: not valid UTF-8") from None


def _parsed(
    place: str, mark: str, text: str, notes: list[str] | None
) -> Iterator[tuple[Option, str]]:
    """The options of one line; unknown ones go into `notes`, where there are any."""
    try:
        words = shlex.split(text, comments=True)
    except ValueError as error:
        raise BadInput(f"{place}: {mark}: {str(error).lower()}") from None
    while words:
        word, equals, value, glued = _taken(words.pop(0))
        if not word.startswith("-"):
            raise BadInput(f"{place}: {mark}: {shorten(word)!r} is not an option")
        option = BY_WORD.get(word)
        if option is None or (mark == "#SBATCH" and not option.slurm):
            if notes is None:
                raise BadInput(
                    f"{place}: {mark} {shorten(word)}: not supported "
                    "(--ignore-unknown-directives leaves it out)"
                )
            notes.append(f"{place}: {mark} {shorten(word)}: left out")
            while words and not words[0].startswith("-"):
                words.pop(0)
            continue
        what = f"{place}: {word}"
        if option.kind == "flag":
            if equals or glued:
                raise BadInput(f"{what}: takes no value")
            yield option, "yes"
            continue
        if not equals and not glued:
            if not words:
                raise BadInput(f"{what}: needs a value")
            value = words.pop(0)
        yield option, value


def _taken(word: str) -> tuple[str, bool, str, bool]:
    """The option's word, whether `=` came, its value, and whether that was glued to a letter."""
    if word.startswith("--"):
        name, equals, value = word.partition("=")
        return name, bool(equals), value, False
    if len(word) > 2 and word.startswith("-"):
        return word[:2], False, word[2:], True
    return word, False, "", False
