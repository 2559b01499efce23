"""Least squares with coefficients that cannot be negative.

Lawson and Hanson, "Solving Least Squares Problems", 1974, chapter 23: coefficients enter one at a
time, the one that lowers the error fastest first, and leave when the best of those that are in
would be negative.
"""

from __future__ import annotations

import numpy as np

from dlsched.core.arrays import Bools, Floats

TOLERANCE = 1e-10  # of a gradient, relative to the largest, that counts as none


def nonnegative_fit(columns: Floats, wanted: Floats) -> tuple[Floats, float]:
    """Minimise |columns · x − wanted| over x ≥ 0.

    `columns` are [observation, coefficient], `wanted` [observation].

    Returns:
        the coefficients, and the norm of what is left.
    """
    count = columns.shape[1]
    inside: Bools = np.zeros(count, np.bool_)
    found: Floats = np.zeros(count)
    scale = float(np.abs(columns.T @ wanted).max(initial=0.0))
    for _ in range(3 * count):
        slope = np.where(inside, -np.inf, columns.T @ (wanted - columns @ found))
        enters = int(slope.argmax())
        if slope[enters] <= TOLERANCE * scale:
            break
        inside[enters] = True
        found = _feasible(columns, wanted, inside, found)
    return found, float(np.linalg.norm(columns @ found - wanted))


def _feasible(columns: Floats, wanted: Floats, inside: Bools, found: Floats) -> Floats:
    """The best over the coefficients in use; one that would be negative is taken out of use."""
    while True:
        best: Floats = np.zeros(len(found))
        best[inside] = np.linalg.lstsq(columns[:, inside], wanted, rcond=None)[0]
        negative = inside & (best <= 0)
        if not negative.any():
            return best
        moves = found[negative] / np.maximum(found[negative] - best[negative], 1e-300)
        found = found + float(moves.min()) * (best - found)
        inside &= found > TOLERANCE * float(np.abs(found).max(initial=0.0))
        found[~inside] = 0.0
