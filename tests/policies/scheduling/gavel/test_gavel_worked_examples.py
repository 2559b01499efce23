"""Gavel's objectives on instances small enough to be solved by hand.

The objectives are those of Gavel (OSDI 2020), section 4.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dlsched.core.errors import BadInput
from dlsched.policies.scheduling.gavel import Entity, Pairs, Problem, Shares, Solver
from dlsched.policies.scheduling.gavel.objectives.formulas import worst_rho
from dlsched.policies.scheduling.gavel.problem import proportional_rate, rates

EXACT = 1e-7  # of a share; what the solver takes for equal
V100, K80 = 0, 1
PAPER = [[40.0, 10.0], [12.0, 4.0], [100.0, 50.0]]


def problem(throughput: Any, workers: Any, **columns: Any) -> Problem:
    count = len(workers)
    return Problem.of(throughput, workers, types=("v100", "k80", "p100")[:count], **columns)


def x_of(objective: str, given: Problem, **options: Any) -> Any:
    return shares(objective, given, **options).x.tolist()


def shares(objective: str, given: Problem, **options: Any) -> Shares:
    return Solver(objective, **options).solve(given, np.random.default_rng(0)).shares


def near(x: Any, tolerance: float = EXACT) -> Any:
    return [pytest.approx(row, abs=tolerance) for row in x]


# -- the paper's example: A, B, C on one V100 and one K80 -----------------------------------------


def test_the_papers_example_under_max_min_fairness() -> None:
    found = shares("max-min", problem(PAPER, [1, 1]))
    # 12/11 of what slices of N_j/m give, which fill 2/3 of a job's time; P fills all of it
    assert found.objective == pytest.approx(12 / 11 * 2 / 3, rel=1e-8)
    assert found.x.tolist() == near([[5 / 11, 0], [5 / 11, 1 / 11], [1 / 11, 10 / 11]])


def test_the_papers_example_without_regard_to_types() -> None:
    found = shares("max-min-agnostic", problem(PAPER, [1, 1]))
    assert found.objective == pytest.approx(2 / 3, rel=1e-8)
    assert found.x.tolist() == near([[1 / 3, 1 / 3]] * 3)


def test_the_papers_example_for_throughput_and_cost() -> None:
    given = problem(PAPER, [1, 1], price=[0.74, 0.135])
    found = shares("max-throughput", given)
    assert found.objective == pytest.approx(110, rel=1e-8)
    assert found.x.tolist() == near([[0, 1], [0, 0], [1, 0]])
    assert x_of("cost", given) == near([[1, 0], [0, 0], [0, 1]])


def test_the_papers_example_for_makespan() -> None:
    found = shares("makespan", problem(PAPER, [1, 1], remaining=[400_000, 120_000, 1_000_000]))
    assert found.objective == pytest.approx(20_000, rel=1e-8)


def test_the_papers_example_for_finish_times() -> None:
    steps = [400_000, 120_000, 1_000_000]
    found = shares("ftf", problem(PAPER, [1, 1], remaining=steps))
    assert found.objective == pytest.approx(11 / 12, rel=1e-8)
    assert found.x.tolist() == near([[5 / 11, 0], [5 / 11, 1 / 11], [1 / 11, 10 / 11]])
    waited = problem(PAPER, [1, 1], remaining=steps, elapsed=[5000, 0, 0])
    expected = [[0.5373, 0], [0.4463, 0.0164], [0.0164, 0.9836]]
    assert x_of("ftf", waited) == near(expected, 5e-5)


def test_the_papers_example_isolated_and_first_come() -> None:
    given = problem(PAPER, [1, 1])
    assert x_of("isolated", given) == near([[1 / 3, 1 / 3]] * 3)
    assert x_of("fifo", given) == [[1, 0], [0, 1], [0, 0]]


def test_a_gang_of_two_gets_half_the_time() -> None:
    given = problem(PAPER, [2, 1], scale=[2, 1, 1])
    assert x_of("isolated", given) == near([[1 / 3, 1 / 6], [2 / 3, 1 / 3], [2 / 3, 1 / 3]])
    level = shares("max-min", given).objective
    share = np.array([[1 / 3, 1 / 6], [2 / 3, 1 / 3], [2 / 3, 1 / 3]])
    rate = (given.throughput * share).sum(axis=1)
    assert level >= (given.scale * rate / proportional_rate(given)).min() - EXACT


# -- water filling --------------------------------------------------------------------------------


@pytest.mark.parametrize("objective", ["max-min", "water-filling"])
def test_a_full_job_leaves_the_rest_to_the_others(objective: str) -> None:
    found = shares(objective, problem([[1.0]] * 3, [2], weight=[4, 1, 1]))
    assert found.objective == pytest.approx(1 / 4, rel=1e-8)
    assert found.x.tolist() == near([[1], [1 / 2], [1 / 2]])


def test_three_jobs_on_two_types() -> None:
    found = shares("max-min", problem([[10.0, 1], [2, 1], [1, 1]], [1, 1]))
    assert found.objective == pytest.approx(5 / 6, rel=1e-8)
    assert found.x.tolist() == near([[11 / 24, 0], [13 / 24, 1 / 6], [0, 5 / 6]])


def entities(*policies: tuple[str, float]) -> tuple[Entity, ...]:
    return tuple(
        Entity(jobs=(2 * n, 2 * n + 1), weight=weight, policy=policy)
        for n, (policy, weight) in enumerate(policies)
    )


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        (("fifo", 2.0), [1 / 3, 1 / 3, 1, 1 / 3]),
        (("fairness", 3.0), [1 / 4, 1 / 4, 3 / 4, 3 / 4]),
    ],
)
def test_entities_share_by_weight_and_inside_by_their_policy(second: Any, expected: Any) -> None:
    given = problem([[1.0]] * 4, [2], entities=entities(("fairness", 1.0), second))
    assert x_of("hierarchical", given) == near([[value] for value in expected])


def test_a_job_of_no_weight_is_entitled_to_nothing() -> None:
    given = problem([[1.0]] * 3, [1], weight=[1, 0, 1])
    found = shares("max-min", given)
    assert found.x.tolist() == near([[1 / 2], [0], [1 / 2]])
    assert found.objective == pytest.approx(1 / 2)


# -- finish-time fairness -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gpus", "elapsed", "rho", "expected"),
    [
        (2, 0, 1.0, [1, 1]),
        (1, 0, 1.0, [1 / 2, 1 / 2]),
        (1, 100, (3 + 5**0.5) / 4, [0.6180340, 0.3819660]),
    ],
)
def test_two_jobs_on_one_type(gpus: int, elapsed: float, rho: float, expected: Any) -> None:
    given = problem([[1.0]] * 2, [gpus], remaining=[100, 100], elapsed=[elapsed, 0])
    found = shares("ftf", given)
    assert found.objective == pytest.approx(rho, rel=1e-8)
    assert found.x.tolist() == near([[value] for value in expected])


def test_a_job_that_waited_too_long_does_not_hold_back_the_others() -> None:
    given = problem([[1.0]] * 3, [2], remaining=[100, 100, 100], elapsed=[10_000, 0, 0])
    found = shares("ftf", given)
    assert found.x.tolist() == near([[1], [1 / 2], [1 / 2]])
    assert found.objective == pytest.approx(worst_rho(given, np.array([1.0, 0.1, 0.1])))


def test_isolated_time_adds_up_between_solves() -> None:
    solver, rng = Solver("ftf"), np.random.default_rng(0)
    types, throughput = ("v100", "p100", "k80"), [[2.0, 1, 0.5], [3, 2, 1]]
    first = Problem.of(throughput, [1, 2, 3], types=types, remaining=[300, 500])
    second = Problem.of(throughput, [1, 2, 3], types=types, remaining=[200, 300])
    solver.solve(first, rng)
    solved = solver.solve(second, rng).problem
    assert solved.isolated_s.tolist() == pytest.approx([109.0909, 120.0], abs=1e-4)
    solver.solve(problem([], [1, 2, 3]), rng)  # no job is left: forgotten
    assert solver.solve(first, rng).problem.isolated_s.tolist() == [0, 0]


# -- space sharing --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("speeds", "alone", "together", "level"),
    [((3.0, 3.0), [0, 0], 1, 3 / 4), ((3.0, 2.0), [0, 1 / 5], 4 / 5, 3 / 5)],
)
def test_two_jobs_share_one_gpu(speeds: Any, alone: Any, together: float, level: float) -> None:
    pairs = Pairs(np.array([0]), np.array([1]), np.array([[speeds]]))
    found = shares("max-min-packed", problem([[4.0], [4.0]], [1], pairs=pairs))
    assert found.objective == pytest.approx(level, rel=1e-7)
    assert found.x.ravel().tolist() == pytest.approx(alone, abs=EXACT)
    assert found.pair_x.ravel().tolist() == pytest.approx([together], abs=EXACT)


def test_fifo_packs_the_next_job_onto_the_one_it_suits_best() -> None:
    pairs = Pairs(
        np.array([0, 0, 1]), np.array([1, 2, 2]), np.array([[[9, 9]], [[6, 9]], [[8.5, 8.0]]])
    )
    found = shares("fifo-packed", problem([[10.0]] * 3, [2], pairs=pairs))
    assert found.x.tolist() == [[1], [0], [0]]
    assert found.pair_x.tolist() == [[0], [0], [1]]
    unwilling = replace(pairs, throughput=np.array([[[9, 9]], [[6, 9]], [[7.5, 7.5]]]))
    assert shares("fifo-packed", problem([[10.0]] * 3, [2], pairs=unwilling)).x.sum() == 2


# -- whole GPUs -----------------------------------------------------------------------------------


def test_fifo_lets_no_job_overtake() -> None:
    given = problem([[1.0, 2], [1, 2], [1, 2]], [1, 1], scale=[1, 2, 1])
    assert x_of("fifo", given) == [[0, 1], [0, 0], [0, 0]]


def test_fifo_passes_a_job_for_which_only_useless_types_are_left() -> None:
    given = problem([[1.0, 0], [1, 0], [1, 2]], [1, 1])
    assert x_of("fifo", given) == [[1, 0], [0, 0], [0, 1]]


def test_the_shortest_job_is_first() -> None:
    given = problem([[1.0], [2.0], [1.0]], [1], remaining=[100, 100, 60])
    assert x_of("sjf", given) == [[0], [1], [0]]


def test_fifo_without_regard_to_types_keeps_running_jobs_and_overcommits_nothing() -> None:
    solver, rng = Solver("fifo-agnostic"), np.random.default_rng(5)
    first = solver.solve(problem([[1.0, 1]] * 4, [2, 1]), rng).shares.x
    assert first.sum(axis=0).tolist() == [2, 1]
    assert first[3].sum() == 0
    assert solver.solve(problem([[1.0, 1]] * 4, [2, 1]), rng).shares.x.tolist() == first.tolist()


def test_allox_gives_places_by_completion_time() -> None:
    given = problem([[1, 0.5], [1, 0.25], [1, 0.5], [1, 0.25]], [1, 1], remaining=[100, 60, 30, 10])
    assert x_of("allox", given) == [[0, 0], [0, 0], [0, 1], [1, 0]]


def test_allox_keeps_running_jobs_and_fills_what_becomes_free() -> None:
    speeds = {0: (2, 1, 0.5), 1: (3, 2, 1), 2: (4, 3, 2), 3: (1, 1, 1), 4: (4, 2, 1)}
    steps = {0: 300, 1: 500, 2: 1000, 3: 500, 4: 100}
    solver, rng = Solver("allox"), np.random.default_rng(0)

    def where(jobs: list[int]) -> dict[int, str]:
        types = ("v100", "p100", "k80")
        given = Problem.of(
            [speeds[job] for job in jobs],
            [2, 1, 3],
            ids=jobs,
            types=types,
            remaining=[steps[job] for job in jobs],
        )
        x = solver.solve(given, rng).shares.x
        return {jobs[row]: types[kind] for row, kind in np.argwhere(x > 0).tolist()}

    assert where([0, 1, 2, 3]) == {0: "v100", 1: "v100", 2: "p100", 3: "k80"}
    assert where([1, 2, 3, 4]) == {4: "v100", 1: "v100", 2: "p100", 3: "k80"}


def test_allox_starts_gangs_only_where_they_fit() -> None:
    given = problem([[4.0, 1], [4, 1], [1, 1]], [4, 2], scale=[4, 4, 2], remaining=[80, 400, 100])
    assert x_of("allox", given) == [[1, 0], [0, 0], [0, 1]]


def test_gandiva_shares_alone_with_room_and_in_lasting_pairs_without() -> None:
    first, second = np.triu_indices(4, 1)
    pairs = Pairs(first, second, np.full((6, 1, 2), 3.0))
    roomy = shares("gandiva", problem([[4.0]] * 4, [4], pairs=pairs))
    assert roomy.x.tolist() == [[1]] * 4
    solver = Solver("gandiva")
    tight = solver.solve(problem([[4.0]] * 4, [1], pairs=pairs), np.random.default_rng(1)).shares
    assert tight.x.sum() == 0
    assert sorted(tight.pair_x.ravel().tolist()) == [0, 0, 0, 0, 1 / 2, 1 / 2]
    again = solver.solve(problem([[4.0]] * 4, [1], pairs=pairs), np.random.default_rng(2)).shares
    assert again.pair_x.tolist() == tight.pair_x.tolist()
    bad = replace(pairs, throughput=np.full((6, 1, 2), 1.0))
    split = solver.solve(problem([[4.0]] * 4, [1], pairs=bad), np.random.default_rng(3)).shares
    assert split.pair_x.sum() == pytest.approx(1.0)  # drawn anew, since those pairs did badly


# -- memory, limits, bad input --------------------------------------------------------------------


def test_ties_are_broken_towards_where_one_was() -> None:
    solver, rng = Solver("max-throughput"), np.random.default_rng(0)
    alike = problem([[1.0, 1.0]] * 2, [1, 1])
    solver.load_state_dict({**solver.state_dict(), "last": [[0, [0, 1]], [1, [1, 0]]]})
    assert solver.solve(alike, rng).shares.x.tolist() == near([[0, 1], [1, 0]])
    assert x_of("max-throughput", problem([[1.0]] * 2, [1])) == near([[1], [0]])  # the older one


def test_the_last_shares_stay_when_a_solve_takes_too_long() -> None:
    now = [0.0]

    def clock() -> float:
        now[0] += 1.0  # every look costs a second
        return now[0]

    solver, rng = Solver("max-min", limit_s=1000.0, clock=clock), np.random.default_rng(0)
    before = solver.solve(problem(PAPER, [1, 1]), rng)
    assert not before.late
    solver._limit_s = 1.5
    more = problem([*PAPER, [1.0, 1.0]], [1, 1])
    after = solver.solve(more, rng)
    assert after.late
    assert after.shares.x.tolist() == [*before.shares.x.tolist(), [0, 0]]


def test_memory_survives_a_restart() -> None:
    pairs = Pairs(np.array([0]), np.array([1]), np.full((1, 1, 2), 3.0))
    given = problem([[4.0]] * 2, [1], pairs=pairs, remaining=[10, 20])
    for objective in ("ftf-packed", "gandiva", "max-min"):
        one, other = Solver(objective), Solver(objective)
        one.solve(given, np.random.default_rng(0))
        other.load_state_dict(one.state_dict())
        later = replace(given, remaining=np.array([5.0, 15.0]))
        answers = [solver.solve(later, np.random.default_rng(1)) for solver in (one, other)]
        assert answers[0].shares.x.tolist() == answers[1].shares.x.tolist()
        assert answers[0].shares.pair_x.tolist() == answers[1].shares.pair_x.tolist()
        assert one.state_dict() == other.state_dict()


def test_no_jobs_are_no_problem() -> None:
    assert x_of("max-min", problem([], [1, 1])) == []


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"throughput": [[0.0, 0.0]]}, "job 7 can run nowhere"),
        ({"throughput": [[0.0, 1.0]], "workers": [1, 0]}, "job 7 can run nowhere"),
        ({"throughput": [[np.nan, 1.0]]}, "job 7 has a throughput on v100"),
        ({"throughput": [[1.0, -1.0]]}, "job 7 has a throughput on k80"),
        ({"weight": [-1.0]}, "job 7 has a weight"),
        ({"weight": [np.nan]}, "job 7 has a weight"),
        ({"scale": [0]}, "job 7 needs a scale factor"),
        ({"entities": [Entity(jobs=(3,))]}, "job 7 must belong to exactly one entity"),
        ({"price": [0.0, 1.0]}, "prices must be more than 0"),
        ({"workers": [1, 1, 1]}, "they must be equal"),
    ],
)
def test_wrong_input_is_refused_in_one_line(columns: dict[str, Any], message: str) -> None:
    columns = {"throughput": [[1.0, 1.0]], "workers": [1, 1], "ids": [7], **columns}
    with pytest.raises(BadInput, match=message):
        Problem.of(types=("v100", "k80"), **columns)


def test_an_objective_that_needs_steps_refuses_a_job_without() -> None:
    with pytest.raises(BadInput, match="job 0 has no known number of remaining steps"):
        shares("makespan", problem([[1.0]], [1]))


def test_an_agnostic_objective_needs_its_reference_type() -> None:
    given = Problem.of([[1.0]], [1], types=("h100",), remaining=[5])
    with pytest.raises(BadInput, match="uses the speeds on v100 only, but the cluster has h100"):
        shares("makespan-agnostic", given)
    assert shares("makespan-agnostic", given, reference="h100").objective == pytest.approx(5)


def test_an_unknown_objective_is_refused() -> None:
    with pytest.raises(BadInput, match="objective must be one of isolated, isolated-plus, max-min"):
        Solver("fairness")


def test_rates_count_time_alone_and_in_pairs() -> None:
    pairs = Pairs(np.array([0]), np.array([1]), np.array([[[3.0, 2.0]]]))
    given = problem([[4.0], [4.0]], [1], pairs=pairs)
    found = rates(given, Shares(np.array([[0.25], [0.0]]), np.array([[0.5]])))
    assert found.tolist() == [2.5, 1.0]
