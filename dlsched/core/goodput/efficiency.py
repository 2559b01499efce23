"""What a sample is worth in a larger batch than the initial one, from the noise of gradients.

Sources: McCandlish et al., "An Empirical Model of Large-Batch Training", 2018; Johnson et al.,
"AdaScale SGD", ICML 2020; Qiao et al., "Pollux", OSDI 2021, section 3.1.
"""

from __future__ import annotations

import numpy as np

from dlsched.core.arrays import Floats
from dlsched.core.goodput.params import GradParams, Number

UNKNOWN_NOISE = GradParams(0.0, 1.0)  # every sample counts fully, in batches of any size


def gain(grads: GradParams, scale: Number) -> Floats:
    """How many steps at the initial batch size one step at `scale` times it is worth.

    It is also the factor of the learning rate under AdaScale; under Adam its square root is.
    """
    needed = np.asarray(grads.var / scale + grads.sqr, np.float64)
    some = needed > 0
    worth: Floats = np.divide(
        np.add(grads.var, grads.sqr), needed, out=np.ones(np.shape(needed)), where=some
    )
    return worth


def efficiency(grads: GradParams, scale: Number) -> Floats:
    """What a sample is worth in a batch of `scale` times the initial size; 1 at the initial one."""
    return np.asarray(gain(grads, scale) / scale)
