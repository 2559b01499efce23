"""How long a job still takes: which batch sizes are to come is judged by those seen.

A Dirichlet prior gives every batch size of the profile the same weight. Each epoch seen adds to its
own. What the posterior expects of the epochs to come is weighed with their mean durations.
"""

from __future__ import annotations

import numpy as np

from dlsched.core.arrays import Floats
from dlsched.core.epochs import EpochProfile

__all__ = ["remaining_seconds", "whole_seconds"]


def whole_seconds(profile: EpochProfile) -> Floats:
    """Epoch durations as the planner takes them: whole seconds, at least one."""
    return np.maximum(np.round(profile.seconds), 1.0)


def remaining_seconds(profile: EpochProfile, finished: int) -> float:
    """Expected seconds to the end on the job's own gang.

    Args:
        profile: all its epochs; durations count, the order to come does not.
        finished: whole epochs done.
    """
    count = len(profile)
    left = count - finished
    if left <= 0:
        return 1.0
    sizes, mode = np.unique(profile.batch_size, return_inverse=True)
    seen = np.bincount(mode[: finished + 1], minlength=len(sizes)).astype(np.float64)
    weight = count / len(sizes) + seen
    expected = count * weight / weight.sum()
    # each epoch seen takes one away, as long as one is there
    expected -= np.minimum(seen, np.floor(expected))
    mean = np.bincount(mode, whole_seconds(profile)) / np.bincount(mode)
    inflated = max(int(expected.sum() + 1), left)
    return float(expected @ mean) * left / inflated
