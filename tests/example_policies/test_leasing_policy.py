"""An example policy like Chronus (SoCC 2021): leases of 20 minutes booked in the calendar.

Times are minutes. One object fills two stages: admission plans (it books a strict job's leases
before its deadline, or admits it without a promise) and scheduling starts leased jobs at the
boundaries, starts others every 5 minutes and fills idle GPUs on odd minutes. It shows that
Semantics, Calendar and one part for two stages suffice, and leaves out soft deadlines, forced jobs
and the 0-1 program.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from dlsched.core.allocation import Allocation, Refused
from dlsched.core.arrays import Bools
from dlsched.core.cluster.calendar import Booking
from dlsched.core.context import RoundContext
from dlsched.core.options import NoOptions
from dlsched.core.scheduling import SchedulingPolicy
from dlsched.core.semantics import Semantics
from dlsched.core.stage import AdmissionPolicy
from dlsched.core.units import Units
from dlsched.core.walk.walk import Walk
from simulate.engine import Engine
from simulate.published.profiles import PROFILES

LEASE = 20
SLOT = 5
OVERHEAD = 0.5
MARGIN = 1.1

MINUTES = Semantics(
    name="client-minutes",
    source="Chronus (SoCC 2021)",
    grid=1.0,
    arrivals="grid",
    slot=float(SLOT),
    finish="exact",
    release="tick",
    between="none",
)


class Leases(SchedulingPolicy[NoOptions], AdmissionPolicy[NoOptions]):
    """Admission by planning, and the lease mechanism."""

    name = "leasing-example"
    preemptive = True
    rests = False
    admits_all = False

    def __init__(self) -> None:
        super().__init__(NoOptions())
        self.boundaries = 0  # lease boundaries passed
        self.estimates: dict[int, tuple[int, int]] = {}  # minutes, leases

    # -- admission --------------------------------------------------------------------------------

    def admit(self, queue: Units, ctx: RoundContext) -> tuple[Bools, dict[int, Refused]]:
        k = int(ctx.now) // LEASE + 1  # the boundary of this very minute has passed
        for position, row in enumerate(queue.rows.tolist()):
            if not math.isnan(queue.deadline[position]):
                self._plan(row, k, ctx)
        return np.ones(len(queue), np.bool_), {}

    def _plan(self, row: int, k: int, ctx: RoundContext) -> None:
        table = ctx.table
        gang, work = int(table.gang[row]), float(table.predicted_work[row])
        estimate = int(work * (1 + (1 + math.log2(gang)) * OVERHEAD / LEASE) * MARGIN)
        needed = math.ceil(estimate / LEASE)
        self.estimates[row] = (estimate, needed)
        last = math.floor((table.submit_time[row] + table.deadline[row]) / LEASE) - k
        booked: list[Booking] = []
        for lease in range(last - 1, -1, -1):  # the latest leases first
            start = float((k + lease) * LEASE)
            if len(booked) < needed and ctx.calendar.lowest(start, start + LEASE) >= gang:
                booked.append(Booking(row=row, gpus=gang, start=start, end=start + LEASE))
        if len(booked) == needed:
            for booking in booked:
                ctx.calendar.book(booking)

    # -- scheduling -------------------------------------------------------------------------------

    def allocate(self, units: Units, ctx: RoundContext, walk: Walk) -> None:
        minute = int(ctx.now)
        if minute % LEASE == 0:
            self._boundary(ctx, walk)
        if minute % SLOT == 0 or minute % 2 == 1:
            # jobs that ran until this minute continue before others start
            for row in [*walk.suspended, *ctx.waiting.rows.tolist()]:
                if row not in walk.occupancy.held:
                    walk.place(row)

    def _boundary(self, ctx: RoundContext, walk: Walk) -> None:
        """Suspend all jobs; start those with a lease from now on, on their old GPUs if possible."""
        calendar = ctx.calendar
        holders = [
            row
            for row in ctx.units.rows.tolist()
            if any(b.start <= ctx.now < b.end for b in calendar.bookings.get(row, []))
        ]
        for row in ctx.running.rows.tolist():
            walk.suspend(row)
        for row in holders:
            placed = walk.place(row)
            assert not isinstance(placed, Refused), "a booked lease is a promise"


@pytest.fixture
def leases(lab: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run jobs of (submit, GPUs, minutes) with deadlines (NaN: best effort) on one node of 8."""
    monkeypatch.setitem(PROFILES, MINUTES.name, MINUTES)

    def run(
        jobs: list[tuple[float, int, float]], deadline: list[float]
    ) -> tuple[Engine, Leases, list[float]]:
        trace = lab.trace(jobs, deadline=deadline)
        engine = lab.engine(trace, cluster="1x8", options=(f"semantics={MINUTES.name}",))
        part = Leases()
        engine.parts.scheduling = engine.parts.admission = part
        moved: list[float] = []

        def note(engine: Engine, allocation: Allocation) -> None:
            if allocation.launched:
                moved.append(engine.now)

        engine.observers.append(note)
        engine.run()
        return engine, part, moved

    return run


