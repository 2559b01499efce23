"""Pollux: what a state is worth, which may be, and a search that finds the best."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from benchmarks.genetic_pollux import evolve, utility
from benchmarks.pollux_search import random_problem
from dlsched.policies.scheduling.pollux.blocks import find
from dlsched.policies.scheduling.pollux.choices import choices_of
from dlsched.policies.scheduling.pollux.enumeration import better_ways
from dlsched.policies.scheduling.pollux.problem import (
    fair_replicas,
    fitness,
    is_feasible,
    repaired,
    restart_factor,
)
from dlsched.policies.scheduling.pollux.search import search
from dlsched.policies.scheduling.pollux.state import State
from tests.policies.scheduling.pollux_instances import every_state, worked

# rows of A, B and C; fitness; utility: the worked instance of the published scheduler
WORKED = (
    ([2, 0], [2, 0], [0, 0], 0.00296671, 0.354653),
    ([2, 0], [2, 0], [0, 1], 0.0973074, 0.218993),
    ([3, 0], [0, 4], [1, 0], 0.110296, 0.326808),
    ([4, 0], [0, 3], [0, 1], 0.110117, 0.321667),
    ([2, 0], [2, 3], [0, 1], 0.105861, 0.289281),
    ([3, 0], [1, 0], [0, 1], 0.0845977, 0.210904),
    ([4, 3], [0, 0], [0, 1], 0.00293336, 0.218878),
)
EXPONENTS = (None, 1.0, 0.0, -1.0, -10.0)

shapes = st.tuples(st.integers(1, 9), st.integers(1, 6), st.integers(0, 10_000))


SIZES = [(3, 3, 12), (5, 3, 12), (5, 16, 12), (40, 16, 6)]


def test_speedups_and_restart_factors_of_the_worked_instance() -> None:
    problem = worked()
    one, several = problem.speedup[:, 0], problem.speedup[:, 1]
    assert one[0, [2, 3, 4]] == pytest.approx([0.726993, 1.0, 1.240006], abs=5e-7)
    assert several[0, 7] == pytest.approx(1.417688, abs=5e-7)
    assert one[1, [1, 2, 3, 4]] == pytest.approx([0.353899, 0.691619, 1.0, 1.281133], abs=5e-7)
    assert several[1, 5] == pytest.approx(1.253922, abs=5e-7)
    assert one[2, 1] == pytest.approx(1 / 3)
    assert problem.factor == pytest.approx([0.904762, 0.975610, 0.6], abs=5e-7)
    assert fair_replicas(8, 3) == 3


@pytest.mark.parametrize(("a", "b", "c", "worth", "used"), WORKED)
def test_fitness_and_utility_of_the_worked_states(
    a: list[int], b: list[int], c: list[int], worth: float, used: float
) -> None:
    state = np.array([a, b, c])
    assert float(fitness(worked(), state)) == pytest.approx(worth, rel=5e-6)
    assert float(utility(worked(), state)) == pytest.approx(used, rel=5e-6)


def test_the_worked_instance_has_453_states_and_two_best_ones() -> None:
    problem = worked()
    states = every_state(problem)
    worth = fitness(problem, states)
    assert len(states) == 453
    assert worth.max() == pytest.approx(0.11029607, abs=5e-9)
    best = states[worth > worth.max() - 1e-12].tolist()
    assert best == [[[0, 3], [4, 0], [0, 1]], [[3, 0], [0, 4], [1, 0]]]


@pytest.mark.parametrize(("age", "best"), [(45.0, 0.11029607), (0.0, 0.00297991)])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_search_finds_the_best_of_the_worked_instance(
    age: float, best: float, seed: int
) -> None:
    found = search(worked(age), np.random.default_rng(seed))
    assert found.fitness == pytest.approx(best, abs=5e-9)
    assert float(fitness(worked(age), found.rows)) == pytest.approx(found.fitness)


@pytest.mark.parametrize("exponent", EXPONENTS)
@pytest.mark.parametrize("apart", [True, False])
def test_the_search_finds_the_best_of_small_instances(exponent: float | None, apart: bool) -> None:
    for seed in range(8):
        rng = np.random.default_rng(seed)
        problem = random_problem(3, 2, rng, per_node=3, exponent=exponent, apart=apart)
        best = float(fitness(problem, every_state(problem)).max())
        assert search(problem, rng).fitness == pytest.approx(best, rel=1e-9)


@pytest.mark.parametrize("exponent", EXPONENTS)
def test_where_ways_are_few_all_are_looked_at(exponent: float | None) -> None:
    """Started from what is now, without any search: the best, unless a layout was refused."""
    proven = 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        problem = random_problem(3, 2, rng, per_node=3, exponent=exponent)
        choices = choices_of(problem)
        price, _ = choices.clearing_price(int(problem.capacity.sum()))
        now = State(problem, choices, problem.base)
        found = better_ways(problem, choices, price, now, layouts=1000, eps=1e-12)
        best = float(fitness(problem, every_state(problem)).max())
        reached = float(fitness(problem, found.best.rows))
        assert is_feasible(problem, found.best.rows)
        assert float(fitness(problem, problem.base)) <= reached <= best * (1 + 1e-9)
        if found.proven:
            assert reached == pytest.approx(best, rel=1e-9)
            proven += 1
    assert proven >= 3


def test_where_ways_are_many_nothing_is_claimed() -> None:
    problem = random_problem(30, 8, np.random.default_rng(1))
    choices = choices_of(problem)
    now = State(problem, choices, problem.base)
    found = better_ways(problem, choices, 0.0, now, layouts=10, eps=1e-12)
    assert found.best is now
    assert not found.proven


@pytest.mark.parametrize(("jobs", "nodes", "seeds"), [(3, 2, 2), (8, 4, 2), (13, 16, 1)])
def test_the_search_is_at_least_as_good_as_a_genetic_one(jobs: int, nodes: int, seeds: int) -> None:
    for seed in range(seeds):
        problem = random_problem(jobs, nodes, np.random.default_rng(seed))
        published = evolve(problem, np.random.default_rng(seed), generations=40)
        assert is_feasible(problem, published.population).all()
        assert search(problem, np.random.default_rng(seed)).fitness >= published.fitness * (
            1 - 1e-9
        )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("jobs", "nodes", "seeds"),
    [
        (8, 4, 6),
        (20, 16, 3),
        pytest.param(20, 16, 8, marks=pytest.mark.exhaustive),
        *(pytest.param(*size, marks=pytest.mark.exhaustive) for size in SIZES),
    ],
)
def test_the_search_is_at_least_as_good_as_100_generations(
    jobs: int, nodes: int, seeds: int
) -> None:
    """No instance is behind, as it comes."""
    ratios = []
    for seed in range(seeds):
        problem = random_problem(jobs, nodes, np.random.default_rng(1000 + seed))
        before = evolve(problem, np.random.default_rng(seed), generations=20)
        published = evolve(problem, np.random.default_rng(seed), start=before.population)
        ours = search(problem, np.random.default_rng(seed))
        ratios.append(ours.fitness / published.fitness)
    assert min(ratios) >= 1 - 1e-9


def test_restarts_leave_less_of_young_jobs() -> None:
    factor = restart_factor(np.array([0.0, 30.0, 60.0, 6000.0]), np.array([0, 0, 9, 0]), 30.0)
    assert factor == pytest.approx([0.0, 0.5, 0.0, 6000 / 6030])
    assert restart_factor(np.zeros(1), np.zeros(1, np.int64), 0.0) == 1.0


@example(shape=(8, 4, 6155), exponent=None, apart=True)  # a pinned job after one on its node
@given(shape=shapes, exponent=st.sampled_from(EXPONENTS), apart=st.booleans())
@settings(max_examples=60)
def test_whatever_was_repaired_may_be(
    shape: tuple[int, int, int], exponent: float | None, apart: bool
) -> None:
    jobs, nodes, seed = shape
    rng = np.random.default_rng(seed)
    problem = random_problem(jobs, nodes, rng, exponent=exponent, apart=apart)
    problem = replace(
        problem,
        pinned=(rng.random(jobs) < 0.3) & problem.base.any(axis=1),
        least=rng.integers(1, 3, jobs),
        allowed=rng.random((jobs, nodes)) < 0.8,
        widest=int(rng.integers(1, 4)),
        gpu_type=rng.integers(0, 2, nodes) if rng.random() < 0.5 else None,
    )
    wild = rng.integers(0, 5, (7, jobs, nodes))
    tame = repaired(problem, wild, rng)
    problem.pinned[:] = False  # what is pinned may break every other rule
    problem.allowed[problem.base > 0] = True
    within = replace(
        problem,
        gpu_type=None,
        least=np.minimum(problem.least, 1),
        most=np.maximum(problem.most, problem.base.sum(axis=1)),
        widest=max(problem.widest, int((problem.base > 0).sum(axis=1).max())),
    )
    assert is_feasible(within, tame).all()
    free = random_problem(jobs, nodes, np.random.default_rng(seed), apart=apart)
    free = replace(free, gpu_type=problem.gpu_type)
    free.base[:] = 0
    once = repaired(free, wild, rng)
    assert is_feasible(free, once).all()
    assert (repaired(free, once, rng) == once).all()


@given(shape=shapes, exponent=st.sampled_from(EXPONENTS), apart=st.booleans())
@settings(max_examples=40)
def test_what_is_found_may_be_and_is_never_worse_than_staying(
    shape: tuple[int, int, int], exponent: float | None, apart: bool
) -> None:
    jobs, nodes, seed = shape
    rng = np.random.default_rng(seed)
    problem = random_problem(jobs, nodes, rng, exponent=exponent, apart=apart)
    problem = replace(problem, pinned=(rng.random(jobs) < 0.2) & problem.base.any(axis=1))
    if rng.random() < 0.3:
        problem = replace(problem, gpu_type=rng.integers(0, 2, nodes))
        problem.base[:] = repaired(problem, problem.base, rng)
    found = search(problem, np.random.default_rng(seed), effort=10)
    again = search(problem, np.random.default_rng(seed), effort=10)
    assert (found.rows == again.rows).all()
    assert is_feasible(problem, found.rows)
    assert found.fitness == pytest.approx(float(fitness(problem, found.rows)))
    assert found.fitness >= float(fitness(problem, problem.base)) * (1 - 1e-12)
    assert found.fitness <= found.bound * (1 + 1e-9)


def test_a_present_state_that_may_not_be_is_left() -> None:
    problem = random_problem(6, 4, np.random.default_rng(5), apart=False)
    problem.base[:] = 0
    problem.base[0, :2] = 1
    problem.base[1, :2] = 1
    problem = replace(problem, apart=True, most=np.full(6, 4))
    found = search(problem, np.random.default_rng(0))
    assert not is_feasible(problem, problem.base)
    assert is_feasible(problem, found.rows)


def test_large_clusters_are_searched_in_blocks() -> None:
    problem = random_problem(120, 140, np.random.default_rng(1))
    found = find(problem, np.random.default_rng(1), effort=5)
    again = find(problem, np.random.default_rng(1), effort=5)
    assert (found.rows == again.rows).all()
    assert is_feasible(problem, found.rows)
    assert float(fitness(problem, found.rows)) == pytest.approx(found.fitness)
    assert 0.94 * found.bound <= found.fitness <= found.bound * (1 + 1e-9)


def test_blocks_keep_to_pools_and_pins() -> None:
    rng = np.random.default_rng(2)
    problem = random_problem(60, 120, rng)
    allowed = np.zeros((60, 120), np.bool_)
    allowed[:30, :70] = allowed[30:, 70:] = True
    problem = replace(problem, allowed=allowed | (problem.base > 0), pinned=rng.random(60) < 0.3)
    found = find(problem, rng, effort=5)
    assert is_feasible(problem, found.rows)
    assert found.fitness >= float(fitness(problem, problem.base))
