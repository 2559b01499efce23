"""X by rows of the unit table, and whoever answers with it.

The round mechanism asks a source when it wants a new X. Usually that is the solver; a test hands in
one that reads X from a log.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from dlsched.core.arrays import Floats, Rows
from dlsched.core.context import RoundContext

__all__ = ["Source", "TimeShares"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeShares:
    """Fractions of time.

    Attributes:
        rows: who was looked at.
        x: time on each type alone, [row, type].
        first, second: pairs that were looked at, as rows; first < second.
        pair_x: their time together, [pair, type].
    """

    rows: Rows
    x: Floats
    first: Rows
    second: Rows
    pair_x: Floats


class Source(Protocol):
    """Where X comes from."""

    def __call__(self, rows: Rows, types: tuple[str, ...], ctx: RoundContext) -> TimeShares:
        """X for these rows now.

        Args:
            rows: all that are active, ascending.
            types: GPU types, in the order of the columns.
            ctx: the round's snapshot.
        """
        ...
