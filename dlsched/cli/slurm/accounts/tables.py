"""The tables of `sacctmgr` and `sreport`: columns of fixed width, `+` where a text was cut."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from dlsched.cli.output.terminal import shown
from dlsched.cli.slurm.arguments import Arguments
from dlsched.core.errors import not_known

T = TypeVar("T")
_WORD = re.compile(r"([A-Za-z_]+)(?:%(-?)(\d{1,4}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Field(Generic[T]):
    """A column: its title, its width, and its text for a row."""

    title: str
    width: int
    text: Callable[[T], str] = lambda _: ""
    left: bool = False


def add_options(parser: Arguments) -> None:
    """Declare the options of tables."""
    parser.option("-n", "--noheader", flag=True, help="without the titles")
    parser.option("-p", "--parsable", flag=True, help="cells end with |")
    parser.option("-P", "--parsable2", flag=True, help="cells are joined by |")


def chosen(text: str, known: Mapping[str, Field[T]]) -> list[Field[T]]:
    """Read the names of a format, `Account%20,User`; a name may be cut short.

    Raises:
        BadInput: a name that is not known.
    """
    found = []
    for word in filter(None, map(str.strip, text.split(","))):
        match = _WORD.fullmatch(word)
        name = match[1].lower() if match else ""
        full = {each.lower(): each for each in known}
        fits = [each for each in full if name and each.startswith(name)]
        if match is None or not fits:
            raise not_known("format:", word, known)
        field = known[full[name if name in full else fits[0]]]
        if match[3]:
            field = replace(field, width=int(match[3]), left=bool(match[2]))
        found.append(field)
    return found


def table(fields: Sequence[Field[T]], rows: Iterable[T], given: Any) -> Iterator[str]:
    """The lines of a table.

    Args:
        fields: its columns.
        rows: what it shows.
        given: the options that `add_options` has declared.
    """
    titles = [field.title for field in fields]
    cells = [[shown(field.text(row)) for field in fields] for row in rows]
    if given.parsable or given.parsable2:
        end = "|" if given.parsable else ""
        for line in cells if given.noheader else [titles, *cells]:
            yield "|".join(line) + end
        return
    if not given.noheader:
        yield "".join(f"{_fitted(field, field.title)} " for field in fields)
        yield "".join("-" * field.width + " " for field in fields)
    for line in cells:
        pairs = zip(fields, line, strict=True)
        yield "".join(f"{_fitted(field, text)} " for field, text in pairs)


def _fitted(field: Field[T], text: str) -> str:
    if len(text) > field.width:
        text = text[: max(field.width - 1, 0)] + "+"
    return text.ljust(field.width) if field.left else text.rjust(field.width)
