"""A table of figures, for a terminal (in colours, in parts that fit the width) or for a pipe.

No cell is ever cut.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

GAP = "  "


@dataclass(slots=True)
class Column:
    """A column: its title, its cells, and the rows to emphasize."""

    title: str
    cells: list[str]
    left: bool = False
    best: frozenset[int] = frozenset()

    @property
    def width(self) -> int:
        """The width in characters."""
        return max(len(self.title), *map(len, self.cells)) if self.cells else len(self.title)


@dataclass(slots=True)
class TextTable:
    """Columns of texts; the first `names` columns name the rows and are in every part."""

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
        """Add a column.

        Args:
            title: its title.
            cells: a text for each row.
            left: align it to the left, for texts; numbers are aligned to the right.
            best: rows to emphasize.
        """
        self.columns.append(Column(title, list(cells), left, frozenset(best)))

    def lines(self, *, width: int | None = None, colour: bool = False) -> Iterator[str]:
        """Return the lines of the table.

        A table wider than `width` characters is shown in parts (None: one part); `colour`
        emphasizes titles and best values (ANSI).
        """
        if self.title:
            yield _emphasized(self.title, "1", colour=colour)
        for number, part in enumerate(self._parts(width)):
            if number:
                yield ""
            yield GAP.join(
                _emphasized(_aligned(each.title, each), "2", colour=colour) for each in part
            ).rstrip()
            for row in range(len(part[0].cells)):
                yield GAP.join(
                    _emphasized(
                        _aligned(each.cells[row], each), "1;32", colour=colour and row in each.best
                    )
                    for each in part
                ).rstrip()

    def _parts(self, width: int | None) -> list[list[Column]]:
        """Return the columns in as many parts as needed, of about equal size."""
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


def _emphasized(text: str, code: str, *, colour: bool) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if colour else text
