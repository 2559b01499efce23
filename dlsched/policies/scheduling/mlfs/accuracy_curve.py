"""How accurate a training will become: a − b · n^−c through the accuracies so far.

The least-squares curve through the later half of the points, where the early, steep part does not
bend it. For a given c it is a line in n^−c, so that only c is searched for. The paper weighs a
mixture of eleven curves; a power law is the member of it that fits most trainings.
"""

from __future__ import annotations

from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from dlsched.core.arrays import Floats

LEAST_POINTS = 4  # a curve has three numbers
SLOWEST, FASTEST = 0.05, 5.0  # values of c that are tried
TRIES = 40


class AccuracyCurve(NamedTuple):
    """A fitted curve.

    Attributes:
        best: a, which it comes near to.
        gap: b.
        speed: c.
        sigma: standard deviation of the points around it.
    """

    best: float
    gap: float
    speed: float
    sigma: float

    def at(self, iterations: float) -> float:
        """The accuracy after so many iterations; infinite: at best."""
        return float(self.best - self.gap * np.power(iterations, -self.speed))

    def reaches(self, target: float, iterations: float) -> float:
        """The probability that the accuracy is at least a target after so many iterations."""
        predicted = self.at(iterations)
        if self.sigma <= 0:
            return float(predicted >= target)
        return 1.0 - NormalDist(predicted, self.sigma).cdf(target)


def fit_accuracies(iterations: Floats, accuracies: Floats) -> AccuracyCurve | None:
    """The curve through accuracies by ascending iteration, from 1; None: too few, or none rises."""
    half = len(iterations) // 2 if len(iterations) >= 2 * LEAST_POINTS else 0
    n, values = iterations[half:], accuracies[half:]
    if len(n) < LEAST_POINTS:
        return None
    speeds = np.geomspace(SLOWEST, FASTEST, TRIES)
    errors = [_line(n, values, speed)[2] for speed in speeds.tolist()]
    near = int(np.argmin(errors))
    low, high = speeds[max(near - 1, 0)], speeds[min(near + 1, TRIES - 1)]
    speeds = np.geomspace(low, high, TRIES)
    errors = [_line(n, values, speed)[2] for speed in speeds.tolist()]
    speed = float(speeds[int(np.argmin(errors))])
    best, gap, error = _line(n, values, speed)
    if not gap > 0:
        return None
    return AccuracyCurve(best, gap, speed, float(np.sqrt(error / max(len(n) - 3, 1))))


def _line(n: Floats, values: Floats, speed: float) -> tuple[float, float, float]:
    """The best a and b for a given c, and their squared error."""
    x = n**-speed
    off = x - x.mean()
    spread = float(off @ off)
    slope = float(off @ values) / spread if spread > 0 else 0.0
    best = float(values.mean() - slope * x.mean())
    left = best + slope * x - values
    return best, -slope, float(left @ left)
