"""Names for the numpy column types that both worlds speak in, and what packing does to them."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Rows = NDArray[np.int64]  # row numbers of a UnitTable

T = TypeVar("T", bound=np.generic)


def kinds_of(*columns: NDArray[Any]) -> tuple[Ints, Ints]:
    """Which entries are equal in all columns.

    Returns:
        one entry of each kind, and the kind of each entry.
    """
    order = np.lexsort(columns)
    starts = np.ones(len(order), np.bool_)
    if len(order):
        ordered = [column[order] for column in columns]
        starts[1:] = np.logical_or.reduce([each[1:] != each[:-1] for each in ordered])
    kind = np.empty(len(order), np.int64)
    kind[order] = np.cumsum(starts) - 1
    return order[starts], kind


def numbers(column: NDArray[Any]) -> Floats:
    """A column as numbers; in a live cluster one submission may say a word instead: NaN."""
    if column.dtype != np.object_:
        return np.asarray(column, np.float64)
    found = np.full(len(column), np.nan)
    for place, value in enumerate(column.tolist()):
        with suppress(ValueError):
            found[place] = float(value)
    return np.where(found >= 0, found, np.nan)


def carried(column: NDArray[T], old: Rows, fresh: float) -> NDArray[T]:
    """A part's own column after the table was packed.

    Args:
        column: by old row; it may be shorter than the table was.
        old: per new row its old number, -1 for none.
        fresh: the value of rows that had none.
    """
    known = (old >= 0) & (old < len(column))
    values = np.full(len(old), fresh, column.dtype)
    values[known] = column[old[known]]
    return values
