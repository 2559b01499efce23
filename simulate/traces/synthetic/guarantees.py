"""Opportunistic jobs in a generated trace."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dlsched.core.errors import BadInput
from dlsched.jobs.fields import GUARANTEES
from simulate.traces.trace import Trace

STREAM = 0x0A47  # random numbers of their own: the jobs are the same with and without the column
MOST_GPUS = 8.0  # of one: all its GPUs lie on one node


def with_opportunistic(trace: Trace, *, share: float, seed: int) -> Trace:
    """Let jobs of up to 8 GPUs, drawn at random, use what others leave; the rest is guaranteed.

    Args:
        trace: the jobs.
        share: of the jobs of up to 8 GPUs that are opportunistic, 0 to 1.
        seed: of the randomness.

    Raises:
        BadInput: a share outside 0 to 1.
    """
    if not 0 <= share <= 1:
        raise BadInput(f"the share of opportunistic jobs must be between 0 and 1, not {share:g}")
    drawn = np.random.default_rng([seed, STREAM]).random(len(trace)) < share
    chosen = drawn & (trace.num_gpus <= MOST_GPUS)
    kinds = np.array(GUARANTEES, np.object_)[chosen.astype(np.int64)]
    return replace(trace, columns={**trace.columns, "guarantee": kinds})
