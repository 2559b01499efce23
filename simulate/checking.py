"""Checks every invariant of the world after every decision; for tests, and for those who doubt."""

from __future__ import annotations

import numpy as np

from dlsched.core.allocation import Allocation
from dlsched.core.errors import InvariantBroken
from dlsched.core.invariants import TOLERANCE_S, check_world
from dlsched.core.parts import parts_of
from dlsched.core.units import Status
from simulate.engine import Engine
from simulate.results.tables import ReplayResult


def check_after_each_decision(engine: Engine) -> None:
    """Let the engine check itself from now on; an offence ends the run with `InvariantBroken`."""
    engine.observers.append(_check)


def _check(engine: Engine, allocation: Allocation) -> None:
    check_world(engine.world.table, engine.world.occupancy, engine.now)
    check_where(engine, allocation)
    check_counts(engine)
    check_conserved_work(engine)


def check_where(engine: Engine, allocation: Allocation) -> None:
    """No unit runs outside its pool, and none starts on a node that drains.

    Raises:
        InvariantBroken: names the first unit and node for which it does not hold.
    """
    occupancy, pools = engine.world.occupancy, engine.pools
    names = occupancy.cluster.names
    for row, placement in occupancy.held.items():
        for node in placement.nodes:
            if not pools.nodes[int(engine.world.table.pool[row])] >> node & 1:
                raise InvariantBroken(f"row {row} runs on node {names[node]}, outside its pool")
    for row, placement in allocation.launched.items():
        for node in placement.nodes:
            if occupancy.draining >> node & 1:
                raise InvariantBroken(f"row {row} was started on node {names[node]}, which drains")


def check_counts(engine: Engine) -> None:
    """The world's running totals agree with its table.

    Raises:
        InvariantBroken: names the total that is off.
    """
    world, table = engine.world, engine.world.table
    waiting = table.status == Status.WAITING
    completed = np.flatnonzero(table.status == Status.COMPLETED)
    totals = {
        "running": (world.running, int((table.status == Status.RUNNING).sum())),
        "waiting": (sorted(world.waiting), np.flatnonzero(waiting).tolist()),
        "waiting GPUs": (world.waiting_gpus, int(table.gang[waiting].sum())),
        "active": (len(engine.active), world.unfinished),
        "finished": (sorted(world.finished), completed.tolist()),
    }
    for name, (kept, counted) in totals.items():
        if kept != counted:
            raise InvariantBroken(f"{name}: {kept} are in the records, {counted} are counted")
    wrong = completed[table.executed[completed] != world.true_work[completed]]
    if wrong.size:
        raise InvariantBroken(f"row {int(wrong[0])} has completed without doing all its work")


def check_records(result: ReplayResult) -> None:
    """What was recorded adds up: GPU-seconds of stretches, of the time line and of the jobs.

    Raises:
        InvariantBroken: says which sums differ.
    """
    jobs, segments, timeline = result.jobs, result.segments, result.timeline
    if segments is not None:
        given = np.bincount(
            segments.job, (segments.end - segments.start) * segments.gpus, minlength=len(jobs)
        ) * parts_of(np.asarray(jobs.extra.get("gpu_share", np.zeros(len(jobs))), np.float64))
        off = np.flatnonzero(~np.isclose(given, jobs.gpu_seconds, rtol=1e-9, atol=TOLERANCE_S))
        if off.size:
            row = int(off[0])
            raise InvariantBroken(
                f"job {jobs.job_id[row]} was recorded for {given[row]} GPU-s on nodes, "
                f"but attained {jobs.gpu_seconds[row]}"
            )
    if len(timeline.time):
        until = np.append(timeline.time[1:], result.summary["end_time"])
        drawn = float(np.sum(timeline.allocated_gpus * (until - timeline.time)))
        drawn += float(result.summary.get("counted_twice_gpu_seconds", 0.0))
        drawn -= float(result.summary.get("unneeded_gpu_seconds", 0.0))
        if not np.isclose(drawn, jobs.gpu_seconds.sum(), rtol=1e-9, atol=TOLERANCE_S):
            raise InvariantBroken(
                f"the time line says {drawn} GPU-s were allocated, the jobs say "
                f"{jobs.gpu_seconds.sum()}"
            )
    work = jobs.status == "completed"
    early = work & (jobs.finish_time - jobs.submit_time < -TOLERANCE_S)
    if early.any():
        raise InvariantBroken(f"job {jobs.job_id[early][0]} finished before it was submitted")


def check_conserved_work(engine: Engine) -> None:
    """Time on GPUs = work done + work lost + overhead, for every unit at its last stop.

    Raises:
        InvariantBroken: names the first unit for which it does not hold.
    """
    table = engine.world.table
    sensitive = engine.cycle.ctx.perf.by_host is not None or bool(engine.world.shared.stretches)
    sensitive = sensitive or engine.parts.node is not None
    if sensitive or engine.best_s is not None or (table.rate != 1.0).any():
        return  # executed work is not seconds
    held = table.executed + table.lost_s + table.overhead_s
    slack = TOLERANCE_S + 1e-9 * table.held_s
    settled = table.gpus_now == 0  # a running unit's clocks are settled when it stops
    broken = np.flatnonzero(settled & (np.abs(table.held_s - held) > slack))
    if broken.size:
        row = int(broken[0])
        raise InvariantBroken(
            f"row {row} held GPUs for {table.held_s[row]} s but worked {table.executed[row]}, "
            f"lost {table.lost_s[row]} and restarted for {table.overhead_s[row]}"
        )
