"""Writing a trace in the native format, the same bytes for the same trace.

Integers are written without a point, other numbers as their shortest exact text, unknowns as empty
fields.
"""

from __future__ import annotations

import csv
import gzip
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from dlsched.core.errors import BadInput
from simulate.traces.parquet import write_parquet
from simulate.traces.trace import Trace

__all__ = ["native_columns", "write_trace"]

BLOCK_ROWS = 16_384
# Beyond, not every integer has a float.
_EXACT_INTEGERS = 2.0**53


def write_trace(trace: Trace, path: str | Path) -> None:
    """Write `.csv`, `.csv.gz` or `.parquet`; the file appears whole or not at all.

    Raises:
        BadInput: another ending, the file can't be written, or Parquet without polars.
    """
    path = Path(path)
    columns = native_columns(trace)
    part = path.with_name(f".{path.name}.part")
    try:
        if path.name.endswith(".parquet"):
            write_parquet(part, columns)
        elif path.name.endswith((".csv", ".csv.gz")):
            with _create_text(part, packed=path.name.endswith(".gz")) as text:
                _write_rows(text, columns)
        else:
            raise BadInput(f"{path}: a native trace ends in .csv, .csv.gz or .parquet")
        os.replace(part, path)
    except OSError as error:
        raise BadInput(f"{path}: can't be written ({error.strerror or error})") from None
    finally:
        part.unlink(missing_ok=True)


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


def _write_rows(text: TextIO, columns: dict[str, NDArray[Any]]) -> None:
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    count = len(next(iter(columns.values())))
    for first in range(0, count, BLOCK_ROWS):
        block = [_texts(column[first : first + BLOCK_ROWS]) for column in columns.values()]
        writer.writerows(zip(*block, strict=True))


def _texts(column: NDArray[Any]) -> list[str]:
    if column.dtype == object:
        texts: list[str] = column.tolist()
        return texts
    with np.errstate(invalid="ignore"):
        whole = (np.trunc(column) == column) & (np.abs(column) < _EXACT_INTEGERS)
    if whole.all():
        return list(map(str, column.astype(np.int64).tolist()))
    return [
        str(int(value)) if is_whole else "" if np.isnan(value) else repr(value)
        for value, is_whole in zip(column.tolist(), whole.tolist(), strict=True)
    ]


@contextmanager
def _create_text(path: Path, *, packed: bool) -> Iterator[TextIO]:
    with path.open("wb") as raw:
        if not packed:
            with io.TextIOWrapper(raw, encoding="utf-8", newline="") as text:
                yield text
            return
        # Neither the name nor the time of writing belongs into the bytes.
        with (
            gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0, compresslevel=6) as packer,
            io.TextIOWrapper(packer, encoding="utf-8", newline="") as text,
        ):
            yield text
