"""Files of speeds by processors and memory, plain or gzip; see `HostTables` for what they hold."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dlsched.composition.host_tables import HostTables
from simulate.traces.textfile import lines_of, open_text


def read_host_files(files: Sequence[Path]) -> HostTables:
    """Read files.

    Raises:
        BadInput: one line with file and line number.
    """
    tables = HostTables()
    for file in files:
        with open_text(file) as text:
            tables.read(str(file), lines_of(file, text))
    return tables
