"""Fits as the published simulators find them: one start, L-BFGS-B, stopped early.

Their optimiser often stops in a poor local optimum, and the batch sizes of their jobs follow from
that. `dlsched.core.goodput.fitting` does better; these fits reproduce the published decisions.

Source: the published artifacts of Pollux, OSDI 2021, and Sia, SOSP 2023.
"""

from __future__ import annotations

import numpy as np

from dlsched.core.arrays import Floats
from dlsched.core.goodput.fitting import Observations
from dlsched.core.goodput.params import PerfParams
from dlsched.policies.blas import one_thread

START = (0.1, 0.01, 0.1, 0.01, 0.1, 0.01, 1.001)
LEAST = 1e-8
LARGEST_GAMMA = 10.0
SLOWER = 1.1  # several nodes, while unmeasured, are taken for at least so much slower than one


class _Objective:
    """Errors of both times of a step, in logarithms, with their gradient."""

    def __init__(self, seen: Observations) -> None:
        self.local = np.asarray(seen.local, np.float64)
        replicas = np.asarray(seen.replicas, np.float64)
        self.across = np.asarray(seen.nodes) > 1
        self.within = ~self.across & (replicas > 1)
        self.more = np.maximum(replicas - 2.0, LEAST)
        self.log_accumulation = np.log(seen.accumulation_s)
        self.log_optimiser = np.log(seen.optimiser_s)

    def __call__(self, point: Floats) -> tuple[float, Floats]:
        a_c, b_c, a_n, b_n, a_r, b_r, gamma = point.tolist()
        across, within, more, count = self.across, self.within, self.more, len(self.local)
        compute = a_c + b_c * self.local
        network = np.where(across, a_n, np.where(within, a_r, LEAST))
        network = network + np.where(across, b_n, np.where(within, b_r, LEAST)) * more
        log_c, log_n = np.log(compute), np.log(network)
        top = np.maximum(log_c, log_n) * gamma
        both = top + np.log(np.exp(gamma * log_c - top) + np.exp(gamma * log_n - top))
        part_c, part_n = np.exp(gamma * log_c - both), np.exp(gamma * log_n - both)
        off_c, off_o = log_c - self.log_accumulation, both / gamma - self.log_optimiser
        rms_c, rms_o = np.sqrt(np.mean(off_c**2)), np.sqrt(np.mean(off_o**2))
        growth_n, growth_r = b_n / a_n, b_r / a_r
        value = rms_c + rms_o + 1e-3 * (gamma - 1) ** 2 + 1e-2 * (growth_n**2 + growth_r**2)
        d_c = off_c / (count * rms_c) if rms_c > 0 else np.zeros(count)
        d_o = off_o / (count * rms_o) if rms_o > 0 else np.zeros(count)
        by_compute = d_c / compute + d_o * part_c / compute
        by_network = d_o * part_n / network
        slope = np.array([
            by_compute.sum(),
            (by_compute * self.local).sum(),
            by_network[across].sum() - 2e-2 * growth_n**2 / a_n,
            (by_network * more)[across].sum() + 2e-2 * growth_n / a_n,
            by_network[within].sum() - 2e-2 * growth_r**2 / a_r,
            (by_network * more)[within].sum() + 2e-2 * growth_r / a_r,
            (d_o * (-both / gamma**2 + (part_c * log_c + part_n * log_n) / gamma)).sum()
            + 2e-3 * (gamma - 1),
        ])  # fmt: skip
        return float(value), slope


def published_fit(seen: Observations, tolerance: float = 1e-5) -> PerfParams:
    """The parameters that the published code would work with, from at least one observation."""
    # scipy's optimisers take long to load, and few replays need them
    with one_thread():
        from scipy.optimize import minimize  # noqa: PLC0415

    objective = _Objective(seen)
    start = np.array(START)
    low, high = np.full(len(START), LEAST), np.full(len(START), np.inf)
    low[6], high[6] = 1.0, LARGEST_GAMMA
    if np.min(seen.local) == np.max(seen.local):
        start[0] = low[0] = high[0] = np.mean(seen.accumulation_s) / 2
    unknown = [
        *((2, 3) if not objective.across.any() else ()),
        *((4, 5) if not objective.within.any() else ()),
        *((3, 5) if not (np.asarray(seen.replicas) > 2).any() else ()),
    ]
    start[unknown] = high[unknown] = LEAST
    found = minimize(
        objective,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=np.column_stack([low, high]),
        tol=tolerance,
    ).x.tolist()
    if not objective.across.any():
        found[2] = max(found[2], SLOWER * found[4])
        found[3] = max(found[3], SLOWER * found[5])
    return PerfParams(*found)
