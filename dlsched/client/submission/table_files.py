"""Tables that users write: CSV with a header, or one JSON object a line.

Errors name the file and the line.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from typing import Any

from dlsched.core.errors import BadInput, plural

Row = tuple[str, dict[str, Any]]  # `file:line`, and the cells by column


def decoded(name: str, data: bytes) -> str:
    """A file's text, without a byte order mark.

    Raises:
        BadInput: it is not UTF-8.
    """
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise BadInput(f"{name}:{line}: not valid UTF-8") from None


def is_json(text: str) -> bool:
    """Whether a table is JSON lines; the first character says so."""
    return text.lstrip()[:1] == "{"


def json_lines(name: str, text: str) -> Iterator[Row]:
    """Read one JSON object a line; empty lines are skipped.

    Raises:
        BadInput: a line is no JSON object.
    """
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        place = f"{name}:{number}"
        try:
            fields = json.loads(line)
        except (ValueError, RecursionError) as error:
            told = getattr(error, "msg", "nested too deeply")
            raise BadInput(f"{place}: not JSON ({told})") from None
        if not isinstance(fields, dict):
            raise BadInput(f"{place}: not a JSON object")
        yield place, fields


def csv_lines(
    name: str, text: str, check_header: Callable[[str, list[str]], None]
) -> Iterator[Row]:
    """Read CSV with a header; empty lines are skipped, cells are texts and may be empty.

    Args:
        name: of the file.
        text: its content.
        check_header: gets the header's place and its columns, before any row is read.

    Raises:
        BadInput: it is no CSV, a column stands twice, or a row has too many or too few cells.
    """
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    header: list[str] | None = None
    try:
        for cells in reader:
            place = f"{name}:{reader.line_num}"
            if not any(cells):
                continue
            if header is None:
                header = [cell.strip() for cell in cells]
                check_header(place, header)
                for key in header:
                    if header.count(key) > 1:
                        raise BadInput(f"{place}: column {key!r} stands there twice")
                continue
            if len(cells) != len(header):
                raise BadInput(
                    f"{place}: {plural(len(cells), 'field')} where the header has {len(header)}"
                )
            yield place, dict(zip(header, cells, strict=True))
    except csv.Error as error:
        raise BadInput(f"{name}:{reader.line_num}: not CSV ({error})") from None
