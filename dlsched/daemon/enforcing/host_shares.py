"""Limits of processors and memory that a policy gives to running jobs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from dlsched.daemon.leader_driver import LeaderDriver
from dlsched.daemon.live.live_state import LiveState
from dlsched.db.records import Event
from dlsched.protocol.ledger import Job, Terms
from dlsched.protocol.messages import JobId, Limits

GB = 10**9
HAIR = 1e-9  # thirds of a processor must add up to whole ones


def share_text(limits: Limits) -> str:
    """What a job has of each of its nodes."""
    memory = "" if limits.memory_bytes is None else f", {limits.memory_bytes / GB:.3g} GB of memory"
    count = limits.cpus or 0
    return f"{count} CPU{'' if count == 1 else 's'} of a node{memory}"


def given_limits(
    driver: LeaderDriver,
    live: LiveState,
    shares: Mapping[int, tuple[float, float]],
    starts: Mapping[JobId, int],
    lowered: Mapping[JobId, Terms],
    by: tuple[str, float],
) -> Iterator[tuple[JobId, Terms, Event]]:
    """Give the new terms of jobs whose shares have changed, or that start without one.

    A job keeps what it asked for itself. Processors are whole ones.

    Args:
        driver: of the leader.
        live: the jobs on their GPUs.
        shares: processors and GB for each GPU, by job; 0: no limit.
        starts: the most GPUs on one node of each job that starts.
        lowered: terms that this round has changed already.
        by: whose decision it is, and when, by the wall clock.
    """
    actor, at = by
    for job in dict.fromkeys([*starts, *map(JobId, shares)]):
        row = driver.reserved.jobs.get(job)
        if row is None:
            continue
        terms = lowered.get(job, row.terms)
        table = driver.table
        cpus, memory = table.field(row, "cpus"), table.field(row, "memory_bytes")
        gpus = starts[job] if job in starts else _most_on_a_node(live, job)
        per_gpu, gb_per_gpu = shares.get(job, (0.0, 0.0))
        if cpus is None and per_gpu * gpus > 0:
            cpus = max(1, math.floor(per_gpu * gpus + HAIR))
        if memory is None and gb_per_gpu * gpus > 0:
            memory = int(gb_per_gpu * gpus * GB)
        limits = replace(terms.limits, cpus=cpus, memory_bytes=memory)
        if limits != terms.limits:
            event = Event(at=at, kind="share", actor=actor, job=job, text=share_text(limits))
            yield job, replace(terms, limits=limits), event


def _most_on_a_node(live: LiveState, job: JobId) -> int:
    where = live.where(job)
    return 0 if where is None else max(mask.bit_count() for mask in where.masks)


def shown_share(driver: LeaderDriver, row: Job, unlimited: Sequence[str]) -> str:
    """What a policy gives a running job of its nodes; empty where it has what it asks for.

    Args:
        driver: of the leader.
        row: the job.
        unlimited: those of its nodes that cannot limit their jobs.
    """
    limits, table = row.terms.limits, driver.table
    if (limits.cpus, limits.memory_bytes) == (table.field(row, "cpus"),
                                              table.field(row, "memory_bytes")):  # fmt: skip
        return ""
    note = f"; not enforced on {', '.join(unlimited)}, which has no cgroups" if unlimited else ""
    return share_text(limits) + note
