"""`--sweep params.csv`: an array with one task for each row, whose columns are its parameters."""

from __future__ import annotations

import os.path
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from dlsched.client.submission.output_patterns import output_pattern
from dlsched.client.submission.table_files import csv_lines, decoded, is_json, json_lines
from dlsched.client.submission.texts import check_text, whole_number
from dlsched.core.errors import BadInput, shorten
from dlsched.jobs import sweep as grammar
from dlsched.rpc import messages

MOST_ROWS = 100_000  # a site allows less
_LIMITED = re.compile(r"(.+)%(\d{1,9})", re.DOTALL | re.ASCII)
_HALVING = "metric=loss,mode=min,eta=3,rung=100,max=10000"


def put_sweep(
    request: messages.JobRequest, options: Mapping[str, str], directory: str, *, line: bool
) -> list[str]:
    """Put a sweep into a request, where the options have one.

    Args:
        request: with its command, name and output patterns.
        options: by key.
        directory: where the file's path begins.
        line: whether the request's script is a line of `--wrap`.

    Returns:
        remarks for the user.

    Raises:
        BadInput: an option, the file, or a `{column}` is wrong.
    """
    if "sweep" not in options:
        for key in ("sweep_concurrent", "halving"):
            if key in options:
                raise BadInput(f"--{key.replace('_', '-')}: only with --sweep")
        return []
    if "array" in options:
        raise BadInput("--array: not together with --sweep, which is an array of its own")
    name, limit = _file_and_limit(options["sweep"], directory)
    if "sweep_concurrent" in options:
        limit = whole_number("--sweep-concurrent", options["sweep_concurrent"], least=1)
    notes = _read(request.sweep, name, directory)
    if "halving" in options:
        request.sweep.halving.CopyFrom(_halving("--halving", options["halving"]))
    columns = request.sweep.columns
    if line:
        text = request.script.decode("utf-8", "replace").replace("${", "$")  # variables
        used = grammar.columns_in(text, columns)
        if used:
            raise BadInput(
                f'--wrap: {{{used[0]}}} is not replaced in a line for the shell; write "${used[0]}"'
            )
    _check_texts(request, name)
    request.array = f"1-{len(request.sweep.rows)}" + (f"%{limit}" if limit else "")
    return notes


def swept_command(
    table: messages.SweepTable, place: int, words: tuple[str, ...], *, line: bool
) -> str:
    """One job's command with its parameters behind it, on one line.

    Args:
        table: of the sweep.
        place: of the job's row, the first one 0.
        words: the command of all jobs.
        line: the command is a line for the shell (`--wrap`), in which nothing is replaced.
    """
    values = dict(zip(table.columns, table.rows[place].values, strict=True))
    text = words[0] if line else shlex.join(grammar.filled(word, values) for word in words)
    return f"{text} ({', '.join(f'{name}={value}' for name, value in values.items())})"


def _file_and_limit(text: str, directory: str) -> tuple[str, int]:
    """`params.csv%4` as the file and how many may run at once (0: all)."""
    match = _LIMITED.fullmatch(text)
    if match is None or os.path.exists(os.path.join(directory, text)):
        return text, 0
    return match[1], whole_number("--sweep (after %)", match[2], least=1)


def _read(table: messages.SweepTable, name: str, directory: str) -> list[str]:
    """Read the table of a file; returns remarks about it."""
    try:
        with open(os.path.join(directory, os.path.expanduser(name)), "rb") as file:
            data = file.read(grammar.MOST_BYTES * 2 + 1)
    except OSError as error:
        raise BadInput(f"--sweep: {name}: can't be read ({error.strerror})") from None
    except ValueError:
        raise BadInput(f"--sweep: {name!a}: not a path") from None
    if len(data) > grammar.MOST_BYTES * 2:
        raise BadInput(f"{name}: more than {grammar.MOST_BYTES * 2} bytes")
    seen: dict[tuple[str, ...], str] = {}
    notes: list[str] = []
    total = 0
    for place, values in _rows(table, name, decoded(name, data)):
        if len(seen) + len(notes) >= MOST_ROWS:
            raise BadInput(f"{place}: more than {MOST_ROWS} rows")
        total += sum(len(value.encode()) for value in values)
        if total > grammar.MOST_BYTES:
            raise BadInput(f"{place}: more than {grammar.MOST_BYTES} bytes of values")
        if values in seen:
            line = seen[values].rpartition(":")[2]
            notes.append(f"{place}: the same parameters as in line {line}")
        seen.setdefault(values, place)
        table.rows.add(values=values)
    if not table.rows:
        raise BadInput(f"{name}: has no row below its header")
    return notes


