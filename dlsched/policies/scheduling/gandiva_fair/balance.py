"""Which job should move to another server, so that all servers have equal tickets per GPU.

The load of a server is Σ min(tickets in GPUs, gang) of its jobs, divided by its GPUs: the GPUs that
its jobs are due, but not more than they can use. While the loads of the most and the least loaded
server differ by more than a part of the mean, the job that evens them out most moves from the one
to the other.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from dlsched.core.sums import ordered_sum


class ServerJob(NamedTuple):
    """A job on a server.

    Attributes:
        row: the job.
        server: its server.
        gang: GPUs that it needs at once.
        tickets: GPUs that its tickets are worth.
        allowed: nodes that it may use, as bits.
    """

    row: int
    server: int
    gang: int
    tickets: float
    allowed: int

    @property
    def demand(self) -> float:
        """GPUs that it is due: its tickets, but not more than it can use."""
        return min(self.tickets, float(self.gang))


class Move(NamedTuple):
    """A job moves to another server."""

    row: int
    server: int


def loads(jobs: Collection[ServerJob], gpus: Mapping[int, int]) -> dict[int, float]:
    """Tickets per GPU of each server."""
    demand = dict.fromkeys(gpus, 0.0)
    for job in jobs:
        if job.server in demand:
            demand[job.server] += job.demand
    return {server: total / gpus[server] for server, total in demand.items()}


def least_loaded(
    load: Mapping[int, float], gpus: Mapping[int, int], gang: int, allowed: int
) -> int | None:
    """The server with the lowest load that can hold a gang (lowest number of equals)."""
    fit = [s for s in load if gpus[s] >= gang and allowed >> s & 1]
    return min(fit, key=lambda server: (round(load[server], 9), server), default=None)


def next_move(
    jobs: Collection[ServerJob], gpus: Mapping[int, int], threshold: float, stay: Collection[int]
) -> Move | None:
    """The move that lowers the difference most, if it is above the threshold.

    Args:
        jobs: jobs that fit a server, with their servers.
        gpus: GPUs of each server, all of one type.
        threshold: part of the mean load up to which servers may differ.
        stay: rows that must not move (again).
    """
    load = loads(jobs, gpus)
    if len(load) < 2:
        return None
    high = max(load, key=lambda server: (load[server], -server))
    low = min(load, key=lambda server: (load[server], server))
    difference = load[high] - load[low]
    if difference <= threshold * ordered_sum(load.values()) / len(load):
        return None
    rest = [load[server] for server in load if server not in (high, low)]
    best: tuple[float, float, int] | None = None
    for job in jobs:
        fits = job.gang <= gpus[low] and job.allowed >> low & 1
        if job.server != high or job.row in stay or not fits:
            continue
        after = [*rest, load[high] - job.demand / gpus[high], load[low] + job.demand / gpus[low]]
        key = (round(max(after) - min(after), 9), job.tickets, job.row)
        if best is None or key < best:
            best = key
    if best is None or best[0] >= difference - 1e-9:
        return None
    return Move(best[2], low)
