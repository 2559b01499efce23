"""An allocation X for the rows of the unit table, and the sources that compute it.

A round mechanism asks its source for a new X. Usually the source is Gavel's solver; tests use one
that reads X from a log.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from dlsched.core.arrays import Floats, Rows
from dlsched.core.context import RoundContext


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeShares:
    """Fractions of time.

    Attributes:
        rows: the jobs for which X was computed.
        x: part of the time on each type that a job has alone, [row, type].
        first, second: the pairs for which X was computed, as rows; first < second.
        pair_x: part of the time on each type that a pair shares, [pair, type].
    """

    rows: Rows
    x: Floats
    first: Rows
    second: Rows
    pair_x: Floats


class Source(Protocol):
    """Computes X."""

    def __call__(self, rows: Rows, types: tuple[str, ...], ctx: RoundContext) -> TimeShares:
        """X for the active rows, ascending, with the types in the order of the columns."""
        ...
