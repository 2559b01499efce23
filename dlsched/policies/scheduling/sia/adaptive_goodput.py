"""The goodput of jobs that adapt their batch size, for every configuration.

A job may have up to twice as many replicas as it ever ran with. On a type on which it has run, the
goodput comes from its own fitted model. On another type t it comes from the model of the first type
d on which it has run, times the ratio of the rates of one GPU:

    goodput_t(K) = goodput_d(K) · rate_t(1) / rate_d(1)

which needs only the profile of one GPU. A job that has not run yet starts on the smallest
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
from dlsched.policies.scheduling.sia.integer_program import MISSING

MOST_REPLICAS = 64  # of a job
NOWHERE = -1


class Adaptive(NamedTuple):
    """Jobs with a free number of GPUs.

    Attributes:
        rows: the jobs.
        unit: GPUs of one replica on each type, [job, type]; 0 where it cannot run.
        batch: the total batch size of jobs that keep it, NaN for jobs that adapt it.
        fewest: the fewest GPUs of each job.
        most: the most GPUs of each job.
    """

    rows: Rows
    unit: Ints
    batch: Floats
    fewest: Ints
    most: Ints


class _Known(NamedTuple):
    """The fitted models, [type, job, …]."""

    perf: Floats
    limits: list[BatchLimits]
    step: Floats
    most: Ints


def goodput_rows(
    jobs: Adaptive, belief: GoodputBelief, room: Configurations, *, share_largest: bool = True
) -> Floats:
    """G before normalisation, [job, configuration]; `MISSING` where there is no known goodput.

    Args:
        jobs: the jobs.
        belief: their fitted models.
        room: the configurations.
        share_largest: a job that ran with many replicas on one type may have as many on every type.
    """
    known = _known(jobs, belief, room, share_largest=share_largest)
    noise = GradParams(*(column[:, None] for column in belief.grads(jobs.rows).T))
    fitted = np.isfinite(known.perf[:, :, 0])
    first = np.where(fitted.any(axis=0), fitted.argmax(axis=0), NOWHERE)
    answer = np.full((len(jobs.rows), len(room)), MISSING)
    positions = np.arange(len(jobs.rows))
    for gpu_type in range(len(room.types)):
        at = np.flatnonzero(room.gpu_type == gpu_type)
        unit = jobs.unit[:, gpu_type, None]
        replicas = room.gpus[at] // np.maximum(unit, 1)
        usable = (unit > 0) & (replicas >= 1) & (replicas * unit == room.gpus[at])
        usable &= (room.gpus[at] >= jobs.fewest[:, None]) & (room.gpus[at] <= jobs.most[:, None])
        usable &= (replicas <= known.most[gpu_type][:, None]) & (first != NOWHERE)[:, None]
        source = np.where(fitted[gpu_type], gpu_type, np.maximum(first, 0))
        elsewhere = (
            -(-replicas * jobs.unit[positions, source][:, None])
            // (room.node_gpus[source][:, None])
        )
        nodes = np.where((source == gpu_type)[:, None], room.nodes[at], np.abs(elsewhere))
        perf = PerfParams(*(column[:, None] for column in known.perf[source, positions].T))
        best = best_batch(perf, noise, _of_source(known.limits, source), nodes, replicas)
        ratio = known.step[source, positions] / known.step[gpu_type]
        ratio = np.where((source == gpu_type) | ~np.isfinite(ratio), 1.0, ratio)
        goodput = best.goodput * ratio[:, None]
        answer[:, at] = np.where(usable & (goodput > 0), goodput, MISSING)
    _start_small(answer, (first == NOWHERE) | (answer <= MISSING).all(axis=1), jobs, room)
    return answer


def normalised(rows: Floats, unit: Ints, room: Configurations) -> Floats:
    """Each row scaled so that its least value is the number of GPUs of a replica there."""
    if not rows.size:
        return rows  # no jobs, or no node that takes any
    valid = rows > MISSING
    least = np.where(valid, rows, np.inf)
    at = least.argmin(axis=1)
    positions = np.arange(len(rows))
    scale = unit[positions, room.gpu_type[at]] / least[positions, at]
    return np.where(valid, rows * scale[:, None], MISSING)


def _known(
    jobs: Adaptive, belief: GoodputBelief, room: Configurations, *, share_largest: bool
) -> _Known:
    rows, types = jobs.rows, room.types
    limits = [_kept(belief.limits(rows, gpu_type), jobs.batch) for gpu_type in types]
    profiled = np.array([belief.profiled(rows, gpu_type) for gpu_type in types])
    lawful = np.array([np.floor_divide(each.maximum, each.local_min) for each in limits])
    most = np.minimum(np.maximum(2 * profiled, 1), np.minimum(MOST_REPLICAS, lawful))
    if share_largest:
        most = np.broadcast_to(most.max(axis=0), most.shape)
    return _Known(
        perf=np.array([belief.perf(rows, gpu_type) for gpu_type in types]),
        limits=limits,
        step=np.array([belief.one_gpu_step(rows, gpu_type) for gpu_type in types]),
        most=most.astype(np.int64),
    )


def _kept(limits: BatchLimits, batch: Floats) -> BatchLimits:
    """Batch limits in which jobs with a given batch size keep it."""
    keeps: Bools = np.isfinite(batch)
    columns = [np.broadcast_to(np.asarray(each), batch.shape) for each in limits]
    found = BatchLimits(*columns)
    return found._replace(
        maximum=np.where(keeps, batch, found.maximum), fixed=np.asarray(found.fixed) | keeps
    )


def _of_source(limits: list[BatchLimits], source: Ints) -> BatchLimits:
    """Each job's batch limits on the type of the model that is used for it."""
    positions = np.arange(len(source))
    columns = (np.array(column)[source, positions][:, None] for column in zip(*limits, strict=True))
    return BatchLimits(*columns)


def _start_small(answer: Floats, fresh: Bools, jobs: Adaptive, room: Configurations) -> None:
    """Let jobs that have not run have one replica on any type (or the fewest GPUs asked for)."""
    for job in np.flatnonzero(fresh).tolist():
        for gpu_type, unit in enumerate(jobs.unit[job].tolist()):
            need = max(unit, int(jobs.fewest[job]))
            at = np.flatnonzero((room.gpu_type == gpu_type) & (room.gpus >= need))
            at = at[(room.gpus[at] % max(unit, 1) == 0) & (room.gpus[at] <= jobs.most[job])]
            if unit > 0 and len(at):
                answer[job, at[0]] = unit
