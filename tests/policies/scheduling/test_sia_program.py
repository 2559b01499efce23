"""Sia's integer program: small ones by hand, and what holds of any."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlsched.core.arrays import Floats, Ints
from dlsched.policies.highs import Limits
from dlsched.policies.scheduling.sia.configurations import NONE, Configurations
from dlsched.policies.scheduling.sia.goodput_matrix import charge_moves, restart_factor
from dlsched.policies.scheduling.sia.integer_program import EXACT, MISSING, Program
from dlsched.policies.scheduling.sia.solving import solve
from simulate.published.sia.policy import ROUNDED

# Sia, Table 1: a node of 2 GPUs of type A, one of 4 of type B
TWO_TYPES = Configurations.of(["A", "B"], [1, 1], [2, 4])
J1 = [1, 1.5, 1.5, 2.5, 3.5]
J2 = [1.2, 2.1, 1, 1.9, 3.6]
J3 = [1, 1.8, 1.2, 2.2, 4.0]


def program(
    worth: list[list[float]] | Floats, power: float, now: list[int] | None = None, **more: object
) -> Program:
    return Program.of(
        TWO_TYPES,
        np.array(worth),
        power=power,
        penalty=1.1,
        terms=ROUNDED,
        now=None if now is None else np.array(now),
        **more,  # type: ignore[arg-type]
    )


def answer(problem: Program) -> tuple[list[int], float]:
    found = solve(problem, Limits())
    return found.choice.tolist(), round(found.objective, 6)


def test_configurations_of_the_default_cluster() -> None:
    found = Configurations.of(["aws", "dgx-ext", "rtx"], [6, 2, 3], [4, 8, 8])
    shapes = list(
        zip(found.gpu_type.tolist(), found.nodes.tolist(), found.gpus.tolist(), strict=True)
    )
    assert shapes == [
        (0, 1, 1), (0, 1, 2), (0, 1, 4), (0, 2, 8), (0, 3, 12), (0, 4, 16), (0, 5, 20), (0, 6, 24),
        (1, 1, 1), (1, 1, 2), (1, 1, 4), (1, 1, 8), (1, 2, 16),
        (2, 1, 1), (2, 1, 2), (2, 1, 4), (2, 1, 8), (2, 2, 16), (2, 3, 24),
    ]  # fmt: skip
    assert found.capacity.tolist() == [24, 16, 24]


def test_no_configuration_exceeds_what_tables_know() -> None:
    found = Configurations.of(["aws"], [100], [4])
    assert found.nodes.max() == 16
    assert Configurations.of(["a"], [100], [8]).gpus.max() == 64


def test_a_node_of_an_odd_size_can_be_had_whole() -> None:
    assert Configurations.of(["a"], [1], [6]).gpus.tolist() == [1, 2, 4, 6]


@pytest.mark.parametrize(("power", "value"), [(1.0, 5.6), (-0.5, 1.22), (0.5, 3.32), (-1.0, 0.77)])
def test_two_jobs(power: float, value: float) -> None:
    assert answer(program([J1, J2], power)) == ([4, 1], value)


def test_two_jobs_second_best() -> None:
    problem = program([J1, J2], 1.0)
    assert problem.objective(np.array([1, 4])) == pytest.approx(5.1)
    problem = program([J1, J2], -0.5)
    assert problem.objective(np.array([3, 1])) == pytest.approx(1.32)
    assert problem.objective(np.array([1, 4])) == pytest.approx(1.35)
    assert problem.values.tolist()[0] == pytest.approx([1, 0.82, 0.82, 0.63, 0.53])
    assert problem.values.tolist()[1] == pytest.approx([0.91, 0.69, 1, 0.73, 0.53])


def test_three_jobs() -> None:
    assert answer(program([J1, J2, J3], 1.0)) == ([3, 1, 3], 6.8)
    problem = program([J1, J2, J3], -0.5)
    assert answer(problem) == ([3, 1, 3], 1.99)
    assert problem.objective(np.array([3, 3, 1])) == pytest.approx(2.11)


def charged() -> tuple[Floats, list[int]]:
    factor = restart_factor(
        np.array([600.0, 1200.0, 60.0]), np.array([1, 3, 0]), np.array([30.0, 120.0, 30.0])
    )
    assert factor[:2] == pytest.approx([0.904762, 0.636364], abs=1e-6)
    now = [4, 1, NONE]
    return charge_moves(np.array([J1, J2, J3]), np.array(now), factor), now


def test_restarts_count() -> None:
    worth, now = charged()
    problem = program(worth, -0.5, now)
    assert problem.values[0] == pytest.approx([1.05, 0.86, 0.86, 0.66, 0.53])
    assert problem.values[1] == pytest.approx([1.14, 0.69, 1.25, 0.91, 0.66])
    assert problem.values[2] == pytest.approx([1, 0.75, 0.91, 0.67, 0.5])
    assert answer(problem) == ([3, 1, 3], 2.02)
    assert problem.objective(np.array([2, 1, 3])) == pytest.approx(2.22)


def test_a_job_that_restarts_keeps_what_it_has() -> None:
    worth, now = charged()
    problem = program(worth, -0.5, now, pinned=np.array([True, False, False]))
    assert answer(problem) == ([4, 1, NONE], 2.32)


def test_a_young_job_moves_for_nothing() -> None:
    age, once = np.array([20.0]), np.array([0])
    assert restart_factor(age, once, np.array([30.0])) == [1.0]
    rigid = restart_factor(np.array([100.0]), once, np.array([30.0]), np.array([29.0]))
    assert rigid == [1.0]


def test_ties_go_to_what_jobs_have_and_then_to_fewer_gpus() -> None:
    same = [[2.0, 2.0, 2.0, 2.0, 2.0]]
    assert answer(program(same, -0.5, [3]))[0] == [3]
    assert answer(program(same, -0.5, [NONE]))[0] in ([0], [2])


def test_a_weight_decides_which_job_gets_the_larger_part() -> None:
    worth = np.array([J1, J1])
    heavy = program(worth, -0.5, weight=np.array([1.0, 5.0]))
    assert answer(heavy)[0] == [1, 4]


def test_a_reservation_comes_first() -> None:
    worth = np.array([J1, J2, [MISSING, MISSING, MISSING, MISSING, 1.0]])
    assert answer(program(worth, -0.5))[0] == [4, 1, NONE]
    reserved = program(worth, -0.5, must=np.array([False, False, True]))
    choice = answer(reserved)[0]
    assert choice[2] == 4
    assert set(choice[:2]) <= {NONE, 0, 1}  # what is left is the smaller type


@st.composite
def programs(draw: st.DrawFn) -> Program:
    kinds = draw(st.integers(1, 3))
    nodes = draw(st.lists(st.integers(1, 3), min_size=kinds, max_size=kinds))
    sizes = draw(st.lists(st.sampled_from([1, 2, 4, 6]), min_size=kinds, max_size=kinds))
    room = Configurations.of([f"t{k}" for k in range(kinds)], nodes, sizes)
    jobs = draw(st.integers(1, 4))
    cell = st.one_of(st.just(MISSING), st.floats(0.5, 64.0))
    worth = draw(
        st.lists(
            st.lists(cell, min_size=len(room), max_size=len(room)), min_size=jobs, max_size=jobs
        )
    )
    now = np.full(jobs, NONE)
    left = room.capacity.copy()
    for job in range(jobs):
        wish = draw(st.integers(NONE, len(room) - 1))
        if wish != NONE and room.gpus[wish] <= left[room.gpu_type[wish]]:
            now[job] = wish
            left[room.gpu_type[wish]] -= room.gpus[wish]
    return Program.of(
        room,
        np.array(worth),
        power=draw(st.sampled_from([-1.0, -0.5, 0.5, 1.0])),
        terms=draw(st.sampled_from([EXACT, ROUNDED])),
        now=now,
        pinned=np.array(draw(st.lists(st.booleans(), min_size=jobs, max_size=jobs))),
    )


def best_by_trying(problem: Program) -> float:
    """The least (or for p > 0 the largest) objective of all choices that may be made."""
    gains = problem.gains
    options = [
        [now]
        if pinned and now != NONE
        else [NONE, *(j for j in range(len(row)) if np.isfinite(row[j]))]
        for row, now, pinned in zip(
            gains, problem.now.tolist(), problem.pinned.tolist(), strict=True
        )
    ]
    values = [
        problem.objective(np.array(choice))
        for choice in product(*options)
        if (problem.uses(np.array(choice)) <= problem.configurations.capacity).all()
    ]
    return min(values) if problem.power < 0 else max(values)


def check_is_lawful(problem: Program, choice: Ints) -> None:
    assert (problem.uses(choice) <= problem.configurations.capacity).all()
    assert ((choice >= NONE) & (choice < len(problem.configurations))).all()
    some = np.flatnonzero(choice != NONE)
    assert np.isfinite(problem.gains[some, choice[some]]).all()
    kept = problem.pinned & (problem.now != NONE)
    assert (choice[kept] == problem.now[kept]).all()


@settings(max_examples=60, deadline=None)
@given(programs())
def test_any_program(problem: Program) -> None:
    """Never over capacity, one configuration a job, the optimum, not worse than staying."""
    found = solve(problem, Limits())
    check_is_lawful(problem, found.choice)
    slack = 1e-2 if problem.terms is ROUNDED else 1e-5  # what ties are broken by
    sign = 1.0 if problem.power < 0 else -1.0
    if (len(problem.configurations) + 1) ** len(problem.now) < 20_000:
        assert sign * (found.objective - best_by_trying(problem)) <= slack / 2
    stays = problem.now
    some = np.flatnonzero(stays != NONE)
    if np.isfinite(problem.gains[some, stays[some]]).all():
        assert sign * (found.objective - problem.objective(stays)) <= slack


@pytest.mark.parametrize("seed", range(3))
def test_large_programs_stay_lawful_and_near_the_bound(seed: int) -> None:
    rng = np.random.default_rng(seed)
    room = Configurations.of(["a", "b"], [24, 12], [4, 8])
    worth = np.sort(rng.uniform(1, 20, (60, len(room))), axis=1)
    now = rng.integers(0, 3, 60)
    problem = Program.of(room, worth, now=now)
    found = solve(problem, Limits())
    check_is_lawful(problem, found.choice)
    assert found.objective <= problem.objective(now)
    assert found.objective - found.bound <= 1.1e-4 * found.objective + 1e-4
    again = solve(problem, Limits())
    assert (again.choice == found.choice).all()
