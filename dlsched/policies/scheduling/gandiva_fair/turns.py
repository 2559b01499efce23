"""Split stride: who runs in a turn, large gangs and servers in one order, then inside each server.

Whoever is due among large gangs and servers goes next. A large gang takes the GPUs that it needs on
all its servers at once; a server's turn goes to its own jobs by their passes, on what is left of
it. Everybody is looked at in every turn, so GPUs idle only when nothing fits.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from dlsched.policies.scheduling.gandiva_fair.seats import CENTRE, Seats, aggregate
from dlsched.policies.scheduling.gandiva_fair.stride import Contender, in_turn, served

__all__ = ["Large", "Turn", "take_turns"]


@dataclass(frozen=True, slots=True)
class Large:
    """A gang that competes centrally.

    Attributes:
        gang: GPUs.
        region: nodes that it may be spread over.
        now: GPUs by node where it runs, empty if it waits.
    """

    gang: int
    region: Collection[int]
    now: Mapping[int, int]


@dataclass(slots=True)
class Turn:
    """Who runs.

    Attributes:
        small: the server of each small job that runs, in the order of service.
        large: the GPUs by node of each large gang that runs.
        granted: GPUs that each server's jobs were entitled to when it was their turn.
        room: GPUs of each server that nobody was given.
    """

    room: dict[int, int]
    small: dict[int, int] = field(default_factory=dict)
    large: dict[int, Mapping[int, int]] = field(default_factory=dict)
    granted: dict[int, int] = field(default_factory=dict)


def take_turns(
    seats: Seats,
    gang: Mapping[int, int],
    large: Mapping[int, Large],
    room: Mapping[int, int],
) -> Turn:
    """Choose.

    Args:
        seats: seats and passes.
        gang: of the rows that may be chosen; others keep what they have.
        large: the large gangs among them.
        room: GPUs of each server that may be given.
    """
    turn = Turn(dict(room))
    guests: dict[int, list[Contender]] = {}
    for row, size in gang.items():
        seat = seats.of[row]
        if seat != CENTRE:
            guests.setdefault(seat, []).append(Contender(row, size, row))
    due = [Contender(row, one.gang, row) for row, one in large.items()]
    due += [
        Contender(aggregate(server), 0, min(guest.arrival for guest in here))
        for server, here in guests.items()
    ]
    for one in in_turn(due, seats.central):
        if one.who >= 0:
            where = _spread(large[one.who], turn.room)
            if where is not None:
                turn.large[one.who] = where
                for node, count in where.items():
                    turn.room[node] -= count
            continue
        server = -1 - one.who
        free = turn.room.get(server, 0)
        here = guests[server]
        turn.granted[server] = min(free, sum(guest.gang for guest in here))
        for row in served(here, seats.local[server], free):
            turn.small[row] = server
            turn.room[server] -= gang[row]
    return turn


def _spread(one: Large, room: Mapping[int, int]) -> Mapping[int, int] | None:
    """GPUs by node: those it has, or the fullest free servers first."""
    if one.now and all(room.get(node, 0) >= count for node, count in one.now.items()):
        return one.now
    free = {node: room[node] for node in one.region if room.get(node, 0) > 0}
    if sum(free.values()) < one.gang:
        return None
    where: dict[int, int] = {}
    need = one.gang
    for node in sorted(free, key=lambda node: (-free[node], node)):
        where[node] = min(free[node], need)
        need -= where[node]
        if not need:
            break
    return where
