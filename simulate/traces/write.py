"""Writing a trace in the native format, the same bytes for the same trace.

Integers are written without a point, other numbers as their shortest exact text, unknowns as empty
fields.
"""

from __future__ import annotations

from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from dlsched.core.errors import BadInput
from dlsched.system.output_files import appearing_whole
from simulate.csv_text import column_texts, quoted, whole_file
from simulate.traces.parquet import write_parquet
from simulate.traces.trace import Trace

BLOCK_ROWS = 16_384


def write_trace(trace: Trace, path: str | Path) -> None:
    """Write `.csv`, `.csv.gz` or `.parquet`; the file appears whole or not at all.

    Raises:
        BadInput: another ending, the file can't be written, or Parquet without polars.
    """
    path = Path(path)
    columns = native_columns(trace)
    try:
        if path.name.endswith(".parquet"):
            with appearing_whole(path) as part:
                write_parquet(part, columns)
        elif path.name.endswith((".csv", ".csv.gz")):
            with whole_file(path) as raw:
                _write_rows(raw, columns)
        else:
            raise BadInput(f"{path}: a native trace ends in .csv, .csv.gz or .parquet")
    except OSError as error:
        raise BadInput(f"{path}: can't be written ({error.strerror or error})") from None


def native_columns(trace: Trace) -> dict[str, NDArray[Any]]:
    """Return the columns of the native file: those required, then those that hold anything."""
    required: dict[str, NDArray[Any]] = {
        "job_id": trace.job_id,
        "submit_time": trace.submit_time,
        "num_gpus": trace.num_gpus,
        "duration": trace.duration,
    }
    optional: dict[str, NDArray[Any]] = {
        "user": trace.user,
        "vc": trace.vc,
        "status": trace.status,
        **trace.columns,
    }
    return required | {name: column for name, column in optional.items() if _holds_any(column)}


def _holds_any(column: NDArray[Any]) -> bool:
    if column.dtype == object:
        return any(column.tolist())
    return not bool(np.isnan(column).all())


def _write_rows(raw: IO[bytes], columns: dict[str, NDArray[Any]]) -> None:
    raw.write((",".join(map(quoted, columns)) + "\n").encode())
    count = len(next(iter(columns.values())))
    for first in range(0, count, BLOCK_ROWS):
        block = [column_texts(column[first : first + BLOCK_ROWS]) for column in columns.values()]
        raw.write("".join(f"{','.join(row)}\n" for row in zip(*block, strict=True)).encode())
