"""Ends that a policy plans, as ElasticFlow's simulator has them: however much work is done."""

from __future__ import annotations

from typing import Any

from dlsched.core.allocation import Grant
from dlsched.core.context import RoundContext
from dlsched.core.options import NoOptions
from dlsched.core.scheduling import SchedulingPolicy
from dlsched.core.units import Units
from dlsched.core.walk.walk import Walk

PUBLISHED = {"options": ("semantics=elasticflow",), "placement": "first-free"}


class Planner(SchedulingPolicy[NoOptions]):
    """Each job has its GPU until 200 s after it came, and its start costs 2 s."""

    name = "planner"

    def allocate(self, units: Units, ctx: RoundContext, walk: Walk) -> None:
        for row in units[~units.running].rows.tolist():
            walk.place(row)
            submit = float(units.table.submit_time[row])
            walk.grant(row, Grant(restart_s=2.0, ends_at=submit + 200.0))


def finishes(lab: Any, jobs: list[tuple[float, int, float]]) -> list[float]:
    engine = lab.engine(jobs, **PUBLISHED)
    engine.parts.scheduling = Planner(NoOptions())
    engine.run()
    found: list[float] = engine.world.table.finish.tolist()
    return found


def test_a_job_ends_when_planned_whether_its_work_is_done_or_not(lab: Any) -> None:
    assert finishes(lab, [(0, 1, 150)]) == [200]
    assert finishes(lab, [(0, 1, 500)]) == [200]


def test_a_job_that_is_done_when_something_is_decided_has_ended_as_if_its_start_were_free(
    lab: Any,
) -> None:
    """The second job comes at 160 s: the first is done by then, and stands as done at 101 s."""
    assert finishes(lab, [(0, 1, 100.5), (160, 1, 100)]) == [101, 360]
    assert finishes(lab, [(0, 1, 159), (160, 1, 100)]) == [200, 360]  # not by then
