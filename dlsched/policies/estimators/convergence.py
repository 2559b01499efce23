"""How many epochs a training still needs, from the losses that it has reported.

    loss(k) = 1 / (b0·k + b1) + b2,    b0, b1, b2 ≥ 0

fitted by least squares with larger weights for recent points: the points are divided into three
parts of equal length, with errors divided by 1, 1/4 and 1/16. A training has converged at the first
epoch at which the loss has fallen by at most a threshold within the last epochs.

Source: Optimus (EuroSys 2018), section 3.1, with the weights and the criterion of its prototype.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dlsched.core.arrays import Floats
from dlsched.core.nonnegative import nonnegative_fit

LEAST_POINTS = 3
STARTS = 12  # values of b2 from which the fit starts
ITERATIONS = 60
SETTLED = 1e-12  # relative gain of an iteration below which the fit stops


class LossCurve(NamedTuple):
    """A fitted curve.

    Attributes:
        falls: b0.
        begins: b1.
        floor: b2.
        error: root of the mean weighted squared error.
    """

    falls: float
    begins: float
    floor: float
    error: float

    def at(self, epoch: float) -> float:
        """The loss after so many epochs."""
        below = self.falls * epoch + self.begins
        return math.inf if below <= 0 else 1.0 / below + self.floor


def spreads(count: int) -> Floats:
    """The divisors of the points' errors, oldest first."""
    part = -(-count // 3)
    return np.repeat([1.0, 1 / 4, 1 / 16], part)[:count]


def inverse_fit(epochs: Floats, losses: Floats, floor: float) -> tuple[float, float, float]:
    """b0 and b1 for a given b2, from the line 1 / (loss − b2); and the squared error."""
    columns = np.stack([epochs, np.ones_like(epochs)], axis=1)
    (falls, begins), left = nonnegative_fit(columns, 1.0 / (losses - floor))
    return float(falls), float(begins), left


def fit_losses(epochs: Floats, losses: Floats) -> LossCurve | None:
    """The curve through losses by ascending epoch; None where there are too few valid ones."""
    fine = np.isfinite(losses) & np.isfinite(epochs) & (losses > 0)
    epochs, losses = epochs[fine].astype(float), losses[fine].astype(float)
    if len(np.unique(epochs)) < LEAST_POINTS:
        return None
    weights = 1.0 / spreads(len(losses))
    lowest = float(losses.min())
    best: tuple[float, Floats] | None = None
    for part in np.linspace(0.0, 0.98, STARTS):
        floor = part * lowest
        falls, begins, _ = inverse_fit(epochs, losses, floor)
        found = _descend(epochs, losses, weights, np.array([falls, max(begins, 1e-9), floor]))
        if best is None or found[0] < best[0]:
            best = found
    assert best is not None
    falls, begins, floor = best[1].tolist()
    return LossCurve(falls, begins, floor, math.sqrt(best[0] / len(losses)))


def _descend(
    epochs: Floats, losses: Floats, weights: Floats, start: Floats
) -> tuple[float, Floats]:
    """Levenberg-Marquardt steps, clipped at 0; returns the squared error and the curve."""
    here = start
    error = _error(epochs, losses, weights, here)
    damping = 1e-3
    for _ in range(ITERATIONS):
        below = here[0] * epochs + here[1]
        slope = -1.0 / below**2
        jacobian = np.stack([slope * epochs, slope, np.ones_like(epochs)], axis=1)
        jacobian *= weights[:, None]
        off = (1.0 / below + here[2] - losses) * weights
        normal = jacobian.T @ jacobian
        normal[np.diag_indices(3)] *= 1 + damping
        normal[np.diag_indices(3)] += 1e-300
        try:
            step = np.linalg.solve(normal, jacobian.T @ off)
        except np.linalg.LinAlgError:
            break
        there = np.maximum(here - step, [0.0, 1e-12, 0.0])
        tried = _error(epochs, losses, weights, there)
        if tried < error:
            settled = error - tried <= SETTLED * error
            here, error, damping = there, tried, damping / 4
            if settled:
                break
        else:
            damping *= 8
            if damping > 1e12:
                break
    return error, here


def _error(epochs: Floats, losses: Floats, weights: Floats, curve: Floats) -> float:
    off = (1.0 / (curve[0] * epochs + curve[1]) + curve[2] - losses) * weights
    return float(off @ off)


def converges_at(
    curve: LossCurve,
    progress: int,
    *,
    window: int = 10,
    threshold: float = 0.05,
    most: int = 100,
) -> int:
    """The epoch at which a training has converged; -1 when it does not within `most` epochs.

    Args:
        curve: its losses.
        progress: epochs done.
        window: number of last epochs.
        threshold: the most by which the loss may fall within them.
        most: the last epoch that is considered.
    """
    for epoch in range(max(progress - window, window - 1), most + 1):
        if curve.at(epoch - window + 1) - curve.at(epoch) <= threshold:
            return epoch
    return -1
