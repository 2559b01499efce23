"""Two jobs on the same GPUs: who waits may join whoever runs, where both together do more.

Who joins has no turn: it keeps its place among those who wait, pays for the time like everybody,
and its tickets weigh on its server as before. In its own turn it gets GPUs of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from dlsched.core.context import RoundContext
from dlsched.core.walk import Walk
from dlsched.policies.scheduling.gandiva_fair.seats import CENTRE, Seats
from dlsched.policies.scheduling.gandiva_fair.servers import Servers

__all__ = ["best_host", "counts_for_both", "part"]


def best_host(
    row: int, seats: Seats, servers: Servers, ctx: RoundContext, walk: Walk
) -> int | None:
    """Whom a waiting job best joins: the two do more than one alone, each as part of its speed.

    Both have as many GPUs, all on the server that the waiting one belongs to.
    """
    node = seats.of[row]
    if ctx.speeds is None or not ctx.may_share or node == CENTRE or walk.tracks_host:
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
        and seats.of.get(other, CENTRE) != CENTRE
        and servers.gang[servers.line[other]] == gang
        and walk.has_room(row, other)
    ]
    if not hosts:
        return None
    kind = servers.kind[node]
    rows = np.array([row] * len(hosts), np.int64)
    scales = np.full(len(hosts), gang, np.int64)
    both = ctx.speeds.together(rows, np.array(hosts), scales, [servers.types[kind]])[:, 0, :]
    mine = servers.speed[servers.line[row], kind]
    theirs = servers.speed[[servers.line[other] for other in hosts], kind]
    gain = np.where((both > 0).all(axis=1), both[:, 0] / mine + both[:, 1] / theirs, 0.0)
    best = int(np.argmax(gain))
    return hosts[best] if gain[best] > 1.0 else None


def counts_for_both(
    row: int, beside: Mapping[int, tuple[int, ...]], fixed: Collection[int]
) -> bool:
    """Are the GPUs of a running row counted for it, or for another on the same ones?"""
    return not any(other < row or other in fixed for other in beside.get(row, ()))


def part(
    stays: set[int],
    chosen: Collection[int],
    running: Collection[int],
    beside: Mapping[int, tuple[int, ...]],
    fixed: Collection[int],
) -> set[int]:
    """Who stays where it is, when some share: of two whose turn it is, one.

    Args:
        stays: rows whose turn it is and that are where they are to run.
        chosen: rows whose turn it is.
        running: rows that could be stopped.
        beside: who shares with whom.
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
