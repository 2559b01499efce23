"""What a trace says of how and when its jobs may run, besides their columns of numbers.

Layouts (`gang`, `exclusive`), jobs to wait for (`parents`), earliest starts (`begin`), and how many
jobs of an array may be there at once (`array`, `array_limit`). A history that `dlsched history
--export` writes has them all.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlsched.core.arrays import Floats, Ints
from dlsched.core.errors import BadInput
from simulate.csv_text import number_text
from simulate.traces.trace import Trace

COLUMNS = frozenset({"gang", "exclusive", "parents", "begin", "array", "array_limit"})
_FLAGS = {"": False, "no": False, "0": False, "yes": True, "1": True}


def texts(column: NDArray[Any]) -> NDArray[Any]:
    """A column as texts; unknown numbers are "" and whole ones have no point."""
    if column.dtype.kind == "O":
        return column
    return np.array(list(map(number_text, column.tolist())), np.object_)


def _said(trace: Trace, name: str) -> Iterator[tuple[int, str]]:
    """The rows that say something in a column, and what."""
    if name in trace.columns:
        for row, text in enumerate(texts(trace.columns[name]).tolist()):
            if stripped := str(text).strip():
                yield row, stripped


def layouts(trace: Trace, gangs: Ints) -> dict[int, tuple[int, ...]]:
    """GPUs on each node, of jobs that say it: `4+4` is four GPUs on each of two nodes.

    Raises:
        BadInput: not whole numbers above 0, or not as many GPUs as the job asks for.
    """
    found: dict[int, tuple[int, ...]] = {}
    for row, text in _said(trace, "gang"):
        parts = text.split("+")
        if not all(part.isdecimal() and int(part) for part in parts):
            raise _wrong(trace, row, f"has gang {text}; a gang reads GPUs+GPUs, for example 4+4")
        shape = tuple(map(int, parts))
        if sum(shape) != gangs[row]:
            raise _wrong(trace, row, f"has gang {text} and asks for {gangs[row]} GPUs")
        found[row] = shape
    return found


def whole_nodes(trace: Trace) -> set[int]:
    """The jobs that share their nodes with no other job.

    Raises:
        BadInput: neither yes nor no.
    """
    found: set[int] = set()
    for row, text in _said(trace, "exclusive"):
        if text not in _FLAGS:
            raise _wrong(trace, row, f"has exclusive {text}; it must be yes or no")
        if _FLAGS[text]:
            found.add(row)
    return found


def not_before(trace: Trace, visible: Floats) -> Floats:
    """When each job becomes visible: `begin` is in seconds after the submit, -1 or less for none.

    Raises:
        BadInput: a column of texts.
    """
    column = trace.columns.get("begin")
    if column is None:
        return visible
    if column.dtype.kind != "f":
        raise BadInput(f"{trace.name}: the column begin has texts; it counts seconds")
    return np.where(column > 0, visible + np.nan_to_num(column), visible)


def array_limits(trace: Trace) -> dict[int, tuple[int, int]]:
    """Each limited job's array, numbered from 0, and how many of it may be there at once.

    Raises:
        BadInput: a limit that is no whole number, without an array, or that differs in an array.
    """
    names = dict(_said(trace, "array"))
    numbers: dict[str, int] = {}
    limit_of: dict[str, int] = {}
    found: dict[int, tuple[int, int]] = {}
    for row, text in _said(trace, "array_limit"):
        if not text.isdecimal():
            raise _wrong(trace, row, f"has array_limit {text}, not a whole number")
        if row not in names:
            raise _wrong(trace, row, "has an array_limit and no array")
        limit, array = int(text), names[row]
        if limit_of.setdefault(array, limit) != limit:
            raise _wrong(trace, row, f"has array_limit {limit}, its array had {limit_of[array]}")
        if limit:
            found[row] = (numbers.setdefault(array, len(numbers)), limit)
    return found


def parents(trace: Trace) -> dict[int, tuple[int, ...]]:
    """The rows that must end before a row becomes visible.

    Raises:
        BadInput: a parent that is not in the trace, or a job that waits for itself.
    """
    row_of = {job: row for row, job in enumerate(trace.job_id.tolist())}
    found: dict[int, tuple[int, ...]] = {}
    for row, text in _said(trace, "parents"):
        named = text.replace(";", " ").replace("|", " ").split()
        for name in named:
            if name not in row_of:
                raise _wrong(trace, row, f"waits for {name}, which is not in the trace")
        found[row] = tuple(row_of[name] for name in named)
    _refuse_cycles(found, trace)
    return found


def _refuse_cycles(found: dict[int, tuple[int, ...]], trace: Trace) -> None:
    done: set[int] = set()
    for start in found:
        path: set[int] = set()
        stack: list[tuple[int, bool]] = [(start, False)]
        while stack:
            row, leaving = stack.pop()
            if leaving:
                path.remove(row)
                done.add(row)
            elif row in path:
                raise _wrong(trace, row, "waits for itself")
            elif row not in done:
                path.add(row)
                stack.append((row, True))
                stack.extend((parent, False) for parent in found.get(row, ()))


def _wrong(trace: Trace, row: int, what: str) -> BadInput:
    return BadInput(f"{trace.name}: job {trace.job_id[row]} {what}")
