"""The account of rows that don't reach the trace: refused with their line, or counted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dlsched.core.errors import BadInput

Lines = NDArray[np.int64]  # line numbers in the file, from 1


class Ledger:
    """Counts, by reason, what a reader leaves out of one file."""

    def __init__(self, path: Path, *, skip_bad_rows: bool) -> None:
        self.path = path
        self.skip_bad_rows = skip_bad_rows
        self._counts: dict[str, int] = {}
        self._first_line: dict[str, int] = {}

    def refuse(self, line: int, reason: str, message: str, *, rows: int = 1) -> None:
        """Account for a malformed row.

        Args:
            line: where it is in the file.
            reason: what it is counted under.
            message: what is wrong with it.
            rows: how many rows it stands for.

        Raises:
            BadInput: `message` with file and line, unless bad rows are to be skipped; then the row
                is counted under `reason`.
        """
        if not self.skip_bad_rows:
            raise BadInput(f"{self.path}:{line}: {message}")
        self._count(reason, line, rows)

    def drop(self, reason: str, lines: Lines) -> None:
        """Count sound rows that were not asked for."""
        if lines.size:
            self._count(reason, int(lines.min()), int(lines.size))

    def _count(self, reason: str, line: int, rows: int) -> None:
        self._counts[reason] = self._counts.get(reason, 0) + rows
        self._first_line[reason] = min(line, self._first_line.get(reason, line))

    def dropped(self) -> dict[str, int]:
        """Rows left out by reason, in file order of each reason's first row."""
        return {
            reason: self._counts[reason]
            for reason in sorted(self._counts, key=lambda each: self._first_line[each])
        }
