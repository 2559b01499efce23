"""Jobs without GPUs: they hold processors and memory of nodes, and no policy orders them.

They start in the order of priority and submission, each on the first nodes with room, of a range
(`-N 2-4`) on as many as have room then. What they hold is taken off what policies see of their
nodes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dlsched.core.cluster.occupancy import Placement
from dlsched.core.errors import plural
from dlsched.daemon.live import job_columns as c
from dlsched.daemon.live.live_state import LiveState
from dlsched.protocol.messages import JobId

GB = 1e9


@dataclass(slots=True)
class _Room:
    """What is free on one node; infinite where it is not known."""

    cpus: float
    memory_gb: float


def place_host_only(live: LiveState, now: float) -> None:
    """Give the waiting jobs without GPUs the nodes that have room, as claims.

    `now` is of the policy's clock.
    """
    asked = live.constraints.host_only
    if not asked and not live.nodes.has_host_use:
        return
    jobs = live.jobs
    _note_use(live)
    may = live.judge(now)
    waiting = [job for job in asked if may[jobs.row_of[job]] and job not in live.claims]
    if not waiting:
        return
    rooms = _rooms(live)
    waiting.sort(
        key=lambda job: (-_priority(live, job), jobs.get("submit_time", _row(live, job)), job)
    )
    for job in waiting:
        placement, why = _fitting(live, job, rooms, now)
        if placement is None:
            live.note_reason(job, why)
            continue
        live.claims.add(job, jobs.get("runs", _row(live, job)) + 1, placement)


def _row(live: LiveState, job: int) -> int:
    return live.jobs.row_of[job]


def _priority(live: LiveState, job: int) -> float:
    priority = float(live.jobs.get("priority", _row(live, job)))
    return 0.0 if math.isnan(priority) else priority


def _need(live: LiveState, job: int) -> tuple[float, float]:
    """Processors and memory (GB) on each node."""
    body, (fewest, _) = live.requests.specs[job].body, live.constraints.host_only[job]
    return float(-(-(body.cpus or 1) // fewest)), (body.memory_bytes or 0) / GB


def _rooms(live: LiveState) -> list[_Room]:
    """What runs leave of each node."""
    rooms = [
        _Room(
            math.inf if math.isnan(node.facts.cpus) else node.facts.cpus - node.host_cpus,
            math.inf
            if math.isnan(node.facts.memory_gb)
            else node.facts.memory_gb - node.host_memory_gb,
        )
        for node in live.nodes.all()
    ]
    for job, where in live.accounting.where.items():
        if job in live.constraints.host_only or not where.gpus:
            continue
        body = live.requests.specs[job].body
        cpus = float(body.cpus or 0)
        if job in live.constraints.ranges:  # those of a job are for its fewest nodes
            cpus *= len(where.nodes) / len(body.gang or (1,))
        for index, mask in zip(where.nodes, where.masks, strict=True):
            rooms[index].cpus -= cpus * mask.bit_count() / where.gpus
            rooms[index].memory_gb -= (body.memory_bytes or 0) / GB
    return rooms


def _fitting(
    live: LiveState, job: int, rooms: list[_Room], now: float
) -> tuple[Placement | None, str]:
    """Nodes with room for a job, whose room is taken off; or why there are none."""
    cpus, memory = _need(live, job)
    fewest, most = live.constraints.host_only[job]
    usable = live.constraints.pool_mask(live.jobs.get("pool", _row(live, job)), live.nodes)
    usable &= live.unreserved(JobId(job), now)
    found = [
        index
        for index, room in enumerate(rooms)
        if usable >> index & 1
        and live.nodes[index].is_open
        and room.cpus >= cpus
        and room.memory_gb >= memory
    ][:most]
    if len(found) < fewest:
        needs = plural(int(cpus), "CPU") + (f" and {memory:.3g} GB of memory" if memory else "")
        return None, f"Resources: needs {needs} on {plural(fewest, 'node')}, {len(found)} has room"
    for index in found:
        rooms[index].cpus -= cpus
        rooms[index].memory_gb -= memory
    return Placement(tuple(found), (0,) * len(found)), ""


def _note_use(live: LiveState) -> None:
    """Note on each node what such jobs hold there."""
    held: dict[int, tuple[float, float]] = {}
    for job in live.constraints.host_only:
        where = live.accounting.where.get(job)
        phase = live.jobs.get("phase", _row(live, job))
        if where is None or phase not in (c.HOLDING, c.SUSPENDED, c.AWAY):
            continue
        cpus, memory = _need(live, job)
        for index in where.nodes:
            before = held.get(index, (0.0, 0.0))
            held[index] = before[0] + cpus, before[1] + memory
    live.nodes.set_host_use(held)
