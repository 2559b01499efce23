"""The batch size that makes the most of a number of GPUs.

Fifty total batch sizes are tried between the smallest and the largest that a job may have, evenly
on a logarithmic scale. Each is split over the replicas, and over several passes where a GPU cannot
hold its part at once. A single GPU that trains with more than the initial batch does so in at least
two passes, without which the noise of its gradients could not be measured.

Source: Qiao et al., "Pollux", OSDI 2021, and its artifact.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dlsched.core.arrays import Floats, Ints
from dlsched.core.goodput.efficiency import efficiency
from dlsched.core.goodput.params import BatchLimits, GradParams, PerfParams
from dlsched.core.goodput.throughput import network_time, overlapped

CANDIDATES = 50
EPS = 1e-8  # a part that is whole but for rounding is whole
LARGEST_PASS = 2_000_000  # candidates that are evaluated at once, which bounds the memory
STEPS: Floats = np.linspace(0.0, 1.0, CANDIDATES)


class BestBatch(NamedTuple):
    """What is best on each shape.

    Attributes:
        goodput: useful samples per second; 0 where no batch size is possible.
        local: samples a replica and pass.
        accumulation: passes before the one that synchronises.
    """

    goodput: Floats
    local: Ints
    accumulation: Ints


def best_batch(
    params: PerfParams,
    grads: GradParams,
    limits: BatchLimits,
    nodes: int | Ints,
    replicas: int | Ints,
    *,
    clamp: bool = False,
) -> BestBatch:
    """Choose batch sizes for shapes; everything broadcasts, the result has the common shape.

    Args:
        params: of throughput; NaN where unknown, whose goodput is 0.
        grads: noise of gradients.
        limits: of batch sizes.
        nodes: nodes of each shape.
        replicas: GPUs of each shape; 0 gives goodput 0.
        clamp: a local batch outside of the limits is brought to the nearest possible one, instead
            of being impossible.

    Returns:
        arrays; where the goodput is 0, local and accumulation mean nothing.
    """
    spread = [np.asarray(column)[..., None] for column in (*params, *grads, *limits)]
    perf, noise, bounds = (
        PerfParams(*spread[:7]),
        GradParams(*spread[7:9]),
        BatchLimits(*spread[9:]),
    )
    nodes, wanted = np.asarray(nodes)[..., None], np.asarray(replicas)[..., None]
    counts = np.maximum(wanted, 1)
    local, passes = _split(bounds, counts, clamp=clamp)
    batch = counts * local * passes
    network = network_time(perf, nodes, counts)
    compute = perf.alpha_c + perf.beta_c * local
    step = (passes - 1) * compute + overlapped(compute, network, perf.gamma)
    worth = batch / step * efficiency(noise, np.maximum(batch / bounds.initial, 1.0))
    possible = (local >= bounds.local_min) & (local <= bounds.local_max) & (wanted > 0)
    goodput = np.where(possible & np.isfinite(worth), worth, 0.0)
    best = goodput.argmax(axis=-1)[..., None]

    def chosen(column: Floats) -> Floats:
        whole = np.broadcast_to(column, goodput.shape)
        return np.take_along_axis(whole, best, axis=-1)[..., 0]

    return BestBatch(
        chosen(goodput), chosen(local).astype(np.int64), chosen(passes).astype(np.int64) - 1
    )


def _split(limits: BatchLimits, replicas: Ints, *, clamp: bool) -> tuple[Floats, Floats]:
    """Samples a replica and pass, and passes, of every candidate."""
    lowest = np.maximum(limits.initial, limits.local_min * replicas).astype(np.float64)
    lowest = np.where(limits.fixed, limits.maximum, lowest)
    totals = lowest * (limits.maximum / lowest) ** STEPS
    part = totals / replicas
    passes = np.maximum(np.ceil(part / limits.local_max - EPS), 1.0)
    alone = np.equal(replicas, 1)
    twice = alone & (part > limits.initial + EPS) & (passes < 2)
    passes = np.where(limits.accumulation, np.where(twice, 2.0, passes), 1.0)
    local = np.ceil(part / passes - EPS)
    if clamp:
        one = alone & ~np.asarray(limits.accumulation)
        local = np.where(one, np.ceil(limits.initial), local)
        local = np.clip(local, limits.local_min, limits.local_max)
    return local, passes


def best_batches(
    params: PerfParams,
    grads: GradParams,
    limits: BatchLimits,
    nodes: Ints,
    replicas: Ints,
    *,
    clamp: bool = False,
) -> BestBatch:
    """The same for many jobs on the same shapes, [job, shape], in bounded memory.

    Args:
        params: of throughput, one array entry a job.
        grads: noise of gradients, likewise.
        limits: of batch sizes, likewise.
        nodes: nodes of each shape.
        replicas: GPUs of each shape.
        clamp: see `best_batch`.
    """
    count = len(np.atleast_1d(params.alpha_c))
    columns = [
        np.broadcast_to(np.asarray(column), (count,))[:, None]
        for column in (*params, *grads, *limits)
    ]
    step = max(LARGEST_PASS // (CANDIDATES * max(len(nodes), 1)), 1)
    parts: list[BestBatch] = []
    for first in range(0, count, step):
        some = [column[first : first + step] for column in columns]
        parts.append(
            best_batch(
                PerfParams(*some[:7]),
                GradParams(*some[7:9]),
                BatchLimits(*some[9:]),
                nodes,
                replicas,
                clamp=clamp,
            )
        )
    if not parts:
        empty = np.zeros((0, len(nodes)))
        return BestBatch(empty, empty.astype(np.int64), empty.astype(np.int64))
    return BestBatch(*(np.concatenate(each) for each in zip(*parts, strict=True)))
