"""Tables as text: the cells of CSV files, and files that appear whole.

A whole number has no point, another number is its shortest exact text, an unknown one is empty. The
same table gives the same bytes, also packed.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from dlsched.system.output_files import appearing_whole

EXACT_INTEGERS = 2.0**53  # beyond, not every integer has a float


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """A new file, packed when its name ends in .gz; it takes its name when all is written.

    Raises:
        OSError: it cannot be written.
    """
    with appearing_whole(path) as part, part.open("wb") as raw:
        if not path.name.endswith(".gz"):
            yield raw
            return
        # neither the name nor the time of writing belongs into the bytes
        with gzip.GzipFile("", "wb", compresslevel=6, fileobj=raw, mtime=0) as packed:
            yield packed  # type: ignore[misc]  # all that is asked of it is to be written to


def cell(value: object) -> str:
    """One value as a table has it."""
    if isinstance(value, float):
        return number_text(value)
    return "" if value is None else quoted(str(value))


def quoted(text: str) -> str:
    """A text as a table has it: in quotes where it has to be."""
    if any(sign in text for sign in ',"\r\n'):
        return '"' + text.replace('"', '""') + '"'
    return text


def column_texts(column: NDArray[Any]) -> list[str]:
    """A column as a table has it; whole columns at once, since a million rows have many cells."""
    if column.dtype == np.object_:
        texts: list[str] = column.tolist()
        special = {text: quoted(text) for text in set(texts)}
        if all(text == quoted for text, quoted in special.items()):
            return texts
        return [special[text] for text in texts]
    if column.dtype.kind in "iub":
        return list(map(str, column.astype(np.int64).tolist()))
    with np.errstate(invalid="ignore"):
        whole = (np.trunc(column) == column) & (np.abs(column) < EXACT_INTEGERS)
    if whole.all():
        return list(map(str, column.astype(np.int64).tolist()))
    return [
        str(int(value)) if is_whole else repr(value) if value == value else ""  # noqa: PLR0124 - NaN
        for value, is_whole in zip(column.tolist(), whole.tolist(), strict=True)
    ]


def number_text(value: float) -> str:
    """The shortest exact text of a number, "" for NaN."""
    if value != value:  # noqa: PLR0124 - NaN
        return ""
    return str(int(value)) if value.is_integer() and abs(value) < EXACT_INTEGERS else repr(value)
