"""Which job should move to another server, so that tickets per GPU are alike everywhere.

A server's load is Σ min(tickets in GPUs, gang) of its jobs, over its GPUs: what its jobs may claim,
and not more than they can use. While the most and the least loaded servers differ by more than a
part of the mean, the job that evens them out most goes from the one to the other.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

__all__ = ["Guest", "Move", "least_loaded", "loads", "next_move"]


class Guest(NamedTuple):
    """A job on a server.

    Attributes:
        row: who.
        server: where.
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
    def claim(self) -> float:
        """What counts of its tickets: no more than it can use."""
        return min(self.tickets, float(self.gang))


class Move(NamedTuple):
    """A job goes to another server."""

    row: int
    server: int


def loads(guests: Collection[Guest], gpus: Mapping[int, int]) -> dict[int, float]:
    """Tickets per GPU of each server."""
    claims = dict.fromkeys(gpus, 0.0)
    for guest in guests:
        if guest.server in claims:
            claims[guest.server] += guest.claim
    return {server: claim / gpus[server] for server, claim in claims.items()}


def least_loaded(
    load: Mapping[int, float], gpus: Mapping[int, int], gang: int, allowed: int
) -> int | None:
    """The server with the lowest load that can hold a gang (lowest number of equals)."""
    fit = [s for s in load if gpus[s] >= gang and allowed >> s & 1]
    return min(fit, key=lambda server: (round(load[server], 9), server), default=None)


def next_move(
    guests: Collection[Guest], gpus: Mapping[int, int], threshold: float, stay: Collection[int]
) -> Move | None:
    """The move that lowers the difference most, if it is above the threshold.

    Args:
        guests: jobs that fit a server, with their servers.
        gpus: GPUs of each server, all of one type.
        threshold: part of the mean load up to which servers may differ.
        stay: rows that must not move (again).
    """
    load = loads(guests, gpus)
    if len(load) < 2:
        return None
    high = max(load, key=lambda server: (load[server], -server))
    low = min(load, key=lambda server: (load[server], server))
    difference = load[high] - load[low]
    if difference <= threshold * sum(load.values()) / len(load):
        return None
    rest = [load[server] for server in load if server not in (high, low)]
    best: tuple[float, float, int] | None = None
    for guest in guests:
        fits = guest.gang <= gpus[low] and guest.allowed >> low & 1
        if guest.server != high or guest.row in stay or not fits:
            continue
        after = [*rest, load[high] - guest.claim / gpus[high], load[low] + guest.claim / gpus[low]]
        key = (round(max(after) - min(after), 9), guest.tickets, guest.row)
        if best is None or key < best:
            best = key
    if best is None or best[0] >= difference - 1e-9:
        return None
    return Move(best[2], low)
