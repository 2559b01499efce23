"""Split stride: which jobs run in a selection.

Large gangs and servers compete centrally, in ascending order of passes. A large gang takes the GPUs
that it needs on all its servers at once; a server serves its own jobs by their passes, on the GPUs
that are left of it. Every job is considered in every turn, so GPUs idle only when nothing fits.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from dlsched.policies.scheduling.gandiva_fair.assignments import (
    CENTRAL,
    ServerAssignments,
    aggregate,
)
from dlsched.policies.scheduling.gandiva_fair.stride import Contender, in_turn, served


@dataclass(frozen=True, slots=True)
class LargeGang:
    """A gang that competes centrally.

    Attributes:
        gang: GPUs.
        region: nodes over which it may be spread.
        now: GPUs by node where it runs, empty if it waits.
    """

    gang: int
    region: Collection[int]
    now: Mapping[int, int]


@dataclass(slots=True)
class Selection:
    """The jobs that run in a selection.

    Attributes:
        small: the server of each small job that runs, in the order of service.
        large: the GPUs by node of each large gang that runs.
        granted: GPUs that each server's jobs were entitled to when it was their selection.
        room: GPUs of each server that are still free.
    """

    room: dict[int, int]
    small: dict[int, int] = field(default_factory=dict)
    large: dict[int, Mapping[int, int]] = field(default_factory=dict)
    granted: dict[int, int] = field(default_factory=dict)


def select_jobs(
    assignments: ServerAssignments,
    gang: Mapping[int, int],
    large: Mapping[int, LargeGang],
    room: Mapping[int, int],
) -> Selection:
    """Choose the jobs of a selection.

    Args:
        assignments: servers and passes of all jobs.
        gang: GPUs of each row that may be chosen; other rows keep their GPUs.
        large: the large gangs among them.
        room: GPUs of each server that may be given.
    """
    selection = Selection(dict(room))
    jobs: dict[int, list[Contender]] = {}
    for row, size in gang.items():
        assigned = assignments.of[row]
        if assigned != CENTRAL:
            jobs.setdefault(assigned, []).append(Contender(row, size, row))
    due = [Contender(row, one.gang, row) for row, one in large.items()]
    due += [
        Contender(aggregate(server), 0, min(job.arrival for job in here))
        for server, here in jobs.items()
    ]
    for one in in_turn(due, assignments.central):
        if one.number >= 0:
            where = _spread(large[one.number], selection.room)
            if where is not None:
                selection.large[one.number] = where
                for node, count in where.items():
                    selection.room[node] -= count
            continue
        server = -1 - one.number
        free = selection.room.get(server, 0)
        here = jobs[server]
        selection.granted[server] = min(free, sum(job.gang for job in here))
        for row in served(here, assignments.local[server], free):
            selection.small[row] = server
            selection.room[server] -= gang[row]
    return selection


def _spread(one: LargeGang, room: Mapping[int, int]) -> Mapping[int, int] | None:
    """GPUs by node for a gang: those it has, else the servers with most free GPUs first."""
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
