"""Listings: columns by name, cut to fit a terminal only, whole in a pipe.

Ids and numbers stand right. An empty list still has its header.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from dlsched.cli.terminal import Align, Terminal, aligned, columns_of, cut, shown
from dlsched.core.errors import BadInput

__all__ = ["Column", "chosen_columns", "described", "listing"]

T = TypeVar("T")
GAP = "  "


@dataclass(frozen=True, slots=True, kw_only=True)
class Column(Generic[T]):
    """One column: its name for `-o`, its title, what it shows of a row."""

    name: str
    title: str
    doc: str
    text: Callable[[T], str]
    align: Align = "left"
    least: int | None = None  # on a narrow terminal it may be cut to so many columns
    style: Callable[[T], str | None] | None = None


def chosen_columns(known: Mapping[str, Column[T]], names: str) -> list[Column[T]]:
    """The columns of a `-o` word, in its order.

    Raises:
        BadInput: a name that is not known.
    """
    wanted = [name.strip().lower() for name in names.split(",") if name.strip()]
    if not wanted:
        raise BadInput("-o: names no column; --columns help lists them")
    for name in wanted:
        if name not in known:
            raise BadInput(f"-o: column {name!r} is not known; known: {', '.join(known)}")
    return [known[name] for name in wanted]


def described(known: Mapping[str, Column[T]]) -> Iterator[str]:
    """One line a column."""
    width = max(map(len, known))
    for name, column in known.items():
        yield f"{name:<{width}}  {column.doc}"


def listing(
    columns: Sequence[Column[T]], rows: Iterable[T], out: Terminal, *, header: bool = True
) -> Iterator[str]:
    """The lines of a listing."""
    kept = list(rows)
    cells = [[shown(column.text(row)) for row in kept] for column in columns]
    widths = [
        max([columns_of(column.title) if header else 0, *map(columns_of, texts)])
        for column, texts in zip(columns, cells, strict=True)
    ]
    if out.width is not None:
        widths = _fitted(columns, widths, out.width)
    if header:
        titles = [
            aligned(cut(column.title, width, out.ellipsis), width, column.align)
            for column, width in zip(columns, widths, strict=True)
        ]
        yield out.styled(GAP.join(titles).rstrip(), "faint")
    last = len(columns) - 1
    for row, texts in zip(kept, zip(*cells, strict=True), strict=True):
        parts = []
        for place, (column, text, width) in enumerate(zip(columns, texts, widths, strict=True)):
            told = cut(text, width, out.ellipsis)
            if place < last or column.align == "right":
                told = aligned(told, width, column.align)
            style = column.style(row) if out.colour and column.style else None
            parts.append(out.styled(told, style))
        yield GAP.join(parts).rstrip()


def _fitted(columns: Sequence[Column[T]], widths: list[int], room: int) -> list[int]:
    """Narrower columns where the line is too long: the widest first, none below its least."""
    fitted = list(widths)
    over = sum(fitted) + len(GAP) * (len(fitted) - 1) - room
    loose = [place for place, column in enumerate(columns) if column.least is not None]
    while over > 0:
        able = [place for place in loose if fitted[place] > (columns[place].least or 0)]
        if not able:
            break
        fitted[max(able, key=lambda place: fitted[place])] -= 1
        over -= 1
    return fitted
