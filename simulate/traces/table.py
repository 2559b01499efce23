"""Tables of separated values, read in blocks into columns.

A block at a time keeps the memory near that of the finished columns. Every row keeps the number
of its line, so that any later complaint can name it.
"""

from __future__ import annotations

import csv
import math
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from dlsched.core.errors import BadInput, plural
from simulate.traces.clock import WallTimes, parse_wall_times
from simulate.traces.ledger import Ledger, Lines
from simulate.traces.status import STATUSES, normal_statuses
from simulate.traces.textfile import lines_of, open_text
from simulate.traces.trace import FloatColumn, TextColumn

# Small enough for the processor's cache: twice as fast as blocks of 32,768 rows.
BLOCK_ROWS = 1_024

Scalar = TypeVar("Scalar", bound=np.generic)

# How logs write "not known". A native file has only the empty field.
LOST = frozenset({"", "nan", "NaN", "None", "null", "NULL", "N/A", "NA", "Unknown"})
EMPTY = frozenset({""})


@dataclass(slots=True, kw_only=True)
class Table:
    """Columns of one file; `usable` loses the rows that turn out to be malformed."""

    header: tuple[str, ...]
    lines: Lines
    texts: dict[str, TextColumn]
    numbers: dict[str, FloatColumn]
    ledger: Ledger
    usable: NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        self.usable = np.ones(len(self.lines), dtype=np.bool_)

    def __len__(self) -> int:
        return len(self.lines)

    def refuse(
        self,
        rows: Sequence[int] | NDArray[np.intp],
        reason: str,
        message: str | Callable[[int], str],
    ) -> None:
        """Refuse rows that are still usable; the message may depend on the row.

        Raises:
            BadInput: for the first of them, unless bad rows are skipped.
        """
        for row in rows:
            if self.usable[row]:
                text = message if isinstance(message, str) else message(int(row))
                self.ledger.refuse(int(self.lines[row]), reason, text)
                self.usable[row] = False

    def text(self, name: str) -> TextColumn:
        """Return a text column, all "" when the file hasn't got it."""
        column = self.texts.get(name)
        return column if column is not None else np.full(len(self), "", dtype=object)

    def number(self, name: str) -> FloatColumn:
        """Return a numeric column, all NaN when the file hasn't got it."""
        column = self.numbers.get(name)
        return column if column is not None else np.full(len(self), np.nan)

    def times(self, name: str) -> WallTimes:
        """Parse a column of wall-clock times; malformed ones are refused."""
        cells = self.text(name)
        times = parse_wall_times(cells)
        self.refuse(
            times.malformed,
            f"{name} is not a time",
            lambda row: f"{name} is {cells[row]!r}, not a time like 2020-06-09 18:41:01",
        )
        return times

    def statuses(self, name: str) -> TextColumn:
        """Map a column of the source's status words; unknown words are refused."""
        words = self.text(name)
        column, unknown = normal_statuses(words)
        self.refuse(
            unknown,
            f"{name} is unknown",
            lambda row: f"{name} is {words[row]!r}, none of {', '.join(STATUSES)} in any spelling",
        )
        return column

    def row_numbers(self) -> TextColumn:
        """Name jobs that have no id by their row, counted from 0."""
        return np.array(list(map(str, range(len(self)))), dtype=object)


def read_table(
    path: Path,
    ledger: Ledger,
    *,
    numbers: Collection[str] = (),
    required: Collection[str] = (),
    unique: Collection[str] = ("job_id",),
    header: Sequence[str] | None = None,
    only: Collection[str] | None = None,
    delimiter: str = ",",
    quoted: bool = True,
    lost: Collection[str] = LOST,
) -> Table:
    """Read a table of separated values.

    Args:
        path: plain or gzip.
        ledger: takes the malformed rows.
        numbers: columns to parse as numbers; a field that is in `lost` becomes NaN.
        required: columns the header must have.
        unique: text columns whose values hardly repeat; all others share equal strings.
        header: names for a file that has no header line.
        only: the columns to keep of a wide table; None keeps all.
        delimiter: the separator.
        quoted: whether "…" protects the separator.
        lost: spellings of "not known" in number columns.

    Raises:
        BadInput: no header, a column is missing or twice there, damaged bytes; malformed rows,
            unless the ledger skips them.
    """
    with open_text(path) as text:
        reader = csv.reader(
            lines_of(path, text),
            delimiter=delimiter,
            quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE,
            strict=True,
        )
        if header is None:
            header = next((row for row in reader if row), None)
            if header is None:
                raise BadInput(f"{path}: the file is empty; its first line must name the columns")
        names = _column_names(path, header, required)
        if only is not None:
            names = tuple(name if name in only else "" for name in names)
        blocks: list[tuple[Lines, dict[str, TextColumn], dict[str, FloatColumn]]] = []
        while True:
            before = reader.line_num
            rows = list(islice(reader, BLOCK_ROWS))
            if not rows:
                break
            lines = _line_numbers(rows, before, reader.line_num)
            rows, lines = _whole_rows(rows, lines, len(header), ledger)
            if rows:
                blocks.append(
                    _columns(
                        rows,
                        lines,
                        names=names,
                        numbers=numbers,
                        unique=unique,
                        ledger=ledger,
                        lost=lost,
                    )
                )
    columns = [name for name in names if name]
    return Table(
        header=tuple(columns),
        lines=_join([block[0] for block in blocks], np.int64),
        texts={
            name: _join([block[1][name] for block in blocks], np.object_)
            for name in columns
            if name not in numbers
        },
        numbers={
            name: _join([block[2][name] for block in blocks], np.float64)
            for name in columns
            if name in numbers
        },
        ledger=ledger,
    )


