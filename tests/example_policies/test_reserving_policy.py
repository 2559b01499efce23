"""An example policy like HiveD (OSDI 2020): a gang reserves GPUs, its victims end, then it starts.

A gang with victims reserves its GPUs at its priority at once, so that no job of lower or equal
priority gets them; it starts when all victims have ended. A later gang of higher priority that
overlaps cancels the reservation, and so does withdrawing. It is not a real policy: it shows that
the interfaces of core suffice.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from dlsched.core.allocation import Allocation, Refused
from dlsched.core.cluster.occupancy import Placement, lowest_bits
from dlsched.core.context import RoundContext
from dlsched.core.options import NoOptions
from dlsched.core.scheduling import SchedulingPolicy
from dlsched.core.units import Units
from dlsched.core.walk.walk import Walk
from simulate.engine import Engine

GRACE_S = 60.0  # time that a victim has until it is suspended


class Reserving(SchedulingPolicy[NoOptions]):
    """One node, gangs by priority (larger wins), victims end a minute after the request."""

    name = "reserving-example"
    preemptive = True
    rests = False

    def __init__(self) -> None:
        super().__init__(NoOptions())
        self.leaves_at: dict[int, float] = {}  # victims that were asked to end

    def allocate(self, units: Units, ctx: RoundContext, walk: Walk) -> None:
        self._let_go(ctx, walk)
        for row in list(walk.occupancy.reserved):
            self._withdraw_or_claim(row, ctx, walk)
        waiting = ctx.waiting
        order = sorted(waiting.rows.tolist(), key=lambda row: -ctx.table.priority[row])
        for row in order:
            if row not in walk.occupancy.held and row not in walk.occupancy.reserved:
                self._place_or_reserve(row, ctx, walk)
        alarms = [time for time in self.leaves_at.values() if time > ctx.now]
        alarms += [self._patience_ends(row, ctx) for row in walk.occupancy.reserved]
        for time in alarms:
            walk.wake_at(time)

    def _let_go(self, ctx: RoundContext, walk: Walk) -> None:
        for row, time in list(self.leaves_at.items()):
            if row not in walk.occupancy.held:
                del self.leaves_at[row]  # it ended by itself
            elif time <= ctx.now:
                del self.leaves_at[row]
                walk.suspend(row)

    def _patience_ends(self, row: int, ctx: RoundContext) -> float:
        return float(ctx.table.submit_time[row] + ctx.table.extra["patience"][row])

    def _withdraw_or_claim(self, row: int, ctx: RoundContext, walk: Walk) -> None:
        if self._patience_ends(row, ctx) <= ctx.now:
            self._open(row, walk)
        else:
            walk.claim(row)

    def _open(self, row: int, walk: Walk) -> None:
        """Cancel a reservation; its victims may stay."""
        placement = walk.unreserve(row)
        for victim in self._holders(placement, walk):
            self.leaves_at.pop(victim, None)

    def _holders(self, placement: Placement, walk: Walk) -> list[int]:
        (node,), (mask,) = placement.nodes, placement.masks
        held = walk.occupancy.held.items()
        return [row for row, where in held if where.nodes == (node,) and where.masks[0] & mask]

    def _place_or_reserve(self, row: int, ctx: RoundContext, walk: Walk) -> None:
        if self._patience_ends(row, ctx) <= ctx.now:
            walk.refuse(row, Refused("Withdrawn", "its owner has given up"))
            return
        if not isinstance(walk.place(row), Refused):
            return
        table, occupancy = ctx.table, walk.occupancy
        mine, gang = table.priority[row], int(table.gang[row])
        for other in list(occupancy.reserved):
            if table.priority[other] < mine:
                self._open(other, walk)
        usable = occupancy.free[0]
        for holder, where in occupancy.held.items():
            if table.priority[holder] < mine and holder not in walk.launched:
                usable |= where.masks[0]
        for kept in occupancy.reserved.values():
            usable &= ~kept.masks[0]
        if usable.bit_count() < gang:
            walk.refuse(row, Refused("Resources", f"needs {gang} GPUs of lower priority"))
            return
        placement = Placement((0,), (lowest_bits(usable, gang),))
        walk.reserve(row, placement)
        for victim in self._holders(placement, walk):
            self.leaves_at.setdefault(victim, ctx.now + GRACE_S)


def run(lab: Any, jobs: list[tuple[float, int, float]], **columns: Any) -> Engine:
    trace = lab.trace(jobs, patience=columns.pop("patience", [1e9] * len(jobs)), **columns)
    engine = lab.engine(trace, cluster="1x4", clock="events")
    engine.parts.scheduling = Reserving()
    engine.run()
    return engine


def test_a_gang_starts_when_its_victims_have_ended(lab: Any) -> None:
    engine = run(lab, [(0, 4, 1000), (100, 4, 100)], priority=[0.0, 1.0])
    table = engine.world.table
    assert table.first_start.tolist() == [0, 160]
    assert table.finish.tolist() == [1100, 260]
    assert table.preemptions.tolist() == [1, 0]


def test_no_other_job_gets_reserved_gpus_even_if_they_are_idle(lab: Any) -> None:
    # A holds 2 of 4; B reserves all; C gets none of the idle 2, as its priority is not above A's
    engine = run(lab, [(0, 2, 1000), (100, 4, 100), (110, 2, 50)], priority=[0.0, 1.0, 0.0])
    assert engine.world.table.first_start.tolist() == [0, 160, 260]


def test_a_job_behind_of_lower_priority_does_not_cancel(lab: Any) -> None:
    engine = run(lab, [(0, 4, 1000), (100, 4, 100), (130, 4, 50)], priority=[0.0, 2.0, 1.0])
    assert engine.world.table.first_start.tolist()[:2] == [0, 160]
    assert engine.world.table.first_start[2] >= 260


def test_a_higher_priority_overlap_cancels_the_reservation(lab: Any) -> None:
    engine = run(lab, [(0, 4, 1000), (100, 4, 100), (130, 4, 50)], priority=[0.0, 1.0, 2.0])
    table = engine.world.table
    # B's claim is cancelled at 130, A is told anew and leaves at 190; then C, then B, then A
    assert table.first_start.tolist() == [0, 240, 190]
    assert table.finish.tolist() == [1150, 340, 240]


def test_a_withdrawn_gang_releases_its_reservation(lab: Any) -> None:
    engine = run(
        lab,
        [(0, 2, 1000), (100, 4, 100), (110, 2, 50)],
        priority=[0.0, 1.0, 0.0],
        patience=[1e9, 30.0, 1e9],
    )
    table = engine.world.table
    assert table.preemptions.tolist() == [0, 0, 0], "the victim stays"
    assert table.finish[0] == 1000
    assert table.first_start[2] == 130, "the idle half is free again at once"
    assert str(engine.refusals[1]) == "Withdrawn: its owner has given up"


def test_a_victim_that_ends_early_brings_the_start_forward(lab: Any) -> None:
    engine = run(lab, [(0, 4, 120), (100, 4, 100)], priority=[0.0, 1.0])
    assert engine.world.table.first_start.tolist() == [0, 120]
    assert engine.world.table.preemptions.tolist() == [0, 0]


def test_a_standing_reservation_is_part_of_the_answer(lab: Any) -> None:
    seen: list[dict[int, Placement]] = []
    trace = lab.trace([(0, 4, 1000), (100, 4, 100)], priority=[0.0, 1.0], patience=[1e9, 1e9])
    engine = lab.engine(trace, cluster="1x4", clock="events")
    engine.parts.scheduling = Reserving()

    def note(_: Engine, allocation: Allocation) -> None:
        seen.append(dict(allocation.reserved))

    engine.observers.append(note)
    engine.run()
    assert seen[:3] == [{}, {1: Placement((0,), (15,))}, {}]


@pytest.mark.parametrize("seed", range(5))
def test_random_gangs_of_random_priority_break_no_invariant(lab: Any, seed: int) -> None:
    dice = random.Random(seed)
    jobs = [
        (dice.randrange(0, 900), dice.randint(1, 4), dice.randrange(10, 400)) for _ in range(12)
    ]
    jobs.sort()
    engine = run(
        lab,
        jobs,
        priority=[float(dice.randint(0, 3)) for _ in jobs],
        patience=[dice.choice([50.0, 1e9]) for _ in jobs],
    )
    assert engine.world.occupancy.reserved == {}
    assert engine.world.occupancy.free_total == 4
