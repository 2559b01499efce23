"""Two jobs on the same GPUs: a waiting job may join a running one if both together do more.

Joining is not a turn: the job stays among the waiting jobs, is charged for the time like any other,
and its tickets still count on its server. In its own turn it gets GPUs of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from dlsched.core.context import RoundContext
from dlsched.core.walk.walk import Walk
from dlsched.policies.scheduling.gandiva_fair.assignments import CENTRAL, ServerAssignments
from dlsched.policies.scheduling.gandiva_fair.servers import Servers


def best_host(
    row: int, assignments: ServerAssignments, servers: Servers, ctx: RoundContext, walk: Walk
) -> int | None:
    """The running job whose GPUs a waiting job best shares; None where no pair gains.

    A pair gains if the throughputs of both jobs, as fractions of their throughputs alone, add up to
    more than 1. Both have equally many GPUs, all on the waiting job's server.

    Args:
        row: the waiting job.
        assignments: servers and passes of all jobs.
        servers: capacity and throughputs.
        ctx: the round.
        walk: knows quotas and the room for co-location.
    """
    node = assignments.of[row]
    if ctx.perf.by_type is None or not ctx.may_share or node == CENTRAL or walk.tracks_host:
        return None
    gang = servers.gang[servers.line[row]]
    if walk.tenancy is not None and walk.tenancy.over_ceiling(row, gang) is not None:
        return None
    beside = ctx.occupancy.beside
    hosts = [
        other
        for other, where in ctx.occupancy.held.items()
        if where.nodes == (node,)
        and other not in beside
        and assignments.of.get(other, CENTRAL) != CENTRAL
        and servers.gang[servers.line[other]] == gang
        and walk.has_room(row, other)
    ]
    if not hosts:
        return None
    gpu_type = servers.gpu_type[node]
    rows = np.array([row] * len(hosts), np.int64)
    scales = np.full(len(hosts), gang, np.int64)
    both = ctx.perf.rate_in_pairs(rows, np.array(hosts), [servers.types[gpu_type]], scales)[:, 0]
    mine = servers.speed[servers.line[row], gpu_type]
    theirs = servers.speed[[servers.line[other] for other in hosts], gpu_type]
    gain = np.where((both > 0).all(axis=1), both[:, 0] / mine + both[:, 1] / theirs, 0.0)
    best = int(np.argmax(gain))
    return hosts[best] if gain[best] > 1.0 else None


def counts_for_both(
    row: int, beside: Mapping[int, tuple[int, ...]], fixed: Collection[int]
) -> bool:
    """Whether the GPUs of a running row count for this row, not for a co-located one."""
    return not any(other < row or other in fixed for other in beside.get(row, ()))


def part(
    stays: set[int],
    chosen: Collection[int],
    running: Collection[int],
    beside: Mapping[int, tuple[int, ...]],
    fixed: Collection[int],
) -> set[int]:
    """The rows that stay where they are when some share GPUs: of two chosen ones only one stays.

    Args:
        stays: chosen rows that already run where they are to run.
        chosen: rows that run in this turn.
        running: rows that could be stopped.
        beside: the co-located jobs of each row.
        fixed: rows that stay whatever is decided.
    """
    kept = {
        row
        for row in stays
        if not any(
            other in fixed or (other in stays and other < row) for other in beside.get(row, ())
        )
    }
    joined = {
        row
        for row in running
        if row not in chosen
        and any(other in kept or other in fixed for other in beside.get(row, ()))
    }
    return kept | joined
