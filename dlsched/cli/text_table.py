"""A table for a terminal (colours, as many parts as the width asks for) or for a pipe (all of it).

Nothing is ever cut off.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

__all__ = ["TextTable"]

GAP = "  "


@dataclass(slots=True)
class Column:
    """A column: its title, its cells, and which of them to stress."""

    title: str
    cells: list[str]
    left: bool = False
    best: frozenset[int] = frozenset()

    @property
    def width(self) -> int:
        """In characters."""
        return max(len(self.title), *map(len, self.cells)) if self.cells else len(self.title)


@dataclass(slots=True)
class TextTable:
    """Columns of texts; the first `names` of them name the rows and come with every part."""

    title: str = ""
    columns: list[Column] = field(default_factory=list)
    names: int = 1

    def add(
        self,
        title: str,
        cells: Sequence[str],
        *,
        left: bool = False,
        best: Collection[int] = (),
    ) -> None:
        """Add a column; numbers stand right, and `best` are rows to stress."""
        self.columns.append(Column(title, list(cells), left, frozenset(best)))

    def lines(self, *, width: int | None = None, colour: bool = False) -> Iterator[str]:
        """The table as text.

        Args:
            width: characters of a line; a wider table is shown in parts. None: one part.
            colour: stress titles and best values (ANSI).
        """
        if self.title:
            yield _stress(self.title, "1", colour=colour)
        for number, part in enumerate(self._parts(width)):
            if number:
                yield ""
            yield GAP.join(
                _stress(_aligned(each.title, each), "2", colour=colour) for each in part
            ).rstrip()
            for row in range(len(part[0].cells)):
                yield GAP.join(
                    _stress(
                        _aligned(each.cells[row], each), "1;32", colour=colour and row in each.best
                    )
                    for each in part
                ).rstrip()

    def _parts(self, width: int | None) -> list[list[Column]]:
        """The columns in as many parts as needed, of about equal width."""
        head, rest = self.columns[: self.names], self.columns[self.names :]
        if width is None or not rest:
            return [self.columns]
        for count in range(1, len(rest) + 1):
            size = -(-len(rest) // count)
            parts = [head + rest[at : at + size] for at in range(0, len(rest), size)]
            if all(_width(part) <= width for part in parts):
                return parts
        return [[*head, each] for each in rest]


def _width(columns: Sequence[Column]) -> int:
    return sum(column.width for column in columns) + len(GAP) * (len(columns) - 1)


def _aligned(text: str, column: Column) -> str:
    return text.ljust(column.width) if column.left else text.rjust(column.width)


def _stress(text: str, code: str, *, colour: bool) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if colour else text
