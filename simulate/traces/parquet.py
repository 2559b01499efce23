"""Parquet files, by way of polars (the optional extra `parquet`)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlsched.core.errors import BadInput
from simulate.csv_text import number_text
from simulate.traces.ledger import Ledger
from simulate.traces.table import Table
from simulate.traces.trace import FloatColumn


def read_parquet(
    path: Path, ledger: Ledger, *, numbers: Collection[str], required: Collection[str]
) -> Table:
    """Read a Parquet file as a `Table`; "line" numbers are row numbers from 1.

    Args:
        path: of the file.
        ledger: takes the rows with a number that is not finite.
        numbers: columns of numbers.
        required: columns that must be there.

    Raises:
        BadInput: polars isn't installed, the file is damaged, or a column is missing.
    """
    polars = _polars(path)
    try:
        frame = polars.read_parquet(path)
    except FileNotFoundError:
        raise BadInput(f"{path}: no such file") from None
    except (OSError, polars.exceptions.PolarsError) as error:
        reason = (str(error).splitlines() or ["unknown reason"])[0]
        raise BadInput(f"{path}: not a readable Parquet file ({reason})") from None
    header = tuple(frame.columns)
    missing = [name for name in required if name not in header]
    if missing:
        raise BadInput(f"{path}: no column {', '.join(missing)}; it has {', '.join(header)}")
    table = Table(
        header=header,
        lines=np.arange(1, frame.height + 1, dtype=np.int64),
        texts={name: _texts(frame[name]) for name in header if name not in numbers},
        numbers={},
        ledger=ledger,
    )
    for name in header:
        if name in numbers:
            table.numbers[name] = _numbers(path, name, frame[name])
            infinite = np.flatnonzero(np.isinf(table.numbers[name]))
            table.refuse(infinite, f"{name} is not a number", f"{name} is not finite")
    return table


def write_parquet(path: Path, columns: Mapping[str, NDArray[Any]]) -> None:
    """Write columns; NaN becomes null.

    Raises:
        BadInput: polars isn't installed, or the file can't be written.
    """
    polars = _polars(path)
    frame = polars.DataFrame(
        {
            name: polars.Series(name, column.tolist(), dtype=polars.String)
            if column.dtype == object
            else polars.Series(name, column, nan_to_null=True)
            for name, column in columns.items()
        }
    )
    try:
        frame.write_parquet(path)
    except OSError as error:
        raise BadInput(f"{path}: can't be written ({error.strerror or error})") from None


def _polars(path: Path) -> Any:
    try:
        import polars  # noqa: PLC0415  # heavy and optional
    except ImportError:
        raise BadInput(
            f"{path}: Parquet needs polars; install dlsched[parquet], or use .csv or .csv.gz"
        ) from None
    return polars


def _texts(series: Any) -> NDArray[np.object_]:
    """Numbers become the text a CSV file would have, so that both read alike."""
    values = series.to_list()
    texts = [
        number_text(each) if isinstance(each, float) else "" if each is None else str(each)
        for each in values
    ]
    return np.array(texts, dtype=object)


def _numbers(path: Path, name: str, series: Any) -> FloatColumn:
    polars = _polars(path)
    try:
        values = series.cast(polars.Float64).to_numpy()
    except polars.exceptions.PolarsError:
        raise BadInput(f"{path}: column {name} holds something else than numbers") from None
    return np.array(values, dtype=np.float64)
