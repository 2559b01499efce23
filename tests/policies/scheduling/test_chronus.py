"""Chronus: leases that fit, admission, and what jobs with and without deadlines get."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlsched.core.arrays import Rows
from dlsched.policies.highs import Limits
from dlsched.policies.scheduling.chronus.lease_record import ACCEPTED, UNACCEPTED
from dlsched.policies.scheduling.chronus.leases import (
    Row,
    all_fit,
    book_latest,
    greedy_plan,
    least_most,
    rounded_up,
)
from dlsched.policies.scheduling.chronus.policy import Chronus
from dlsched.policies.scheduling.chronus.program import best_plan
from simulate.results.tables import ReplayResult

NONE_BOOKED = np.zeros(0, np.int64)

rows_of_jobs = st.lists(
    st.tuples(
        st.sampled_from([1, 2, 4, 8]),
        st.integers(1, 4),
        st.integers(0, 6),
        st.sampled_from([2, 10]),
    ),
    min_size=1,
    max_size=6,
).map(lambda jobs: [Row(g, leases, most, job, v) for job, (g, leases, most, v) in enumerate(jobs)])


def used(plans: Any, rows: list[Row]) -> dict[int, int]:
    """GPUs by lease."""
    gpus = {row.job: row.gpus for row in rows}
    total: dict[int, int] = {}
    for job, leases in plans.items():
        for lease in leases.tolist():
            total[lease] = total.get(lease, 0) + gpus[job]
    return total


def test_gangs_are_rounded_up_so_that_plans_stay_packable() -> None:
    assert [rounded_up(gang) for gang in range(1, 11)] == [1, 2, 4, 4, 8, 8, 8, 8, 9, 10]


def test_leases_are_booked_as_late_as_possible() -> None:
    capacity = np.array([8, 8, 2, 8])
    booked = book_latest(Row(4, 2, 4, 0), capacity)
    assert booked is not None
    assert booked.tolist() == [1, 3]
    assert capacity.tolist() == [8, 4, 2, 4]
    assert book_latest(Row(8, 2, 4, 1), capacity) is None


ARTIFACT = ("semantics=chronus", "plan=greedy")


@dataclass
class Arrivals:
    """What Chronus decided of each job when it arrived."""

    kind: dict[int, int]
    due: dict[int, float]
    estimate: dict[int, float]
    leases: dict[int, int]


def replayed(
    lab: Any, jobs: list[Any], cluster: str = "1x8", options: Any = ARTIFACT, **columns: Any
) -> tuple[ReplayResult, Arrivals]:
    """A run of jobs (submit, GPUs, duration, all in minutes), with a look into its record."""
    found = Arrivals({}, {}, {}, {})
    arrive = Chronus._arrive

    def noted(self: Chronus, fresh: Rows, *given: Any) -> None:
        arrive(self, fresh, *given)
        for row in fresh.tolist():
            found.kind[row] = self._record.kind.item(row)
            found.due[row] = self._record.due.item(row)
            found.estimate[row] = self._record.estimate.item(row)
            found.leases[row] = self._record.request.item(row)

    trace = lab.trace([(submit * 60, gpus, took * 60) for submit, gpus, took in jobs], **columns)
    with patch.object(Chronus, "_arrive", noted):
        result = lab.run(trace, "chronus", cluster=cluster, options=options, overhead=30.0)
    return result, found


@pytest.mark.parametrize(
    ("duration", "deadline", "kind", "estimate", "leases"),
    [(20, 59, UNACCEPTED, 24, 2), (20, 60, ACCEPTED, 24, 2), (10, 60, ACCEPTED, 12, 1)],
)
def test_the_worked_example_of_admission(
    lab: Any, duration: int, deadline: int, kind: int, estimate: int, leases: int
) -> None:
    _, arrived = replayed(lab, [(0, 8, duration)], deadline=[deadline * 60.0])
    assert arrived == Arrivals({0: kind}, {0: deadline}, {0: estimate}, {0: leases})


@given(rows=rows_of_jobs, total=st.sampled_from([8, 16]))
def test_plans_never_book_more_gpus_than_there_are(rows: list[Row], total: int) -> None:
    plans = greedy_plan(rows, total, NONE_BOOKED)
    assert all(gpus <= total for gpus in used(plans, rows).values())
    for row in rows:
        if row.job in plans:
            leases = plans[row.job].tolist()
            assert len(leases) == row.leases
            assert max(leases) < row.most


@given(rows=rows_of_jobs, total=st.sampled_from([8, 16]))
def test_the_program_serves_all_or_says_so_and_is_never_worse(rows: list[Row], total: int) -> None:
    found = best_plan(rows, total, NONE_BOOKED, sigma=1, limits=Limits(gap=1e-9))
    if all_fit(rows, total, NONE_BOOKED):
        assert found is not None
    if found is None:
        return
    plans, objective = found
    assert set(plans) == {row.job for row in rows}
    assert all(gpus <= total for gpus in used(plans, rows).values())
    now = sum(row.gpus for row in rows if 0 in plans[row.job])
    worth = sum(row.value for row in rows)
    assert objective == pytest.approx(worth + now / total)


def test_of_plans_of_equal_value_the_present_one_is_kept() -> None:
    rows = [Row(4, 2, 5, job, 10.0) for job in range(3)]
    kept = {0: np.array([1, 4]), 1: np.array([2, 3]), 2: np.array([1, 3])}
    limits = Limits(gap=1e-9)
    found = best_plan(rows, 8, NONE_BOOKED, sigma=-1, limits=limits, start=kept)
    assert found is not None
    assert {job: plan.tolist() for job, plan in found[0].items()} == {
        job: plan.tolist() for job, plan in kept.items()
    }


@given(rows=rows_of_jobs, total=st.sampled_from([8, 16]))
def test_the_fewest_leases_in_which_all_fit(rows: list[Row], total: int) -> None:
    if not all_fit(rows[:-1], total, NONE_BOOKED):
        return
    most = least_most(rows, total, NONE_BOOKED)
    assert rows[-1].most == most
    assert all_fit(rows, total, NONE_BOOKED)
    shorter = [*rows[:-1], rows[-1]._replace(most=most - 1)]
    assert most <= rows[-1].leases or not all_fit(shorter, total, NONE_BOOKED)


@given(
    jobs=st.lists(
        st.tuples(
            st.integers(0, 200),
            st.sampled_from([1, 2, 4, 8]),
            st.integers(5, 100),
            st.floats(1.3, 6),
        ),
        min_size=1,
        max_size=8,
    ),
    plan=st.sampled_from(["greedy", "program"]),
)
def test_an_admitted_job_meets_its_deadline(
    lab: Any, jobs: list[tuple[int, int, int, float]], plan: str
) -> None:
    result, arrived = replayed(
        lab,
        [(submit, gpus, took) for submit, gpus, took, _ in jobs],
        options=("semantics=chronus", f"plan={plan}"),
        deadline=[math.ceil(took * slack) * 60.0 for _, _, took, slack in jobs],
    )
    took = (result.jobs.finish_time - result.jobs.submit_time) / 60
    for row, kind in arrived.kind.items():
        assert kind != ACCEPTED or took[row] <= arrived.due[row] + 1e-6


def test_a_job_without_deadline_makes_room_for_a_lease(lab: Any) -> None:
    jobs = replayed(lab, [(0, 8, 50), (1, 8, 30)], deadline=[math.nan, 6000.0])[0].jobs
    assert jobs.finish_time[1] <= 6060
    assert jobs.preemptions[0] > 0


def test_a_reward_curve_is_planned_by_deadlines_of_falling_value(lab: Any) -> None:
    _, arrived = replayed(lab, [(0, 8, 30)], sla=["soft:3600,10,4800"])
    assert arrived.kind == {0: ACCEPTED}
    assert arrived.due == {0: 100.0}  # in the middle of the slope


def test_soft_deadlines_of_falling_value(lab: Any) -> None:
    _, arrived = replayed(lab, [(0, 8, 30)], deadline=[3600.0], deadline_steps=["3600:10 6000:8"])
    assert arrived.kind == {0: ACCEPTED}  # by its last deadline
    assert arrived.due == {0: 100.0}


@settings(max_examples=10)
@given(
    jobs=st.lists(
        st.tuples(st.integers(0, 2000), st.integers(1, 6), st.integers(1, 3000)),
        min_size=2,
        max_size=10,
    ),
    due=st.lists(st.none() | st.integers(100, 9000), min_size=10, max_size=10),
    clock=st.sampled_from(["rounds", "events"]),
    options=st.sampled_from([(), ("plan=greedy",), ("lease_s=300", "slot_s=60")]),
)
def test_a_job_is_credited_with_no_more_work_than_it_has_left(
    lab: Any, jobs: Any, due: Any, clock: str, options: tuple[str, ...]
) -> None:
    deadlines = [math.nan if at is None else float(at) for at in due[: len(jobs)]]
    trace = lab.trace(sorted(jobs), deadline=deadlines)
    by_slots = ("clock=slots", *options)
    result = lab.run(trace, "chronus", cluster="2x4", clock=clock, options=by_slots)
    table = result.jobs
    done = table.status == "completed"
    early = table.finish_time[done] < table.first_start_time[done] - 1e-6
    assert not early.any()
