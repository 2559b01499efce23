"""Formats whose file is one table: how their columns become jobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from simulate.traces.ledger import Ledger
from simulate.traces.normal import Rows, Source, normal_trace
from simulate.traces.options import ReadOptions
from simulate.traces.table import Table, read_table
from simulate.traces.trace import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFormat(Source):
    """A format of one table.

    Attributes:
        rows: makes the jobs from the columns; raises BadInput for a table that it cannot use.
        required: columns that every file has.
        numbers: columns of numbers; all others are texts.
        marks: columns by which a header is recognised; the required ones where none are given.
        exact: a header with further columns is not recognised.
        unique: text columns whose values hardly repeat.
    """

    rows: Callable[[Table], Rows]
    required: tuple[str, ...]
    numbers: tuple[str, ...]
    marks: tuple[str, ...] = ()
    exact: bool = False
    unique: tuple[str, ...] = ("job_id",)

    def recognises(self, header: Sequence[str]) -> bool:
        """Whether a header is that of this format."""
        names, marks = set(header), set(self.marks or self.required)
        return names == marks if self.exact else names >= marks

    def read(self, path: Path, options: ReadOptions) -> Trace:
        """Read a file.

        Raises:
            BadInput: see `read_table`, `normal_trace` and the format's `rows`.
        """
        ledger = Ledger(path, skip_bad_rows=options.skip_bad_rows)
        table = read_table(
            path, ledger, numbers=self.numbers, required=self.required, unique=self.unique
        )
        return normal_trace(self.rows(table), ledger, options, self)
