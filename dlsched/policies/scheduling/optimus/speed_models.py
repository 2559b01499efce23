"""The speed model: steps per second by number of workers with all-reduce, fitted to samples.

    f(w) = 1 / (a/w + b + d·w)

The seconds of a step are linear in the coefficients, none of which is negative. Errors are relative
to the seconds measured, so that fast and slow samples count alike.
"""

from __future__ import annotations

import numpy as np

from dlsched.core.arrays import Floats, Ints
from dlsched.core.nonnegative import nonnegative_fit


def ring_step_s(coefficients: Floats, gpus: Ints) -> Floats:
    """Seconds of a unit of work by number of GPUs, with all-reduce."""
    return _ring_terms(np.asarray(gpus, float)) @ coefficients


def fit_ring(gpus: Ints, seconds: Floats) -> Floats:
    """Coefficients from the seconds of a unit of work by number of GPUs, with all-reduce."""
    terms = _ring_terms(np.asarray(gpus, float))
    coefficients, _ = nonnegative_fit(terms / seconds[:, None], np.ones(len(seconds)))
    return coefficients


def _ring_terms(gpus: Floats) -> Floats:
    return np.stack([1 / gpus, np.ones_like(gpus), gpus], axis=1)