NEVER = math.nan


@pytest.mark.parametrize(
    ("duration", "deadline", "estimate", "booked"),
    [
        (20, 59, (24, 2), []),
        (20, 60, (24, 2), [20, 40]),
        (10, 60, (12, 1), [40]),
        (10, 40, (12, 1), [20]),
    ],
)
def test_a_small_case_is_planned_as_computed_by_hand(
    leases: Any, duration: float, deadline: float, estimate: Any, booked: list[float]
) -> None:
    engine, part, _ = leases([(0, 8, duration)], [deadline])
    assert part.estimates[0] == estimate
    bookings = engine.calendar.bookings.get(0, [])
    assert sorted(booking.start for booking in bookings) == booked


def test_a_leased_job_starts_at_the_boundary_and_the_other_returns_later(leases: Any) -> None:
    # B runs at once; S (seen at 5) has booked 20-40 and 40-60, is done at 40; B goes on
    engine, _, _ = leases([(0, 8, 100), (3, 8, 20)], [NEVER, 60])
    table = engine.world.table
    assert table.first_start.tolist() == [0, 20]
    assert table.finish.tolist() == [120, 40]
    assert table.preemptions.tolist() == [1, 0]


def test_a_job_that_continues_over_a_boundary_loses_nothing(leases: Any) -> None:
    engine, _, _ = leases([(0, 4, 90), (0, 4, 50)], [NEVER, NEVER])
    table = engine.world.table
    assert table.finish.tolist() == [90, 50]
    assert (table.starts.tolist(), table.preemptions.tolist()) == ([1, 1], [0, 0])


def test_arrivals_are_seen_every_five_minutes(leases: Any) -> None:
    engine, _, _ = leases([(0, 1, 3), (1, 1, 3), (6, 1, 3), (10, 1, 3)], [NEVER] * 4)
    assert engine.world.table.first_start.tolist() == [0, 5, 10, 10]


@pytest.mark.parametrize(("ends", "starts"), [(31, 31), (32, 33), (34, 35), (35, 35), (36, 37)])
def test_idle_gpus_are_filled_on_odd_minutes(leases: Any, ends: float, starts: float) -> None:
    engine, _, _ = leases([(0, 8, ends), (5, 8, 10)], [NEVER, NEVER])
    assert engine.world.table.first_start[1] == starts


def test_an_end_between_two_ticks_is_exact_but_frees_its_gpus_at_the_tick(leases: Any) -> None:
    engine, _, _ = leases([(0, 8, 30.25), (5, 8, 10)], [NEVER, NEVER])
    assert engine.world.table.finish[0] == 30.25
    assert engine.world.table.first_start[1] == 31


def test_booked_leases_never_exceed_the_cluster(leases: Any) -> None:
    jobs = [(0, 4, 20), (0, 4, 20), (0, 4, 20), (0, 8, 10)]
    engine, _, _ = leases(jobs, [60, 60, 60, 100])
    # the third 4-GPU job finds its leases taken and gets no promise
    assert sorted(engine.calendar.bookings) == [0, 1, 3]
    assert min(free for _, free in engine.calendar.steps()) >= 0
    for row in (0, 1, 3):
        deadline = engine.world.table.submit_time[row] + engine.world.table.deadline[row]
        assert engine.world.table.finish[row] <= deadline
