"""What configurations are worth to jobs that adapt: their goodput there, as far as it is known.

A job may have up to twice as many replicas as it ever ran with. On a type on which it has run, its
own fitted model speaks. On another type t, that of the first type d on which it has run does, times
how much faster one GPU is:

    goodput_t(K) = goodput_d(K) · rate_t(1) / rate_d(1)

which needs only the profile of one GPU. A job that has run nowhere starts on the smallest
configuration of any type.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dlsched.core.arrays import Bools, Floats, Ints, Rows
from dlsched.core.goodput.batch import best_batch
from dlsched.core.goodput.belief import GoodputBelief
from dlsched.core.goodput.params import BatchLimits, GradParams, PerfParams
from dlsched.policies.scheduling.sia.configurations import Configurations
from dlsched.policies.scheduling.sia.program import MISSING

__all__ = ["Adaptive", "goodput_rows", "normalised"]

MOST_REPLICAS = 64  # nobody scales further
NOWHERE = -1


class Adaptive(NamedTuple):
    """Jobs whose GPUs may be chosen.

    Attributes:
        rows: who.
        unit: GPUs of one replica on each type, [job, type]; 0 where it cannot run.
        batch: the total batch of jobs that keep it, NaN for those that adapt theirs.
        fewest: GPUs that it must have at least.
        most: GPUs that it may have at most.
    """

    rows: Rows
    unit: Ints
    batch: Floats
    fewest: Ints
    most: Ints


class _Known(NamedTuple):
    """What is believed, [type, job, …]."""

    perf: Floats
    limits: list[BatchLimits]
    step: Floats
    most: Ints


def goodput_rows(
    jobs: Adaptive, belief: GoodputBelief, room: Configurations, *, share_largest: bool = True
) -> Floats:
    """G before normalisation, [job, configuration], `MISSING` where nothing is known to be had.

    Args:
        jobs: who.
        belief: what is known of them.
        room: the configurations.
        share_largest: having run with many replicas on one type lets a job have as many on all.
    """
    known = _known(jobs, belief, room, share_largest=share_largest)
    noise = GradParams(*(column[:, None] for column in belief.grads(jobs.rows).T))
    fitted = np.isfinite(known.perf[:, :, 0])
    first = np.where(fitted.any(axis=0), fitted.argmax(axis=0), NOWHERE)
    answer = np.full((len(jobs.rows), len(room)), MISSING)
    everyone = np.arange(len(jobs.rows))
    for kind in range(len(room.types)):
        at = np.flatnonzero(room.kind == kind)
        unit = jobs.unit[:, kind, None]
        replicas = room.gpus[at] // np.maximum(unit, 1)
        usable = (unit > 0) & (replicas >= 1) & (replicas * unit == room.gpus[at])
        usable &= (room.gpus[at] >= jobs.fewest[:, None]) & (room.gpus[at] <= jobs.most[:, None])
        usable &= (replicas <= known.most[kind][:, None]) & (first != NOWHERE)[:, None]
        source = np.where(fitted[kind], kind, np.maximum(first, 0))
        elsewhere = (
            -(-replicas * jobs.unit[everyone, source][:, None]) // (room.node_gpus[source][:, None])
        )
        nodes = np.where((source == kind)[:, None], room.nodes[at], np.abs(elsewhere))
        perf = PerfParams(*(column[:, None] for column in known.perf[source, everyone].T))
        best = best_batch(perf, noise, _of_source(known.limits, source), nodes, replicas)
        ratio = known.step[source, everyone] / known.step[kind]
        ratio = np.where((source == kind) | ~np.isfinite(ratio), 1.0, ratio)
        goodput = best.goodput * ratio[:, None]
        answer[:, at] = np.where(usable & (goodput > 0), goodput, MISSING)
    _start_small(answer, (first == NOWHERE) | (answer <= MISSING).all(axis=1), jobs, room)
    return answer


def normalised(rows: Floats, unit: Ints, room: Configurations) -> Floats:
    """Each row in multiples of its least: so many as a replica there has GPUs."""
    valid = rows > MISSING
    least = np.where(valid, rows, np.inf)
    at = least.argmin(axis=1)
    everyone = np.arange(len(rows))
    scale = unit[everyone, room.kind[at]] / least[everyone, at]
    return np.where(valid, rows * scale[:, None], MISSING)


def _known(
    jobs: Adaptive, belief: GoodputBelief, room: Configurations, *, share_largest: bool
) -> _Known:
    rows, types = jobs.rows, room.types
    limits = [_kept(belief.limits(rows, kind), jobs.batch) for kind in types]
    profiled = np.array([belief.profiled(rows, kind) for kind in types])
    lawful = np.array([np.floor_divide(each.maximum, each.local_min) for each in limits])
    most = np.minimum(np.maximum(2 * profiled, 1), np.minimum(MOST_REPLICAS, lawful))
    if share_largest:
        most = np.broadcast_to(most.max(axis=0), most.shape)
    return _Known(
        perf=np.array([belief.perf(rows, kind) for kind in types]),
        limits=limits,
        step=np.array([belief.one_gpu_step(rows, kind) for kind in types]),
        most=most.astype(np.int64),
    )


def _kept(limits: BatchLimits, batch: Floats) -> BatchLimits:
    """Who keeps its batch trains with that and no other."""
    keeps: Bools = np.isfinite(batch)
    columns = [np.broadcast_to(np.asarray(each), batch.shape) for each in limits]
    found = BatchLimits(*columns)
    return found._replace(
        maximum=np.where(keeps, batch, found.maximum), fixed=np.asarray(found.fixed) | keeps
    )


def _of_source(limits: list[BatchLimits], source: Ints) -> BatchLimits:
    """Each job's limits on the type that speaks for it."""
    everyone = np.arange(len(source))
    columns = (np.array(column)[source, everyone][:, None] for column in zip(*limits, strict=True))
    return BatchLimits(*columns)


def _start_small(answer: Floats, fresh: Bools, jobs: Adaptive, room: Configurations) -> None:
    """Who has run nowhere may have one replica on any type (or the least that it asked for)."""
    for job in np.flatnonzero(fresh).tolist():
        for kind, unit in enumerate(jobs.unit[job].tolist()):
            need = max(unit, int(jobs.fewest[job]))
            at = np.flatnonzero((room.kind == kind) & (room.gpus >= need))
            at = at[(room.gpus[at] % max(unit, 1) == 0) & (room.gpus[at] <= jobs.most[job])]
            if unit > 0 and len(at):
                answer[job, at[0]] = unit
