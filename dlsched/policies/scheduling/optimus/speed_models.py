"""Speed models: steps per second by number of parameter servers and workers, fitted to samples.

    synchronous    f(p, w) = 1 / (a·M/w + b + c·w/p + d·w + e·p)        M: the global batch
    asynchronous   f(p, w) = w / (a + b·w/p + c·w + d·p)
    all-reduce     f(w)    = 1 / (a/w + b + d·w)                        as many servers as workers

The seconds of a step are linear in the coefficients, none of which is negative. Errors are relative
to the seconds measured, so that fast and slow samples count alike.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from dlsched.core.arrays import Floats, Ints
from dlsched.core.nonnegative import nonnegative_fit

Training = Literal["sync", "async"]


def _terms(training: Training, servers: Floats, workers: Floats, batch: float) -> Floats:
    """The factors of the coefficients, [sample, coefficient]; their products add up to seconds."""
    if training == "sync":
        columns = [batch / workers, np.ones_like(workers), workers / servers, workers, servers]
    else:
        columns = [
            1 / workers,
            1 / servers,
            np.ones_like(workers),
            servers / workers,
        ]
    return np.stack(columns, axis=1)


def speed(
    training: Training, coefficients: Floats, servers: Ints, workers: Ints, *, batch: float = 1.0
) -> Floats:
    """Steps per second by number of servers and workers; `batch` is M."""
    terms = _terms(training, np.asarray(servers, float), np.asarray(workers, float), batch)
    rates: Floats = 1.0 / (terms @ coefficients)
    return rates


def fit_speed(
    training: Training, servers: Ints, workers: Ints, rates: Floats, *, batch: float = 1.0
) -> Floats:
    """Coefficients from samples.

    Args:
        training: how updates are exchanged, `sync` or `async`.
        servers: parameter servers of each sample.
        workers: workers of each sample.
        rates: steps per second that were measured.
        batch: M, for synchronous training.
    """
    terms = _terms(training, np.asarray(servers, float), np.asarray(workers, float), batch)
    coefficients, _ = nonnegative_fit(terms * rates[:, None], np.ones(len(rates)))
    return coefficients


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
