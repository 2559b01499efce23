"""A table of named columns: numpy arrays, as a DataFrame where a library for these is installed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlsched.core.errors import BadInput, DlschedError
from simulate.csv_text import column_texts, quoted, whole_file

SHOWN_ROWS = 20
Column = NDArray[Any]


class Columns(Mapping[str, Column]):
    """Columns of equal length by name, in order; texts are object arrays, unknown numbers NaN.

    `to_pandas()` and `to_polars()` make a DataFrame of it; whatever takes Arrow streams takes it as
    it is (`polars.DataFrame(columns)`, `pandas.DataFrame.from_arrow(columns)`). None is required.
    """

    def __init__(self, columns: Mapping[str, Column | Sequence[Any]]) -> None:
        """Take the columns, which must have one length."""
        self._columns = {name: _array(values) for name, values in columns.items()}
        lengths = {len(column) for column in self._columns.values()}
        if len(lengths) > 1:
            raise ValueError(f"columns of different lengths: {sorted(lengths)}")
        self._rows = lengths.pop() if lengths else 0

    def __getitem__(self, name: str) -> Column:
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        """The number of columns; `rows` is the number of rows."""
        return len(self._columns)

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self._rows

    def where(self, **wanted: object) -> Columns:
        """The rows in which columns have these values: `jobs.where(policy="srtf", seed=1)`."""
        keep = np.ones(self._rows, np.bool_)
        for name, value in wanted.items():
            keep &= self._columns[name] == value
        return Columns({name: column[keep] for name, column in self._columns.items()})

    def records(self) -> Iterator[dict[str, Any]]:
        """Each row as a dictionary of plain Python values."""
        lists = [column.tolist() for column in self._columns.values()]
        for row in zip(*lists, strict=True):
            yield dict(zip(self._columns, row, strict=True))

    def to_pandas(self) -> Any:
        """A `pandas.DataFrame`.

        Raises:
            BadInput: pandas is not installed.
        """
        return _imported("pandas", "pip install pandas").DataFrame(self._columns)

    def to_polars(self) -> Any:
        """A `polars.DataFrame`.

        Raises:
            BadInput: polars is not installed.
        """
        return _imported("polars", "pip install 'dlsched[parquet]'").DataFrame(
            {
                name: column.tolist() if column.dtype == np.object_ else column
                for name, column in self._columns.items()
            }
        )

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The Arrow PyCapsule protocol, by polars or pandas, whichever is installed."""
        return self._frame().__arrow_c_stream__(requested_schema)

    def __dataframe__(self, nan_as_null: bool = False, allow_copy: bool = True) -> Any:
        """The older interchange protocol, as `__arrow_c_stream__`."""
        return self._frame().__dataframe__(nan_as_null=nan_as_null, allow_copy=allow_copy)

    def _frame(self) -> Any:
        return self.to_polars() if find_spec("polars") is not None else self.to_pandas()

    def write_csv(self, path: str | Path) -> None:
        """Write a CSV file, packed where its name ends in .gz; unknown numbers are empty.

        Raises:
            DlschedError: the file cannot be written.
        """
        cells = [column_texts(column) for column in self._columns.values()]
        try:
            with whole_file(Path(path)) as raw:
                raw.write((",".join(map(quoted, self._columns)) + "\n").encode())
                raw.write(
                    "".join(f"{','.join(row)}\n" for row in zip(*cells, strict=True)).encode()
                )
        except OSError as error:
            raise DlschedError(f"{path}: cannot be written ({error.strerror or error})") from None

    def __repr__(self) -> str:
        first = {name: column[:SHOWN_ROWS] for name, column in self._columns.items()}
        cells = [[name, *map(_shown, column.tolist())] for name, column in first.items()]
        widths = [max(map(len, column)) for column in cells]
        lines = [
            "  ".join(text.rjust(width) for text, width in zip(row, widths, strict=True))
            for row in zip(*cells, strict=True)
        ]
        more = self._rows - SHOWN_ROWS
        return "\n".join([*lines, *([f"… {more:,} more rows"] if more > 0 else [])])


def _imported(library: str, how: str) -> Any:
    """A library of DataFrames, which is not required."""
    try:
        return import_module(library)
    except ImportError:
        raise BadInput(f"{library} is needed for a DataFrame: {how}") from None


def _array(values: Column | Sequence[Any]) -> Column:
    """A column as an array; None among numbers is NaN."""
    if isinstance(values, np.ndarray):
        return values
    if any(isinstance(value, str) for value in values):
        return np.array(["" if value is None else value for value in values], np.object_)
    if any(value is None or isinstance(value, float) for value in values):
        return np.array([np.nan if value is None else value for value in values], np.float64)
    return np.array(values)


def _shown(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
