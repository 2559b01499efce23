"""Which servers serve which jobs: affinities, oversubscription, and moves that help.

A server's *affinity* is the gang size of the jobs that it serves, its *load* the GPUs that they
demand over those that it has, its *height* the load rounded up. Above 1 its jobs take turns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

Jobs = Mapping[int, Mapping[int, int]]


class Move(NamedTuple):
    """A job leaves its servers for another one."""

    job: int
    to: int


@dataclass(slots=True)
class Servers:
    """Servers by number, and their jobs.

    Attributes:
        gpus: of each server that is in service.
        of: the GPUs of each job on each of its servers.
        affinity: gang size that a server serves; one without jobs has none.
    """

    gpus: dict[int, int]
    of: dict[int, dict[int, int]] = field(default_factory=dict)
    affinity: dict[int, int] = field(default_factory=dict)

    # -- what there is ----------------------------------------------------------------------------

    def demand(self, server: int) -> int:
        """GPUs that the jobs of a server want together."""
        return sum(where.get(server, 0) for where in self.of.values())

    def load(self, server: int) -> float:
        """The demand for each of its GPUs."""
        return self.demand(server) / self.gpus[server]

    def height(self, server: int) -> int:
        """How many turns it takes until all its jobs had theirs."""
        return math.ceil(self.load(server))

    def free(self, server: int) -> int:
        """GPUs that no job demands."""
        return max(self.gpus[server] - self.demand(server), 0)

    @property
    def is_overloaded(self) -> bool:
        """Must jobs take turns on any server?"""
        return any(self.height(server) > 1 for server in self.gpus)

    def jobs_on(self, server: int) -> list[int]:
        """The jobs of a server, in order."""
        return [job for job, where in self.of.items() if server in where]

    # -- reactive mode ----------------------------------------------------------------------------

    def assign(self, job: int, gang: int, allowed: Iterable[int]) -> bool:
        """Find servers for a job; says whether there are any.

        Servers of its affinity with room; else empty ones; else any with enough free GPUs, perhaps
        several; else a server of its affinity is oversubscribed.

        Args:
            job: the job.
            gang: its GPUs.
            allowed: servers that it may use.
        """
        mine = sorted(server for server in allowed if server in self.gpus)
        alike = sorted(
            (server for server in mine if self.affinity.get(server) == gang), key=self._by_load
        )
        if alike and self.free(alike[0]) >= gang:
            return self._take(job, {alike[0]: gang})
        empty = [server for server in mine if not self.jobs_on(server)]
        if found := self._spread(gang, empty):
            self.affinity.update(dict.fromkeys(found, gang))
            return self._take(job, found)
        by_load = sorted((server for server in mine if self.free(server)), key=self._by_load)
        whole = [server for server in by_load if self.free(server) >= gang]
        if found := self._spread(gang, whole[:1] or by_load):
            return self._take(job, found)
        return self._oversubscribe(job, gang, alike)

    def leave(self, job: int) -> None:
        """A job has left its servers; an empty one has no affinity any more."""
        for server in self.of.pop(job, {}):
            if not self.jobs_on(server):
                self.affinity.pop(server, None)

    def move(self, job: int, server: int) -> None:
        """A job goes to another server."""
        self.put(job, {server: sum(self.of[job].values())})

    def put(self, job: int, where: dict[int, int]) -> None:
        """A job has these servers from now on; empty ones get its affinity."""
        self.leave(job)
        empty = [server for server in where if not self.jobs_on(server)]
        self.affinity.update(dict.fromkeys(empty, sum(where.values())))
        self.of[job] = where

    def _by_load(self, server: int) -> tuple[float, int]:
        return self.load(server), server

    def _take(self, job: int, where: dict[int, int]) -> bool:
        self.of[job] = where
        return True

    def _spread(self, gang: int, servers: list[int]) -> dict[int, int]:
        """So many GPUs of these servers, one filled after the other; {} if they have too few."""
        found: dict[int, int] = {}
        for server in servers:
            found[server] = min(self.free(server), gang - sum(found.values()))
            if sum(found.values()) == gang:
                return found
        return {}

    def _oversubscribe(self, job: int, gang: int, alike: list[int]) -> bool:
        """Let a job take turns with another of its size, on the least loaded servers."""
        if alike and self.gpus[alike[0]] >= gang:
            return self._take(job, {alike[0]: gang})
        same = [
            where
            for where in self.of.values()
            if sum(where.values()) == gang and where.keys() <= set(alike)
        ]
        if not same:
            return False
        least = min(same, key=lambda where: sorted(map(self._by_load, where)))
        return self._take(job, dict(least))

    # -- migration --------------------------------------------------------------------------------

    def relieving(self, may_use: Callable[[int, int], bool]) -> Move | None:
        """A move that lowers the greatest height: to a server without jobs, or of the affinity."""
        full = max(self.gpus, key=lambda server: (self.height(server), -server), default=None)
        if full is None or self.height(full) <= 1:
            return None
        for job in reversed(self.jobs_on(full)):
            gang = sum(self.of[job].values())
            for server in sorted(self.gpus):
                fits = not self.jobs_on(server) or self.affinity.get(server) == gang
                if fits and self.free(server) >= gang and may_use(job, server):
                    return Move(job, server)
        return None

    def defragmenting(
        self, threshold: float, may_use: Callable[[int, int], bool], movable: Callable[[int], bool]
    ) -> Move | None:
        """A move that helps to empty the server in use with the most free GPUs.

        None where every server in use has a smaller part of its GPUs free than `threshold`, or no
        job can move.
        """
        used = [server for server in self.gpus if self.jobs_on(server)]
        for source in sorted(used, key=lambda server: (-self.free(server), server)):
            if self.free(source) < threshold * self.gpus[source]:
                return None
            for job in self.jobs_on(source):
                gang = sum(self.of[job].values())
                targets = [
                    server
                    for server in used
                    if server != source
                    and gang <= self.free(server) < self.free(source)
                    and may_use(job, server)
                ]
                if len(self.of[job]) == 1 and targets and movable(job):
                    return Move(job, min(targets, key=lambda each: (self.free(each), each)))
        return None

    def gathering(
        self, may_use: Callable[[int, int], bool], movable: Callable[[int], bool]
    ) -> Move | None:
        """A move of a job that is spread over servers to one that has room for all of it."""
        for job, where in self.of.items():
            gang = sum(where.values())
            if len(where) == 1 or not movable(job):
                continue
            for server in sorted(self.gpus, key=lambda each: (self.free(each), each)):
                if self.free(server) + where.get(server, 0) >= gang and may_use(job, server):
                    return Move(job, server)
        return None


def turns(
    order: Iterable[int], jobs: Jobs, gpus: Mapping[int, int], fixed: Iterable[int] = ()
) -> list[int]:
    """The jobs that run now: on each server as many as fit, from the first in the order.

    A job that does not fit ends the turn of its servers; a job of several servers runs on all of
    them or on none.

    Args:
        order: jobs, the next first.
        jobs: the GPUs of each on each of its servers.
        gpus: of each server.
        fixed: jobs that run in any case.
    """
    room, closed = dict(gpus), set[int]()
    chosen: list[int] = []
    for job in fixed:
        for server, count in jobs.get(job, {}).items():
            room[server] = room.get(server, 0) - count
    for job in order:
        where = jobs[job]
        fits = all(room.get(server, 0) >= count for server, count in where.items())
        if not fits or closed & where.keys():
            closed |= where.keys()
            continue
        chosen.append(job)
        for server, count in where.items():
            room[server] -= count
    return chosen
