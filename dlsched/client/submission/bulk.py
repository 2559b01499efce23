"""Many submissions of one file: `--from jobs.csv`, `jobs.jsonl`, or `-` for either on stdin.

Columns are options by key (`gpus`, `time`, …) and one of `command` (for the shell), `argv` (JSON
lines only: a list) or `script` (a path) with `args`. An error names the file and the line.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dlsched.client.submission.options import BY_NAME, put
from dlsched.client.submission.table_files import Row as TableRow
from dlsched.client.submission.table_files import csv_lines, decoded, is_json, json_lines
from dlsched.core.errors import BadInput, shorten

MOST_ROWS = 100_000
_OURS = {"command", "argv", "script", "args"}
_LOCAL = {"wait", "parsable"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line: where it stood, its options, and what it runs."""

    place: str
    layer: dict[str, str]
    argv: tuple[str, ...] = ()
    command: str = ""
    script: str = ""


def read_rows(name: str, data: bytes) -> Iterator[Row]:
    """Read CSV with a header, or one JSON object a line; the first character tells which.

    Raises:
        BadInput: as `name:line: what`; also an empty file and one with too many rows.
    """
    text = decoded(name, data)
    rows = json_lines(name, text) if is_json(text) else _without_empty(name, text)
    count = 0
    for count, (place, fields) in enumerate(rows, 1):
        if count > MOST_ROWS:
            raise BadInput(f"{place}: more than {MOST_ROWS} jobs in one call")
        yield row_of(place, fields)
    if count == 0:
        raise BadInput(f"{name}: holds no jobs")


def _without_empty(name: str, text: str) -> Iterator[TableRow]:
    """The rows of a CSV file; an empty cell says nothing."""
    for place, fields in csv_lines(name, text, _check_header):
        yield place, {key: cell for key, cell in fields.items() if cell}


def _check_header(place: str, header: list[str]) -> None:
    for key in header:
        _check_key(place, key)
    if not {"command", "script"} & set(header):
        raise BadInput(f"{place}: no column 'command' or 'script'")


def _check_key(place: str, key: str) -> None:
    if (key not in BY_NAME and key not in _OURS) or key in _LOCAL:
        raise BadInput(f"{place}: {shorten(key)!r} is not an option of submit")


def row_of(place: str, fields: dict[str, Any]) -> Row:
    """Make a row of the values of a file, by column.

    Raises:
        BadInput: as `place: what`.
    """
    for key in fields:
        _check_key(place, key)
    given = [key for key in ("command", "argv", "script") if fields.get(key)]
    if len(given) != 1:
        told = " and ".join(given) or "none of them"
        raise BadInput(f"{place}: one of command, argv and script is needed, not {told}")
    layer: dict[str, str] = {}
    for key, value in fields.items():
        if key not in _OURS and value is not None:
            put(layer, BY_NAME[key], f"{place}: {key}", _text(place, key, value))
    argv = _words(place, fields)
    return Row(
        place=place,
        layer=layer,
        argv=argv,
        command=_plain(place, "command", fields.get("command") or ""),
        script=_plain(place, "script", fields.get("script") or ""),
    )


def _words(place: str, fields: dict[str, Any]) -> tuple[str, ...]:
    words = fields.get("argv") or fields.get("args") or []
    if isinstance(words, str):
        try:
            words = shlex.split(words)
        except ValueError as error:
            raise BadInput(f"{place}: args: {str(error).lower()}") from None
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise BadInput(f"{place}: argv: not a list of texts")
    return tuple(words)


def _plain(place: str, key: str, value: object) -> str:
    if not isinstance(value, str):
        raise BadInput(f"{place}: {key}: not a text")
    return value


def _text(place: str, key: str, value: object) -> str:
    """A column's value as the option's text; JSON may hold numbers, truth values and mappings."""
    kind = BY_NAME[key].kind
    if kind == "many" and isinstance(value, dict):
        return "\n".join(f"{name}={each}" for name, each in value.items())
    if not isinstance(value, str | int | float) or (isinstance(value, bool) and kind != "flag"):
        raise BadInput(f"{place}: {key}: not a text or a number")
    return str(value)
