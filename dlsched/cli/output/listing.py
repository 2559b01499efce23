"""Listings: tables with columns by name, cut to the width of a terminal, never cut in a pipe.

Ids and numbers are aligned to the right. An empty list still has its header.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

from dlsched.cli.output.terminal import Terminal, aligned, all_shown, columns_of, cut
from dlsched.core.errors import BadInput, not_known
from dlsched.record import Record
from dlsched.rpc.columns import Column as Values
from dlsched.rpc.columns import combined
from dlsched.rpc.columns import texts as texts_of

T = TypeVar("T")
GAP = "  "


class Column(Record, Generic[T], kw_only=False):
    """One column.

    Attributes:
        name: its name for `-o`.
        title: its title.
        doc: what it shows, for `--columns help`.
        text: returns its cell for a row.
        right: is it aligned to the right?
        least: its smallest width on a narrow terminal; None: never cut.
        style: returns the style of its cell; None: none.
    """

    name: str
    title: str
    doc: str
    text: Callable[[T], str]
    right: bool = False
    least: int | None = None
    style: Callable[[T], str | None] | None = None


def chosen_columns(known: Mapping[str, Column[T]], names: str) -> list[Column[T]]:
    """Return the columns that a value of `-o` names, in its order.

    Raises:
        BadInput: a name that is not known.
    """
    wanted = [name.strip().lower() for name in names.split(",") if name.strip()]
    if not wanted:
        raise BadInput("-o: names no column; --columns help lists them")
    for name in wanted:
        if name not in known:
            raise not_known("-o: column", name, known)
    return [known[name] for name in wanted]


def described(known: Mapping[str, Column[T]]) -> Iterator[str]:
    """Describe the columns, one line each."""
    width = max(map(len, known))
    for name, column in known.items():
        yield f"{name:<{width}}  {column.doc}"


def listing(
    columns: Sequence[Column[T]], rows: Iterable[T], out: Terminal, *, header: bool = True
) -> Iterator[str]:
    """Return the lines of a listing.

    Args:
        columns: the columns, from left to right.
        rows: one line each.
        out: standard output.
        header: with titles?
    """
    kept = list(rows)
    return lines(columns, lambda part: Values(list(map(part, kept))), len(kept), out, header=header)


def lines(
    columns: Sequence[Column[T]],
    of_rows: Callable[[Callable[[T], Any]], Values],
    count: int,
    out: Terminal,
    *,
    header: bool = True,
) -> Iterator[str]:
    """Return the lines of a listing of rows that need not exist one by one.

    Args:
        columns: the columns, from left to right.
        of_rows: returns for all rows what a column's `text` or `style` returns for one.
        count: of the rows.
        out: standard output.
        header: with titles?
    """
    cells = [of_rows(column.text) for column in columns]
    cells = [each._replace(values=all_shown(each.values)) for each in cells]
    widths = [
        max(columns_of(column.title) if header else 0, _width(each.values) if count else 0)
        for column, each in zip(columns, cells, strict=True)
    ]
    if out.width is not None:
        widths = _fitted(columns, widths, out.width)
    if header:
        titles = [
            aligned(cut(column.title, width, out.ellipsis), width, right=column.right)
            for column, width in zip(columns, widths, strict=True)
        ]
        yield out.styled(GAP.join(titles).rstrip(), "faint")
    last = len(columns) - 1
    pieces: list[str | Values] = []
    for place, (column, each, width) in enumerate(zip(columns, cells, widths, strict=True)):
        is_padded = place < last or column.right
        fitted = each._replace(
            values=_fit(each.values, width, out, is_padded=is_padded, right=column.right)
        )
        if out.colour and column.style:
            fitted = combined([fitted, of_rows(column.style)], count, out.styled)
        pieces += [GAP, fitted]
    for line in texts_of(pieces[1:], count):
        yield line.rstrip()


def _width(texts: Sequence[str]) -> int:
    """The columns of a terminal that the widest of these cells takes."""
    return max(map(len if _is_ascii(texts) else columns_of, texts), default=0)


def _is_ascii(texts: Sequence[str]) -> bool:
    return "".join(texts).isascii()


def _fit(
    texts: Sequence[str], width: int, out: Terminal, *, is_padded: bool, right: bool
) -> Sequence[str]:
    """The cells of a column, cut to its width and, if wanted, padded to it."""
    if _is_ascii(texts) and _width(texts) <= width:  # most are
        if not is_padded:
            return texts
        return [text.rjust(width) if right else text.ljust(width) for text in texts]
    texts = [cut(text, width, out.ellipsis) for text in texts]
    return [aligned(text, width, right=right) for text in texts] if is_padded else texts


def print_listing(
    columns: Sequence[Column[T]], rows: Iterable[T], out: Terminal, *, header: bool = True
) -> None:
    """Print a `listing`."""
    for line in listing(columns, rows, out, header=header):
        sys.stdout.write(line + "\n")


def _fitted(columns: Sequence[Column[T]], widths: list[int], room: int) -> list[int]:
    """Make columns narrower until a line fits: the widest first, none below its least width."""
    fitted = list(widths)
    excess = sum(fitted) + len(GAP) * (len(fitted) - 1) - room
    elastic = [place for place, column in enumerate(columns) if column.least is not None]
    while excess > 0:
        wide = [place for place in elastic if fitted[place] > (columns[place].least or 0)]
        if not wide:
            break
        fitted[max(wide, key=lambda place: fitted[place])] -= 1
        excess -= 1
    return fitted
