"""Gandiva_fair as others rebuilt it: equal shares of time, in Gavel's published rounds.

x_ij = N_j / m for m jobs, rows cut to 1, whatever the gang. Source: Shockwave's artifact (Zheng et
al., NSDI 2023), which compares itself with `gandiva_fair` in this form.
"""

from __future__ import annotations

import numpy as np

from dlsched.core.arrays import Rows
from dlsched.core.context import RoundContext
from dlsched.policies.scheduling.gavel.question import capacity
from dlsched.policies.scheduling.gavel.time_shares import TimeShares

__all__ = ["equal_shares"]


def equal_shares(rows: Rows, types: tuple[str, ...], ctx: RoundContext) -> TimeShares:
    """The same for everybody."""
    share = capacity(types, ctx) / max(len(rows), 1)
    share = share / max(float(share.sum()), 1.0)
    nobody = np.zeros(0, np.int64)
    return TimeShares(
        rows=rows,
        x=np.tile(share, (len(rows), 1)),
        first=nobody,
        second=nobody,
        pair_x=np.zeros((0, len(types))),
    )
