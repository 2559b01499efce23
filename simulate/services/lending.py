"""Which GPUs the replicas of services take, from which trainings, and when they give them back.

A replica's GPUs are *closed* while it has them: no training gets them, and every policy sees a
smaller cluster. A new replica takes free GPUs of the node with the fewest replicas of its service;
where none are free, trainings give way, those that hold the fewest GPUs and began last.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from dlsched.core.cluster.occupancy import Occupancy, Placement, lowest_bits
from dlsched.policies.services.replicas import Replicas
from simulate.clusters.cluster_events import ClusterEvent
from simulate.services.demand import Demand
from simulate.services.description import Service
from simulate.world import World

Noticed = Literal["node-up", "node-down", "node-drain", "retype"]


@dataclass(slots=True)
class Stretch:
    """From a moment on, until the next one: replicas that take requests, and GPUs that are held."""

    start: float
    usable: int
    missing: bool  # fewer replicas are warm than are needed
    gpus: int


@dataclass(slots=True)
class Serving:
    """One service as it runs.

    Attributes:
        service: what it is.
        demand: what its gateways need.
        replicas: their states.
        needed: by each gateway, now.
        held: GPUs of each replica that is not cold.
        warm_at: when each warming replica will be warm.
        stretches: what it had, in order of time.
        starts: cold starts so far.
        displaced: trainings that gave way.
    """

    service: Service
    demand: Demand
    replicas: Replicas
    needed: tuple[int, ...] = (1,)
    held: dict[int, Placement] = field(default_factory=dict)
    warm_at: dict[int, float] = field(default_factory=dict)
    stretches: list[Stretch] = field(default_factory=list)
    starts: int = 0
    displaced: int = 0
    _retry: float = math.inf

    def next_time(self, occupancy: Occupancy, now: float) -> float:
        """When something happens next; now, where a node took replicas with it."""
        if self._lost(occupancy):
            return now
        warm = min(self.warm_at.values(), default=math.inf)
        quiet = self.replicas.next_end()
        return min(self.demand.next_change(), warm, quiet, self._retry)

    def go_on(self, world: World, now: float) -> tuple[bool, bool]:
        """Bring all up to now; returns whether GPUs were taken, and whether any were given back."""
        for number in self._lost(world.occupancy):
            self._end(number, world.occupancy)
        for number in [n for n, when in self.warm_at.items() if when <= now]:
            del self.warm_at[number]
            self.replicas.warmed(number, now)
        self._note_use(now)  # up to now; those that are needed no more were used until now
        given = self.replicas.end_quiet(now)
        for number in given:
            self._end(number, world.occupancy)
        while self.demand.next_change() <= now:
            self.needed = self.demand.take()
        self._retry = math.inf
        taken = False
        for number in self.replicas.ask(self.needed, now):
            placement = self._take(world, now)
            if placement is None:
                self.replicas.gone(number)
                self._retry = now + self.service.window_s
                continue
            self.held[number] = placement
            self.warm_at[number] = now + self.service.setup_s
            self.starts += 1
            taken = True
        self._note(now)
        return taken, bool(given)

    def _note_use(self, now: float) -> None:
        """Each gateway's replicas have had requests until now."""
        for number in self.replicas.usable(max(self.needed)):
            self.replicas.used(number, now)

    def _note(self, now: float) -> None:
        usable = len(self.replicas.usable(max(self.needed)))
        top = min(max(*self.needed, self.service.least), self.service.most)
        gpus = len(self.held) * self.service.gpus
        self.stretches.append(Stretch(start=now, usable=usable, missing=usable < top, gpus=gpus))

    def _lost(self, occupancy: Occupancy) -> list[int]:
        """Replicas whose node is out of service."""
        serving = occupancy.in_service
        return [n for n, placement in self.held.items() if not serving >> placement.nodes[0] & 1]

    def _end(self, number: int, occupancy: Occupancy) -> None:
        placement = self.held.pop(number)
        self.warm_at.pop(number, None)
        self.replicas.gone(number)
        occupancy.reopen(placement.nodes[0], placement.masks[0])

    def _take(self, world: World, now: float) -> Placement | None:
        """GPUs for one more replica, closed for all others; None where no node has them."""
        occupancy, gpus = world.occupancy, self.service.gpus
        here = [0] * len(occupancy.cluster)
        for placement in self.held.values():
            here[placement.nodes[0]] += 1
        open_nodes = [n for n in range(len(here)) if occupancy.open_nodes >> n & 1]
        room = [n for n in open_nodes if occupancy.free[n].bit_count() >= gpus]
        if room:
            node = min(room, key=lambda n: (here[n], occupancy.free[n].bit_count(), n))
        else:
            choices = [
                (sum(occupancy.held[row].gpus for row in rows), here[n], n)
                for n in open_nodes
                if (rows := _giving_way(world, n, gpus)) is not None
            ]
            if not choices:
                return None
            node = min(choices)[-1]
            for row in _giving_way(world, node, gpus) or ():
                world.evict(row, now)
                self.displaced += 1
        mask = lowest_bits(occupancy.free[node], gpus)
        occupancy.close(node, mask)
        return Placement((node,), (mask,))


