"""CSV files with numbers within bounds, and the line of each row in every error."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dlsched.core.arrays import Bools, Floats
from dlsched.core.errors import BadInput
from simulate.traces.ledger import Ledger
from simulate.traces.table import EMPTY, Table, read_table


class Bound(NamedTuple):
    """What the numbers of a column must be: in words, and for the whole column."""

    words: str
    holds: Callable[[Floats], Bools]


FINITE = Bound("a number", np.isfinite)
FROM_0 = Bound("0 or more", lambda values: values >= 0)
ABOVE_0 = Bound("more than 0", lambda values: values > 0)
FROM_1 = Bound("1 or more", lambda values: values >= 1)
WHOLE = Bound("a whole number of 0 or more", lambda values: (values >= 0) & _whole(values))
WHOLE_FROM_1 = Bound("a whole number of 1 or more", lambda values: (values >= 1) & _whole(values))


def _whole(values: Floats) -> Bools:
    found: Bools = (values == np.floor(values)) & (values < 2.0**53)
    return found


def read_rows(
    path: Path,
    bounds: Mapping[str, Bound],
    *,
    required: Sequence[str],
    unique: Sequence[str],
    nouns: str,
) -> Table:
    """Read a file, plain or gzip; columns that are not known are passed over.

    Args:
        path: of it.
        bounds: of all columns of numbers; one that is not required may be empty.
        required: the columns that must be there.
        unique: text columns whose values hardly repeat.
        nouns: what the rows are, for the message about a file without any.

    Raises:
        BadInput: one line with the file and the line number.
    """
    ledger = Ledger(path, skip_bad_rows=False)
    table = read_table(
        path, ledger, numbers=tuple(bounds), required=required, unique=unique, lost=EMPTY
    )
    for name, bound in bounds.items():
        values = table.number(name)
        wrong = ~bound.holds(values)
        if name not in required:
            wrong &= ~np.isnan(values)
        table.refuse(
            np.flatnonzero(wrong),
            f"{name} is unclear",
            lambda row, name=name, values=values, words=bound.words: (  # type: ignore[misc]
                f"{name} is {values[row]:g}; it must be {words}"
            ),
        )
    if not len(table):
        raise BadInput(f"{path}: has no {nouns}")
    return table


def rows_of(table: Table, **defaults: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rows one by one: where each is, and its values by column.

    An empty field, or one of a column that is not there, has its default; without one it is None.
    """
    names = dict.fromkeys((*table.header, *defaults))
    columns = {
        name: (table.numbers if name in table.numbers else table.texts)[name].tolist()
        for name in table.header
    }
    for row, line in enumerate(table.lines.tolist()):
        values = {}
        for name in names:
            value = columns[name][row] if name in columns else None
            unknown = value is None or value == "" or value != value  # noqa: PLR0124 - NaN
            values[name] = defaults.get(name) if unknown else value
        yield f"{table.ledger.path}:{line}", values
