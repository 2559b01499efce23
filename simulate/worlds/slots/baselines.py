"""The five policies that DL2 is compared with, as its published program has them.

All divide a slot anew among the jobs that are there. A failed placement ends the slot (`tetris`:
the use of that node). Equal jobs go by their number.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable

import numpy as np

from simulate.worlds.slots.world import NODE_SLOTS, Role, SlotWorld

Divide = Callable[[SlotWorld], None]
Placed = Callable[[int], None]
FIRST = -2147483647.0  # the key of a job's first worker or server
TIES = 9  # digits of scores that tell jobs apart: jobs alike in all are equal, whatever was rounded


def drf(world: SlotWorld, on_bundle: Placed = lambda job: None) -> None:
    """The next bundle goes to the job with the smallest dominant share.

    Args:
        world: at the beginning of a slot.
        on_bundle: called with the job before each bundle that fits.
    """
    most = world.conditions.most
    heap = [(0.0, place, job) for place, job in enumerate(world.there)]
    while heap:
        _, place, job = heapq.heappop(heap)
        if not world.nodes.place(world.demands[job][Role.BUNDLE]):
            return
        on_bundle(job)
        world.count(job, Role.BUNDLE)
        if world.workers[job] < most and world.servers[job] < most:
            heapq.heappush(heap, (world.share(job), place, job))


def fifo(world: SlotWorld) -> None:
    """As many bundles as it may have for each job, in order of arrival."""
    _in_turn(world, world.there)


def srtf(world: SlotWorld) -> None:
    """The same in order of the part that is left (not of time), smallest first."""
    _in_turn(world, sorted(world.there, key=world.remaining))


def _in_turn(world: SlotWorld, order: Iterable[int]) -> None:
    for job in order:
        for _ in range(world.conditions.most):
            if not world.place(job, Role.BUNDLE):
                return


def tetris(world: SlotWorld) -> None:
    """Node by node, the bundle that fits its free slots best and has least left to do."""
    order = world.there
    if not order:
        return
    sizes = np.array([world.demands[job][Role.BUNDLE] for job in order], np.float64)
    left = np.array([world.remaining(job) for job in order])
    rest = sizes.sum(axis=1) * left
    room = np.full(len(order), world.conditions.most)
    for node in range(world.conditions.nodes):
        while room.any():
            free = NODE_SLOTS - np.array(world.nodes.used[node], np.float64)
            fits = sizes @ free
            weight = fits.mean() / rest.mean()
            if weight == 0:
                break
            scores = np.where(room > 0, fits + weight * rest, -np.inf).round(TIES)
            best = int(scores.argmax())
            if not world.nodes.take(node, world.demands[order[best]][Role.BUNDLE]):
                break
            world.count(order[best], Role.BUNDLE)
            room[best] -= 1


def optimus(world: SlotWorld) -> None:
    """The next worker or server goes to the job that it saves most slots; speeds are known."""
    most = world.conditions.most
    heap = [(FIRST, job, Role.WORKER) for job in world.there]  # nothing is placed yet
    while heap:
        key, job, role = heapq.heappop(heap)
        if key >= 0:
            return
        if (world.workers if role == Role.WORKER else world.servers)[job] >= most:
            continue
        if not world.place(job, role):
            return
        again, role = _gain(world, job)
        heapq.heappush(heap, (again, job, role))


def _gain(world: SlotWorld, job: int) -> tuple[float, Role]:
    """Minus the slots saved by one more worker or server, whichever saves more; ties: server."""
    workers, servers = world.workers[job], world.servers[job]
    if workers == 0:
        return FIRST, Role.WORKER
    if servers == 0:
        return FIRST, Role.SERVER
    left = world.epochs[job] - world.progress[job]
    now = _slots(left, world.epochs_per_slot(job, servers, workers))
    by_worker = now - _slots(left, world.epochs_per_slot(job, servers, workers + 1))
    by_server = now - _slots(left, world.epochs_per_slot(job, servers + 1, workers))
    return (-by_worker, Role.WORKER) if by_worker > by_server else (-by_server, Role.SERVER)


def _slots(left: float, rate: float) -> float:
    return left / rate if rate else np.inf


BASELINES: dict[str, Divide] = {
    "drf": drf,
    "fifo": fifo,
    "srtf": srtf,
    "tetris": tetris,
    "optimus": optimus,
}