def parse_numbers(
    cells: Sequence[str], lost: Collection[str] = EMPTY
) -> tuple[FloatColumn, list[int]]:
    """Parse finite numbers, `lost` spellings as NaN; also say which rows hold neither."""
    blanks = cells.count("")
    try:
        values = np.fromiter(
            map(float, cells)
            if not blanks
            else (float(cell) if cell else math.nan for cell in cells),
            np.float64,
            len(cells),
        )
        # Python also reads 1_000, inf and nan: not what a trace means by a number.
        if np.count_nonzero(~np.isfinite(values)) == blanks and "_" not in "".join(cells):
            return values, []
    except ValueError:
        pass
    values = np.full(len(cells), np.nan)
    malformed = []
    for row, cell in enumerate(cells):  # the slow way, to find which fields are wrong
        text = cell.strip()
        if text in lost:
            continue
        try:
            number = math.nan if "_" in text else float(text)
        except ValueError:
            number = math.nan
        if math.isfinite(number):
            values[row] = number
        else:
            malformed.append(row)
    return values, malformed


def as_numbers(column: TextColumn) -> FloatColumn | None:
    """Return the column as numbers if it holds some and nothing else, otherwise None."""
    cells: list[str] = column.tolist()
    first = next((cell for cell in cells if cell), "")
    if parse_numbers([first])[1] or not first:
        return None
    values, malformed = parse_numbers(cells)
    return None if malformed else values


def _column_names(path: Path, header: Sequence[str], required: Collection[str]) -> tuple[str, ...]:
    names = tuple(name.strip() for name in header)
    missing = [name for name in required if name not in names]
    if missing:
        listed = " ".join(", ".join(names).split())  # a stray quote may have caught line breaks
        raise BadInput(
            f"{path}:1: no column {', '.join(missing)}; the first line must name the columns, "
            f"and it has {listed[:200]}"
        )
    twice = {name for name in names if name and names.count(name) > 1}
    if twice:
        raise BadInput(f"{path}:1: column {' '.join(min(twice).split())} is there twice")
    return names


def _line_numbers(rows: Sequence[Sequence[str]], before: int, after: int) -> Lines:
    if after - before == len(rows):
        return np.arange(before + 1, after + 1, dtype=np.int64)
    # Some quoted field holds line breaks: a row's line is where it starts.
    breaks = [sum(cell.count("\n") for cell in row) for row in rows]
    return before + 1 + np.arange(len(rows)) + np.concatenate(([0], np.cumsum(breaks)[:-1]))


def _whole_rows(
    rows: list[list[str]], lines: Lines, width: int, ledger: Ledger
) -> tuple[list[list[str]], Lines]:
    """Leave out blank lines and refuse rows with more or fewer fields than the header."""
    if {len(row) for row in rows} == {width}:
        return rows, lines
    whole = []
    for row, cells in enumerate(rows):
        if len(cells) == width:
            whole.append(row)
        elif cells and (len(cells) > 1 or cells[0].strip()):
            ledger.refuse(
                int(lines[row]),
                "wrong number of fields",
                f"{plural(len(cells), 'field')} where the header has {width}",
            )
    return [rows[row] for row in whole], lines[whole]


def _columns(
    rows: list[list[str]],
    lines: Lines,
    *,
    names: Sequence[str],
    numbers: Collection[str],
    unique: Collection[str],
    ledger: Ledger,
    lost: Collection[str],
) -> tuple[Lines, dict[str, TextColumn], dict[str, FloatColumn]]:
    texts: dict[str, TextColumn] = {}
    values: dict[str, FloatColumn] = {}
    usable = np.ones(len(rows), dtype=np.bool_)
    for name, cells in zip(names, zip(*rows, strict=True), strict=True):
        if not name:
            continue  # not wanted, or made by a separator at the end of the line
        if name in numbers:
            values[name], malformed = parse_numbers(cells, lost)
            for row in malformed:
                if usable[row]:
                    ledger.refuse(
                        int(lines[row]),
                        f"{name} is not a number",
                        f"{name} is {cells[row]!r}, not a number",
                    )
                    usable[row] = False
        elif name in unique:
            texts[name] = np.array(cells, dtype=object)
        else:
            texts[name] = np.array(list(map(sys.intern, cells)), dtype=object)
    if not usable.all():
        lines = lines[usable]
        texts = {name: column[usable] for name, column in texts.items()}
        values = {name: column[usable] for name, column in values.items()}
    return lines, texts, values


def _join(parts: list[NDArray[Scalar]], dtype: type[Scalar]) -> NDArray[Scalar]:
    return np.concatenate(parts) if parts else np.empty(0, dtype=dtype)