def _giving_way(world: World, node: int, gpus: int) -> list[int] | None:
    """The units on a node that began last, until so many GPUs are free; None: never so many."""
    occupancy, since = world.occupancy, world.table.since
    kept = occupancy.closed.get(node, 0)  # and those that a policy has reserved for a unit
    for placement in occupancy.reserved.values():
        for where, mask in zip(*placement, strict=True):
            kept |= mask if where == node else 0
    free, found = occupancy.free[node], list[int]()
    for row in sorted(occupancy.rows_on(node), key=lambda row: (-since[row], -row)):
        if free.bit_count() >= gpus:
            break
        found.append(row)
        stay = 0
        for other in occupancy.rows_on(node):
            if other not in found and other not in occupancy.opportunistic:
                stay |= dict(zip(*occupancy.held[other], strict=True))[node]
        mine = dict(zip(*occupancy.held[row], strict=True))[node]
        free |= mine & ~stay & ~kept
    return found if free.bit_count() >= gpus else None


class Lending:
    """All services of a run."""

    def __init__(self, services: Sequence[Service], seed: int) -> None:
        """Begin with all replicas cold."""
        self.all = [
            Serving(
                service=service,
                demand=Demand(service, seed, place),
                replicas=Replicas(
                    least=service.least,
                    most=service.most,
                    idle_s=service.idle_s,
                    reserve=service.reserve,
                ),
            )
            for place, service in enumerate(services)
        ]
        self._now = 0.0

    @property
    def endless(self) -> bool:
        """Whether requests change for ever."""
        return any(
            each.service.noise or each.service.requests.steady_from == math.inf for each in self.all
        )

    def next_time(self, occupancy: Occupancy) -> float:
        """When something happens next to any service; inf: never again."""
        return min(each.next_time(occupancy, self._now) for each in self.all)

    def go_on(self, world: World, now: float) -> Noticed | None:
        """Bring all services up to now; returns what policies notice."""
        self._now = now
        changes = [each.go_on(world, now) for each in self.all]
        if any(taken for taken, _ in changes):
            return "node-down"
        return "node-up" if any(given for _, given in changes) else None

    def follow(self, scripted: Iterable[ClusterEvent], world: World) -> Iterator[ClusterEvent]:
        """The events of a cluster, and what services do between them, by time.

        What services do next is looked up when it is asked for: it depends on what has happened.
        """
        others = iter(scripted)
        waiting = next(others, None)
        while True:
            mine = self.next_time(world.occupancy)
            if waiting is not None and waiting.time <= mine:
                yield waiting
                self._now = max(self._now, waiting.time)
                waiting = next(others, None)
            elif mine < math.inf:
                yield ServicesGoOn(time=mine, kind="leave", node=-1, lending=self)
            else:
                return


@dataclass(frozen=True, slots=True, kw_only=True)
class ServicesGoOn(ClusterEvent):
    """Something happens to a service."""

    lending: Lending

    def apply(self, world: World, now: float) -> Noticed | None:
        """Let services take GPUs and give them back."""
        return self.lending.go_on(world, now)