def _rows(
    table: messages.SweepTable, name: str, text: str
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The rows of a table, whose columns are put into the message first."""

    def take_header(place: str, columns: Iterable[str]) -> None:
        table.columns.extend(columns)
        _check_columns(place, list(table.columns))

    rows = json_lines(name, text) if is_json(text) else csv_lines(name, text, take_header)
    for place, fields in rows:
        if not table.columns:
            take_header(place, fields)
        if set(fields) != set(table.columns):
            raise BadInput(f"{place}: not the same columns as before: {', '.join(table.columns)}")
        yield place, tuple(_value(place, key, fields[key]) for key in table.columns)


def _check_columns(place: str, columns: list[str]) -> None:
    if len(columns) > grammar.MOST_COLUMNS:
        raise BadInput(f"{place}: {len(columns)} columns, at most {grammar.MOST_COLUMNS}")
    for column in columns:
        fault = grammar.column_fault(column)
        if fault:
            raise BadInput(f"{place}: column {shorten(column)!r} {fault}; give it another name")


def _value(place: str, column: str, value: Any) -> str:
    what = f"{place}: column {column!r}"
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise BadInput(f"{what}: not a text or a number")
    return check_text(what, str(value), longest=grammar.LONGEST_VALUE)


def _check_texts(request: messages.JobRequest, file: str) -> None:
    """Check every text that has parameters, as it is written and as each job gets it."""
    columns = request.sweep.columns
    texts = [("arguments", word) for word in request.argv]
    texts += [("--name", request.name), ("--output", request.output), ("--error", request.error)]
    for what, text in texts:
        fault = grammar.text_fault(text, columns)
        if fault:
            raise BadInput(f"{what}: {shorten(text)!r}: {fault}")
    if grammar.columns_in(request.name, columns):
        for number, row in enumerate(request.sweep.rows, 1):
            values = dict(zip(columns, row.values, strict=True))
            name = grammar.filled(request.name, values)
            check_text(f"--name of row {number} of {file}", name, longest=255)
    for what, text in (("--output", request.output), ("--error", request.error)):
        if text:
            output_pattern(what, text)


def _halving(what: str, text: str) -> messages.Halving:
    """Read the rule of `--halving`."""
    given: dict[str, str] = {}
    for pair in text.split(","):
        key, equals, value = (part.strip() for part in pair.partition("="))
        if not equals or not value or key not in ("metric", "mode", "eta", "rung", "max"):
            raise BadInput(f"{what}: {shorten(pair)!r} is not one of {_HALVING}")
        if key in given:
            raise BadInput(f"{what}: {key} stands there twice")
        given[key] = value
    if "rung" not in given:
        raise BadInput(f"{what}: rung=STEPS is needed, such as {_HALVING}")
    mode = given.get("mode", "min")
    if mode not in grammar.MODES:
        raise BadInput(f"{what}: mode {shorten(mode)!r} is neither min nor max")
    rule = messages.Halving(
        metric=check_text(f"{what}: metric", given.get("metric", "loss"), longest=64),
        mode=mode,
        eta=whole_number(f"{what}: eta", given.get("eta", "3"), least=2, most=1000),
        rung=whole_number(f"{what}: rung", given["rung"], least=1, most=grammar.MOST_STEPS),
    )
    if "max" in given:
        rule.most = whole_number(f"{what}: max", given["max"], least=1, most=grammar.MOST_STEPS)
        if rule.most < rule.rung:
            raise BadInput(f"{what}: max {rule.most} is before the first rung, {rule.rung}")
    return rule
