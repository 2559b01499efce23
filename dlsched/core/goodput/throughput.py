"""How long a training step takes on so many GPUs, with so many samples on each.

A step computes gradients `accumulation` times without telling the others, then once more and
synchronises; computing and synchronising overlap as far as `gamma` says.

Source: Qiao et al., "Pollux", OSDI 2021, section 3.2.
"""

from __future__ import annotations

import numpy as np

from dlsched.core.arrays import Floats, Ints
from dlsched.core.goodput.params import Number, PerfParams

TINY = 1e-8  # s: what synchronising alone takes, so that logarithms exist
Counts = int | Ints | Floats


def accumulation_time(params: PerfParams, local: Number | Counts) -> Floats:
    """Seconds of one forward and backward pass over `local` samples."""
    return np.asarray(params.alpha_c + params.beta_c * local)


def network_time(params: PerfParams, nodes: Counts, replicas: Counts) -> Floats:
    """Seconds of synchronising the gradients of `replicas` on `nodes`."""
    across, alone = np.greater(nodes, 1), np.less_equal(replicas, 1)
    constant = np.where(across, params.alpha_n, np.where(alone, TINY, params.alpha_r))
    growth = np.where(across, params.beta_n, np.where(alone, TINY, params.beta_r))
    return np.asarray(constant + growth * np.maximum(np.subtract(replicas, 2), TINY))


def overlapped(compute: Floats, network: Floats, gamma: Number) -> Floats:
    """Seconds of both together: from their sum (gamma 1) to the longer one (large gamma)."""
    longer = np.maximum(compute, network)
    # relative to the longer one no power can underflow
    part = np.minimum(compute, network) / longer
    return np.asarray(longer * np.exp(np.log1p(part**gamma) / gamma))


def optimiser_time(
    params: PerfParams, nodes: Counts, replicas: Counts, local: Number | Counts
) -> Floats:
    """Seconds of the pass that ends in an optimiser step.

    Args:
        params: fitted throughput parameters.
        nodes: that the replicas are on.
        replicas: how many, of one GPU each.
        local: samples a replica and pass.
    """
    return overlapped(
        accumulation_time(params, local), network_time(params, nodes, replicas), params.gamma
    )


def iteration_time(
    params: PerfParams,
    nodes: Counts,
    replicas: Counts,
    local: Number | Counts,
    accumulation: Counts = 0,
) -> Floats:
    """Seconds from one optimiser step to the next.

    Args:
        params: fitted throughput parameters.
        nodes: that the replicas are on.
        replicas: how many, of one GPU each.
        local: samples a replica and pass.
        accumulation: passes before the last.
    """
    compute = accumulation_time(params, local)
    last = overlapped(compute, network_time(params, nodes, replicas), params.gamma)
    return np.asarray(accumulation * compute + last)


def throughput(
    params: PerfParams,
    nodes: Counts,
    replicas: Counts,
    local: Number | Counts,
    accumulation: Counts = 0,
) -> Floats:
    """Samples per second; the arguments are those of `iteration_time`."""
    batch = np.multiply(replicas, local) * np.add(accumulation, 1)
    return np.asarray(batch / iteration_time(params, nodes, replicas, local, accumulation))
