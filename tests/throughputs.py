"""Tables of throughputs from files."""

from __future__ import annotations

from pathlib import Path

from dlsched.core.speed.throughput_table import ThroughputTable
from simulate.profiles.throughput_file import measurements_of


def read_throughputs(path: str | Path) -> ThroughputTable:
    """Read a table: a file, or all files of a folder whose names contain `throughputs`.

    Raises:
        BadInput: one line with file and line number.
    """
    return ThroughputTable(measurements_of(Path(path)))
