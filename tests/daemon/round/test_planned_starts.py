"""Planned starts of a live policy: a job's new plan replaces its old one, from round to round."""

from __future__ import annotations

from typing import Any

import pytest

from dlsched.core.cluster.calendar import Booking
from dlsched.core.context import RoundContext
from dlsched.core.options import NoOptions
from dlsched.core.scheduling import SchedulingPolicy
from dlsched.core.units import Units
from dlsched.core.walk.walk import Walk
from dlsched.policies import registry

LATER_S, LONG_S = 1000.0, 100.0
FREE: list[tuple[int, int]] = []  # GPUs free in the first and in the second stretch, by decision


class Planner(SchedulingPolicy[NoOptions]):
    """Starts no job, and plans each for the stretch of its round's parity."""

    name = "testing-planner"
    rests = False

    def allocate(self, units: Units, ctx: RoundContext, walk: Walk) -> None:
        free = [ctx.calendar.free_at(LATER_S + stretch * LONG_S) for stretch in (0, 1)]
        FREE.append((free[0], free[1]))
        start = LATER_S + len(FREE) % 2 * LONG_S
        for row in units.rows.tolist():
            gang = int(ctx.table.gang[row])
            walk.plan_ahead(Booking(row=row, gpus=gang, start=start, end=start + LONG_S))
        if len(FREE) == 1:
            walk.plan_ahead(Booking(row=-1, gpus=1, start=LATER_S, end=LATER_S + 2 * LONG_S))


@pytest.fixture
def planner(live: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A live cluster of eight GPUs under that policy."""
    where = f"{__name__}:{Planner.__name__}"
    monkeypatch.setitem(registry._OURS["scheduling"], Planner.name, where)
    monkeypatch.setattr(registry, "find", lambda stage, name, find=registry.find: (
        Planner if name == Planner.name else find(stage, name)
    ))  # fmt: skip
    monkeypatch.setattr("dlsched.composition.parts.find", registry.find)
    FREE.clear()
    return live.LiveLab((4, 4), parts={"scheduling": Planner.name})


def test_a_live_jobs_new_plan_replaces_its_old_one(planner: Any) -> None:
    planner.submit(0.0, gpus=3)
    for now in (10.0, 20.0, 30.0, 40.0):
        planner.round(now)
    # maintenance, planned in the first round, keeps its GPU; the job's three alternate
    assert FREE == [(8, 8), (7, 4), (4, 7), (7, 4)]


def test_plans_outlive_the_daemon(planner: Any) -> None:
    planner.submit(0.0, gpus=3)
    planner.round(10.0)
    planner.restart(15.0)
    planner.round(20.0)
    assert FREE == [(8, 8), (7, 4)]
