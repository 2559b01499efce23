"""Wall-clock times of logs, parsed a column at a time.

A log's times are local times; their differences are taken as they stand on the wall. A zone is
applied only to say which instant (Unix seconds) a trace begins at, or where the log writes an
offset with every time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from simulate.traces.trace import FloatColumn

_LOST = frozenset({"", "None", "none", "null", "NULL", "nan", "NaN", "NaT", "Unknown", "N/A", "NA"})
_TAIL = re.compile(r"(\.\d{1,9})?(?:(Z)|([+-])(\d\d):?(\d\d))?")
_WIDTH = len("2020-06-09 18:41:01")
# What a time looks like once its digits are zeros. Numpy alone would take other spellings too.
_SHAPES = frozenset({"0000-00-00 00:00:00", "0000-00-00T00:00:00", "NaT"})
_DIGITS = str.maketrans("123456789", "000000000")
_EPOCH_DIGITS = re.compile(r"\d{9,11}(?:\.\d+)?")


@dataclass(frozen=True, slots=True)
class WallTimes:
    """A column of times.

    Attributes:
        seconds: Unix seconds where the log gives an offset; otherwise the wall time counted as if
            it were UTC. NaN when not known.
        zone: the first offset seen ("+08:00"), "naive" when none is written.
        malformed: rows that hold something else than a time.
    """

    seconds: FloatColumn
    zone: str
    malformed: list[int]


def parse_wall_times(cells: Iterable[str]) -> WallTimes:
    """Parse `YYYY-MM-DD HH:MM:SS[.f][+HH:MM|Z]` (or with `T`), or plain Unix seconds."""
    column = list(cells)
    bodies = ["NaT" if cell in _LOST else cell[:_WIDTH] for cell in column]
    tails = {cell[_WIDTH:] for cell in column if cell not in _LOST}
    shifts = {tail: _tail_shift(tail) for tail in tails}
    if None not in shifts.values() and {body.translate(_DIGITS) for body in bodies} <= _SHAPES:
        try:
            seconds = _body_seconds(bodies)
        except ValueError:
            pass
        else:
            if tails - {""}:
                seconds += np.array(
                    [0.0 if cell in _LOST else shifts[cell[_WIDTH:]] for cell in column]
                )
            return WallTimes(seconds, _zone_name(column), [])
    return _one_by_one(column)


def _body_seconds(bodies: list[str]) -> FloatColumn:
    moments = np.array(bodies, dtype="datetime64[s]") if bodies else np.empty(0, "datetime64[s]")
    seconds = moments.astype(np.int64).astype(np.float64)
    seconds[np.isnat(moments)] = np.nan
    return seconds


def _tail_shift(tail: str) -> float | None:
    """Return what to add to the wall seconds for a fraction and an offset; None if malformed."""
    match = _TAIL.fullmatch(tail)
    if match is None:
        return None
    fraction, _, sign, hours, minutes = match.groups()
    shift = float(fraction or 0)
    if sign:
        offset = int(hours) * 3600 + int(minutes) * 60
        shift += -offset if sign == "+" else offset
    return shift


def _zone_name(column: list[str]) -> str:
    for cell in column:
        match = _TAIL.fullmatch(cell[_WIDTH:])
        if cell not in _LOST and match:
            _, zulu, sign, hours, minutes = match.groups()
            return "+00:00" if zulu else f"{sign}{hours}:{minutes}" if sign else "naive"
    return "naive"


def _one_by_one(column: list[str]) -> WallTimes:
    seconds = np.full(len(column), np.nan)
    malformed = []
    zones = []
    for row, cell in enumerate(column):
        text = cell.strip()
        if text in _LOST:
            continue
        if _EPOCH_DIGITS.fullmatch(text):
            seconds[row] = float(text)
            zones.append("UTC")
            continue
        shift = _tail_shift(text[_WIDTH:])
        try:
            if shift is None or text[:_WIDTH].translate(_DIGITS) not in _SHAPES:
                raise ValueError
            seconds[row] = _body_seconds([text[:_WIDTH]])[0] + shift
            zones.append(_zone_name([text]))
        except ValueError:
            malformed.append(row)
    return WallTimes(seconds, zones[0] if zones else "naive", malformed)
