"""An allocation X for the rows of the unit table, and the sources that compute it.

A round mechanism asks its source for a new X. Usually the source is Gavel's solver; tests use one
that reads X from a log.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dlsched.core.arrays import Floats, Rows
from dlsched.core.context import RoundContext
from dlsched.policies.heterogeneous.gpu_types import capacity


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


def equal_shares(rows: Rows, types: tuple[str, ...], ctx: RoundContext) -> TimeShares:
    """The same share for every job: x_ij = N_j / m for m jobs, each row cut to 1.

    The gang does not enter. This is Gandiva_fair as Shockwave's artifact rebuilt it for comparison
    (Zheng et al., NSDI 2023).
    """
    share = capacity(types, ctx) / max(len(rows), 1)
    share = share / max(float(share.sum()), 1.0)
    none = np.zeros(0, np.int64)
    x, pair_x = np.tile(share, (len(rows), 1)), np.zeros((0, len(types)))
    return TimeShares(rows=rows, x=x, first=none, second=none, pair_x=pair_x)
