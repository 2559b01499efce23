"""Adversarial deciders: policies that no cluster should run, to test the world around them.

Some keep all rules but are extreme (`never`, `always-preempt`, `thrash`, `slow`, `random`): every
invariant must hold under them. The others break a rule (`over-allocate`, `raising`): the run must
end with one clear line and the occupancy must be as before the decision. They are listed apart from
the policies that are meant to be used.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal

import numpy as np

from dlsched.core.allocation import Refused
from dlsched.core.cluster.occupancy import Placement, lowest_bits
from dlsched.core.context import RoundContext
from dlsched.core.memory import kept
from dlsched.core.options import NoOptions, option
from dlsched.core.scheduling import SchedulingPolicy
from dlsched.core.units import Units
from dlsched.core.walk.walk import Walk
from dlsched.policies.placement.spanning import members, taken_in_turn


def start_all(units: Units, walk: Walk) -> None:
    """Place waiting rows in the given order; rows that do not fit wait."""
    for row in units.rows.tolist():
        placed = walk.place(row)
        if isinstance(placed, Refused):
            walk.refuse(row, placed)


def suspend_all(ctx: RoundContext, walk: Walk) -> list[int]:
    """Suspend every running row that may be; returns them in order of admission."""
    if not walk.may_preempt:
        return []
    running = ctx.running
    rows: list[int] = running.rows[~ctx.protected(running)].tolist()
    for row in rows:
        walk.suspend(row)
    return rows


class Never(SchedulingPolicy[NoOptions]):
    """Starts no job."""

    name = "testing-never"
    summary = "starts no job"

    def allocate(self, units: Units, ctx: RoundContext, walk: Walk) -> None:
        """Refuse every row."""
        for row in units.rows.tolist():
            walk.refuse(row, Refused("Testing", "this policy grants nothing"))


class AlwaysPreempt(SchedulingPolicy[NoOptions]):
    """Suspends all jobs in each decision and starts jobs that waited first."""

    name = "testing-always-preempt"
    summary = "suspends all jobs in each decision and starts others first"
    preemptive = True
    rests = False

    def allocate(self, units: Units, ctx: RoundContext, walk: Walk) -> None:
        """Suspend all, then start the others first."""
        waiting = ctx.waiting
        suspended = suspend_all(ctx, walk)
        start_all(waiting, walk)
        start_all(Units(ctx.table, np.array(suspended, np.int64), ctx.now), walk)


class Thrash(SchedulingPolicy[NoOptions]):
    """Moves all jobs in each decision, from the lowest free GPUs to the highest and back."""

    name = "testing-thrash"
    summary = "moves every running job in each decision"
    preemptive = True
    rests = False

    def allocate(self, units: Units, ctx: RoundContext, walk: Walk) -> None:
        """Suspend, then place the same rows from the other end of the cluster."""
        upwards = ctx.number % 2 == 0
        for row in suspend_all(ctx, walk) + ctx.waiting.rows.tolist():
            placement = first_free(walk, row, upwards=upwards)
            if placement is not None:
                walk.place_exactly(row, placement)


def first_free(walk: Walk, row: int, *, upwards: bool) -> Placement | None:
    """The first GPUs that a row may use, nodes ascending or descending; None when too few."""
    free = walk.free_for(row)
    nodes = list(members(free.with_at_least(1)))
    parts = taken_in_turn(walk.table.gang.item(row), free, nodes if upwards else reversed(nodes))
    return None if parts is None else free.across(parts)


class Random(SchedulingPolicy[NoOptions]):
    """Random valid choices from the round's own generator: suspends, places, moves, waits."""

    name = "testing-random"
    summary = "random valid choices: suspends, places, moves, waits"
    preemptive = True
    rests = False

    def allocate(self, units: Units, ctx: RoundContext, walk: Walk) -> None:
        """Choose at random for every row."""
        rng = ctx.rng
        if walk.may_preempt:
            running = ctx.running
            for row in running.rows[~ctx.protected(running)].tolist():
                if rng.random() < 0.3:
                    walk.suspend(row)
        candidates = [*ctx.waiting.rows.tolist(), *walk.suspended]
        for row in rng.permutation(np.array(candidates, np.int64)).tolist():
            dice = rng.random()
            if dice < 0.5:
                walk.place(row)
            elif dice < 0.8:
                placement = first_free(walk, row, upwards=bool(rng.random() < 0.5))
                if placement is not None:
                    walk.place_exactly(row, placement)
        if any(row not in walk.occupancy.held for row in candidates):
            # wake again for rows that were left out, since perhaps nothing else happens
            walk.wake_at(ctx.now + float(rng.exponential(100.0)))


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowOptions:
    """How much CPU time to use."""

    cpu_s: float = option(0.001, "CPU seconds used in each decision", low=0.0, high=60.0)


