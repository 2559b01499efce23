"""What an objective leaves open, settled as the published interior-point solver settles it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlsched.core.arrays import Floats
from dlsched.policies.scheduling.gavel import Pairs, Problem, Shares, Solver
from dlsched.policies.scheduling.gavel.solvers.linear_program import NO_DEADLINE
from simulate.published.gavel import programs
from simulate.published.gavel.interior_point import (
    SIDES,
    Scaling,
    Unsolved,
    solved,
)
from simulate.published.gavel.policy import PublishedSolver
from simulate.published.gavel.program_matrix import JobMatrix

pytestmark = pytest.mark.slow

OBJECTIVES = ("max-min", "max-min-packed", "ftf", "ftf-packed", "max-throughput", "cost")
OPTIMAL = 1e-5  # relative; the search ends with a gap of 1e-8 between its two bounds
KEPT = 1e-6  # by how much X may overstep its bounds, as the published one's


def shares(objective: str, problem: Problem, **options: Any) -> Shares:
    solver = PublishedSolver(objective, centred=True, **options)
    return solver.solve(problem, np.random.default_rng(0)).shares


def x_of(objective: str, problem: Problem) -> list[list[float]]:
    found: list[list[float]] = shares(objective, problem).x.tolist()
    return found


def near(x: Any, tolerance: float = 1e-6) -> Any:
    return [pytest.approx(row, abs=tolerance) for row in x]


def test_what_is_left_over_is_shared_as_the_published_solver_recorded() -> None:
    # B and C are at their level with 1/4; ECOS leaves them with 0.4227 each
    jobs = Problem.of([[1.0]] * 3, [2], weight=[4, 1, 1])
    assert x_of("max-min", jobs) == near([[1.0], [0.4227], [0.4227]], 5e-5)


def test_jobs_that_see_no_types_have_the_same_of_each() -> None:
    paper = Problem.of([[40.0, 10.0], [12.0, 4.0], [100.0, 50.0]], [1, 1])
    assert x_of("max-min-agnostic", paper) == near([[1 / 3, 1 / 3]] * 3)


def test_where_there_is_one_optimum_it_is_that() -> None:
    speed = [[40.0, 10.0], [12.0, 4.0], [100.0, 50.0]]
    jobs = Problem.of(speed, [1, 1], remaining=[400_000, 120_000, 1_000_000])
    optimum = [[5 / 11, 0], [5 / 11, 1 / 11], [1 / 11, 10 / 11]]
    assert x_of("max-min", jobs) == near(optimum)
    assert x_of("ftf", jobs) == near(optimum, 1e-4)
    assert x_of("max-throughput", jobs) == near([[0, 1], [0, 0], [1, 0]])


def test_the_makespan_is_up_to_a_twentieth_more_than_it_need_be() -> None:
    speed = [[40.0, 10.0], [12.0, 4.0], [100.0, 50.0]]
    jobs = Problem.of(speed, [1, 1], remaining=[400_000, 120_000, 1_000_000])
    assert 20_000 <= shares("makespan", jobs).objective <= 21_000


@pytest.mark.parametrize(
    ("speed", "gpus", "scale", "steps", "recorded"),
    [
        (
            [[40.0, 10.0], [12.0, 4.0], [100.0, 50.0]], [1, 1], [1, 1, 1],
            [400_000, 120_000, 1_000_000],
            [[0.4825448, 0.0273617], [0.461371, 0.080223], [0.0510343, 0.8781756]],
        ),
        (
            [[7.5, 10.4, 16.6], [1.0, 0.3, 0.2], [30.0, 20.0, 9.0]], [4, 3, 4], [2, 1, 4],
            [200_000, 30_000, 900_000],
            [
                [0.0451604, 0.3769273, 0.2431545], [0.8907344, 0.0582348, 0.0349924],
                [0.734673, 0.2486113, 0.0113445],
            ],
        ),
    ],
)  # fmt: skip
def test_a_question_without_an_objective_has_the_recorded_answer_of_ecos(
    speed: Any, gpus: list[int], scale: list[int], steps: list[int], recorded: Any
) -> None:
    jobs = Problem.of(speed, gpus, scale=scale, remaining=steps)
    assert x_of("makespan", jobs) == near(recorded, 1e-5)


def test_a_pair_takes_the_time_that_is_worth_it() -> None:
    pairs = Pairs(np.array([0]), np.array([1]), np.array([[[3.0, 2.0]]]))
    found = shares("max-min-packed", Problem.of([[4.0], [4.0]], [1], pairs=pairs))
    assert found.pair_x.tolist() == near([[0.8]])
    assert found.x.tolist() == near([[0.0], [0.2]])
    assert found.objective == pytest.approx(3 / 5, abs=1e-7)


def test_one_job_alone() -> None:
    one = Problem.of([[2.0, 1.0]], [1, 1], remaining=[100.0], elapsed=[10.0])
    for objective in ("max-min", "ftf", "max-throughput"):
        assert shares(objective, one).x[0, 0] >= 0.9


def test_deadlines_are_met_or_given_up_and_missed_ones_forgotten() -> None:
    speed = [[10.0], [1.0]]
    kept = Problem.of(speed, [1], remaining=[100.0, 50.0], time_left=[np.inf, 100.0])
    assert x_of("cost-slo", kept) == near([[0.5], [0.5]])
    cannot = Problem.of(speed, [1], remaining=[100.0, 50.0], time_left=[np.inf, 20.0])
    assert x_of("cost-slo", cannot) == near([[1.0], [0.0]])
    for left in (0.0, -5.0):
        missed = Problem.of(speed, [1], remaining=[100.0, 50.0], time_left=[100.0, left])
        assert x_of("cost-slo", missed) == near([[1.0], [0.0]])
        late = Solver("cost-slo").solve(missed, np.random.default_rng(0)).shares
        assert late.x.tolist() == near([[1.0], [0.0]])


def test_first_jobs_of_a_matching() -> None:
    # the published suite's case: two v100, one p100, three k80
    speed = [[2.0, 1.0, 0.5], [3.0, 2.0, 1.0], [4.0, 3.0, 2.0], [1.0, 1.0, 1.0]]
    jobs = Problem.of(speed, [2, 1, 3], remaining=[300, 500, 1000, 500])
    solver = PublishedSolver("allox", centred=True)
    found = solver.solve(jobs, np.random.default_rng(0)).shares.x
    assert found.tolist() == [[1, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]]
    speed = [*speed[1:], [4.0, 2.0, 1.0]]
    steps = [500, 1000, 500, 100]
    later = Problem.of(speed, [2, 1, 3], ids=[1, 2, 3, 4], remaining=steps)
    found = solver.solve(later, np.random.default_rng(0)).shares.x
    assert found.tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 0]]


def test_a_gang_has_its_part_of_the_time_and_does_not_keep_it() -> None:
    jobs = Problem.of([[1.0]], [4], scale=[2], remaining=[10])
    assert x_of("allox", jobs) == [[0.5]]
    solver = PublishedSolver("allox", centred=True)
    solver.solve(Problem.of([[1.0]], [1], scale=[2], remaining=[10]), np.random.default_rng(0))
    both = Problem.of([[1.0]] * 2, [1], scale=[2, 2], remaining=[10, 1])
    found = solver.solve(both, np.random.default_rng(0)).shares.x
    assert found.tolist() == [[0.0], [0.5]]  # the shorter one goes first now


def test_too_many_places_are_matched_in_groups() -> None:
    many = Problem.of(np.ones((300, 1)), [300], remaining=np.ones(300))
    assert shares("allox", many).x.sum() == 300


def test_too_many_pairs_are_left_to_another_solver(monkeypatch: Any) -> None:
    monkeypatch.setattr(programs, "MOST", 10)
    pairs = Pairs(np.array([0]), np.array([1]), np.array([[[3.0, 2.0]]]))
    found = shares("max-min-packed", Problem.of([[4.0], [4.0]], [1], pairs=pairs))
    assert found.objective == pytest.approx(3 / 5, abs=1e-7)


def test_a_search_that_gets_stuck_leaves_it_to_another_solver(monkeypatch: Any) -> None:
    def stuck(*given: Any, **more: Any) -> Floats:
        raise Unsolved("it has got stuck")

    monkeypatch.setattr(programs, "solved", stuck)
    jobs = Problem.of([[1.0]] * 2, [1], remaining=[10.0, 10.0])
    for objective in OBJECTIVES:
        assert shares(objective, jobs).x.sum() == pytest.approx(1.0, abs=1e-3)


# -- the matrix ------------------------------------------------------------------------------------


def matrix_of(seed: int, form: str, *, paired: bool) -> JobMatrix:
    rng = np.random.default_rng(seed)
    count, kinds = int(rng.integers(2, 5)), int(rng.integers(1, 4))
    pairs = None
    if paired:
        first, second = np.triu_indices(count, 1)
        pairs = Pairs(first, second, rng.uniform(0, 5, (len(first), kinds, 2)))
    scale = np.ones(count) if paired else rng.choice([1, 2, 4], count)
    speed = rng.uniform(0.5, 9, (count, kinds))
    problem = Problem.of(speed, rng.integers(1, 5, kinds), scale=scale, pairs=pairs)
    program = programs._Program(problem, NO_DEADLINE, paired=paired)
    ones, some = np.ones(count), rng.random(count) < 0.6
    match form:
        case "level":
            return program.matrix(-program.gets(ones), ones > 0, level=ones)
        case "paces":
            return program.matrix(-program.speed, some)
        case _:
            late = rng.uniform(0.1, 2, count)
            return program.matrix(program.speed, ones > 0, level=-ones, late=late, inverse=ones)


def dense(matrix: JobMatrix) -> Floats:
    return np.stack([matrix.times(column) for column in np.eye(matrix.width)], axis=1)


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("form", ["level", "paces", "cones"])
@pytest.mark.parametrize("seed", range(4))
def test_the_matrix_is_one(seed: int, form: str, paired: bool) -> None:
    matrix = matrix_of(seed, form, paired=paired)
    plain, rng = dense(matrix), np.random.default_rng(seed)
    assert plain.shape == (matrix.height, matrix.width)
    z = rng.normal(size=matrix.height)
    assert matrix.turned(z) == pytest.approx(plain.T @ z)
    assert matrix.sums() == pytest.approx(plain[len(matrix.gpu_type) :])
    rows, columns = matrix.largest()
    assert rows == pytest.approx(np.abs(plain).max(axis=1))
    assert columns == pytest.approx(np.abs(plain).max(axis=0))
    by_row, by_column = rng.uniform(0.5, 2, matrix.height), rng.uniform(0.5, 2, matrix.width)
    cones = len(matrix.late)
    if cones:  # the rows of a cone are scaled alike
        by_row[-SIDES * cones :] = np.repeat(rng.uniform(0.5, 2, cones), SIDES)
    scaled = matrix.scaled(by_row, by_column)
    assert dense(scaled) == pytest.approx(plain * by_row[:, None] * by_column)


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("form", ["level", "paces", "cones"])
@pytest.mark.parametrize("seed", range(4))
def test_systems_are_solved(seed: int, form: str, paired: bool) -> None:
    matrix, rng = matrix_of(seed, form, paired=paired), np.random.default_rng(seed)
    cones = len(matrix.late)
    blocks = np.tile(np.eye(SIDES), (cones, 1, 1))
    blocks[:, 0, 0], blocks[:, 0, 1], blocks[:, 1, 0], blocks[:, 1, 1] = 1.25, 0.75, 0.75, 1.25
    numbers = 10.0 ** rng.uniform(-2, 2, matrix.height - SIDES * cones)
    scaling = Scaling(numbers, blocks, np.zeros(0))
    a, b = rng.normal(size=matrix.width), rng.normal(size=matrix.height)
    v, z = matrix.solver(scaling)(a, b)
    assert matrix.turned(z) == pytest.approx(a, abs=1e-7)
    assert matrix.times(v) - scaling.times(scaling.times(z)) == pytest.approx(b, abs=1e-7)


def test_what_nothing_can_fulfil_is_said_to_be_so() -> None:
    matrix = matrix_of(1, "paces", paired=False)
    right = np.ones(matrix.height)
    right[: len(matrix.gpu_type)] = 0.0
    right[-int(matrix.required.sum()) :] = -1e6
    with pytest.raises(Unsolved, match="the program is infeasible"):
        solved(matrix, np.zeros(matrix.width), right)


# -- the optimum -----------------------------------------------------------------------------------


@st.composite
def problems(draw: Any, *, paired: bool) -> Problem:
    count, kinds = draw(st.integers(1, 6)), draw(st.integers(1, 3))
    speed = st.one_of(st.sampled_from([1.0, 2.0]), st.floats(0.1, 40.0).map(lambda v: round(v, 2)))

    def column(values: Any) -> list[Any]:
        return [draw(values) for _ in range(count)]

    throughput = np.array(column(st.tuples(*[speed] * kinds)))
    pairs = None
    if paired:
        first, second = np.triu_indices(count, 1)
        part = np.array([[draw(st.floats(0.0, 1.0)) for _ in range(2)] for _ in first])
        halves = np.stack([throughput[first], throughput[second]], axis=2)
        pairs = Pairs(first, second, halves * part.reshape(-1, 1, 2))
    return Problem.of(
        throughput,
        [draw(st.integers(1, 4)) for _ in range(kinds)],
        scale=[1.0] * count if paired else column(st.sampled_from([1, 1, 2, 4])),
        weight=column(st.sampled_from([1.0, 1.0, 5.0])),
        remaining=column(st.integers(100, 10**5)),
        elapsed=column(st.sampled_from([0.0, 10.0, 3000.0])),
        price=[draw(st.sampled_from([0.1, 0.5])) for _ in range(kinds)],
        pairs=pairs,
    )


@pytest.mark.parametrize("objective", OBJECTIVES)
@settings(max_examples=25)
@given(data=st.data())
def test_it_is_the_optimum_that_others_find(objective: str, data: Any) -> None:
    problem = data.draw(problems(paired=objective.endswith("-packed")))
    found = shares(objective, problem)
    best = Solver(objective).solve(problem, np.random.default_rng(0)).shares
    assert found.objective == pytest.approx(best.objective, rel=OPTIMAL)
    used, time = problem.scale @ found.x, found.x.sum(axis=1)
    if problem.pairs is not None:
        used = used + (problem.scale[problem.pairs.first, None] * found.pair_x).sum(axis=0)
        for half in (problem.pairs.first, problem.pairs.second):
            np.add.at(time, half, found.pair_x.sum(axis=1))
    assert (used <= problem.workers + KEPT).all()
    assert (time <= 1.0 + KEPT).all()