class Slow(SchedulingPolicy[SlowOptions]):
    """First fit, after some CPU time was used."""

    name = "testing-slow"
    summary = "first fit after using CPU time"

    def allocate(self, units: Units, ctx: RoundContext, walk: Walk) -> None:
        """Use CPU time, then start jobs that fit."""
        # the only policy that reads a clock: its duration must not change its decisions
        until = time.process_time() + self.options.cpu_s
        while time.process_time() < until:
            pass
        start_all(units, walk)


@dataclass(frozen=True, slots=True, kw_only=True)
class RaisingOptions:
    """When to raise."""

    at: int = option(2, "the decision that raises, counted from 1", low=1)


class Raising(SchedulingPolicy[RaisingOptions]):
    """First fit, until it raises in the middle of a decision."""

    name = "testing-raising"
    summary = "raises in the middle of its n-th decision"
    preemptive = True
    rests = False

    _decisions: int = kept(0)

    def allocate(self, units: Units, ctx: RoundContext, walk: Walk) -> None:
        """Count decisions; the n-th raises in the middle of its work."""
        self._decisions += 1
        if self._decisions >= self.options.at:
            suspend_all(ctx, walk)
        start_all(ctx.waiting, walk)
        if self._decisions >= self.options.at:
            raise RuntimeError(f"decision {self._decisions} went wrong")


Offence = Literal[
    "twice", "taken", "missing", "out-of-service", "partial", "same-node", "ended", "reserved"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class OverAllocateOptions:
    """The rule to break."""

    offence: Offence = option("twice", "the rule that it breaks")


class OverAllocate(SchedulingPolicy[OverAllocateOptions]):
    """First fit, and at the first occasion an allocation that breaks a rule.

    twice: to a row that was just placed. taken: GPUs that another row holds. missing: GPUs that the
    node does not have. out-of-service: GPUs of such a node. partial: fewer GPUs than the gang.
    same-node: one node named twice. ended: to a row that has ended. reserved: reserved twice.
    """

    name = "testing-over-allocate"
    summary = "breaks a rule of allocation"
    preemptive = True
    rests = False

    def allocate(self, units: Units, ctx: RoundContext, walk: Walk) -> None:
        """Break the rule if there is an occasion, before and after a correct part."""
        self._offend(ctx, walk)
        start_all(ctx.waiting, walk)
        self._offend(ctx, walk)

    def _offend(self, ctx: RoundContext, walk: Walk) -> None:
        give = walk.reserve if self.options.offence == "reserved" else walk.place_exactly
        for row, placement in self._unlawful(ctx):
            give(row, placement)

    def _unlawful(self, ctx: RoundContext) -> list[tuple[int, Placement]]:
        """The (row, placement) that would break the rule now."""
        occupancy, gang = ctx.occupancy, ctx.table.gang
        waiting = [row for row in ctx.waiting.rows.tolist() if row not in occupancy.held]
        held, free = list(occupancy.held.items()), occupancy.free[0]
        bit = lowest_bits(free, 1) if free else 0
        found: list[tuple[int, Placement]] = []
        match self.options.offence:
            case "twice":
                found = held
            case "taken":
                found = [(row, placement) for row in waiting for _, placement in held]
            case "missing":
                beyond = 1 << int(occupancy.cluster.gpus[0])
                found = [(row, Placement((0,), (beyond,))) for row in waiting]
            case "out-of-service":
                away = [
                    n for n in range(len(occupancy.cluster)) if not occupancy.in_service >> n & 1
                ]
                found = [(row, Placement((node,), (1,))) for row in waiting for node in away]
            case "partial":
                found = [(row, Placement((0,), (bit,))) for row in waiting if bit and gang[row] > 1]
            case "same-node":
                found = [(row, Placement((0, 0), (bit, bit))) for row in waiting if bit]
            case "ended":
                found = [(row, Placement((0,), (bit,))) for row in ctx.finished if bit]
            case "reserved" if len(waiting) > 1:
                found = [
                    (row, Placement((0,), ((1 << int(gang[row])) - 1,))) for row in waiting[:2]
                ]
            case _:
                pass
        return found
