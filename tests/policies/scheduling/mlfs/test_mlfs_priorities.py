"""MLFS' priorities: the sheet's example, the guards, and properties on random graphs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.policies.scheduling.mlfs.priorities import (
    LEAST_MIN,
    Tasks,
    Weights,
    dependents_first,
    learning_terms,
    part_learnt,
    priorities,
    time_terms,
    with_dependents,
)


def tasks(**given: list[float]) -> Tasks:
    count = len(next(iter(given.values())))
    usual = {
        "urgency": 1.0, "iteration": 1.0, "learnt": 1.0, "size": 1.0, "due_min": np.inf,
        "left_min": np.inf, "waited_min": 0.0,
    }  # fmt: skip
    columns = {name: np.full(count, value) for name, value in usual.items()}
    return Tasks(**(columns | {name: np.array(values) for name, values in given.items()}))


def test_the_worked_example_of_four_tasks() -> None:
    learnt = part_learnt([0.8, 0.4, 0.2])
    some = tasks(
        urgency=[3.0] * 4, iteration=[4.0] * 4, learnt=[learnt] * 4, size=[0.5, 0.3, 0.1, 0.1],
        due_min=[100.0, 110.0, 105.0, 120.0], left_min=[10.0, 8.0, 4.0, 6.0],
        waited_min=[2.0, 0.0, 1.0, 0.0],
    )  # fmt: skip
    found = priorities(some, [[1, 2], [3], [3], []], Weights())
    assert found.learning[3] == pytest.approx(0.0107142857, abs=1e-9)
    assert found.learning[1] == pytest.approx(0.0321428571 + 0.8 * 0.0107142857, abs=1e-9)
    assert found.time[3] == pytest.approx(0.3 / 120 + 0.3 / 6, abs=1e-12)
    assert found.total[3] == pytest.approx(0.0399642857, abs=1e-9)


def test_what_the_paper_leaves_open_has_a_guard() -> None:
    assert part_learnt([]) == 1.0  # the first iteration
    assert part_learnt([0.5, -0.7]) == 0.0  # the loss has grown in all
    assert part_learnt([0.5, -0.2]) == pytest.approx(-2 / 3)  # in the last iteration only
    late = tasks(due_min=[-5.0, 0.0], left_min=[0.0, np.inf])
    deadline, left, _ = time_terms(late, Weights())
    assert deadline.tolist() == [0.3 / LEAST_MIN] * 2
    assert left.tolist() == [0.3 / LEAST_MIN, 0.0]
    free = time_terms(tasks(due_min=[np.inf], left_min=[np.inf]), Weights())
    assert sum(float(term[0]) for term in free) == 0.0


def test_tasks_that_wait_for_each_other_are_refused() -> None:
    with pytest.raises(ValueError, match="circle"):
        dependents_first([[1], [2], [1]])


@st.composite
def graphs(draw: st.DrawFn) -> list[list[int]]:
    """Direct dependents, in a random numbering."""
    count = draw(st.integers(1, 9))
    names = draw(st.permutations(range(count)))
    children: list[list[int]] = [[] for _ in range(count)]
    for early in range(count):
        for late in range(early + 1, count):
            if draw(st.booleans()):
                children[names[early]].append(names[late])
    return children


@given(graphs(), st.floats(0, 2))
def test_a_task_has_gamma_to_the_length_of_every_path_below_it(
    children: list[list[int]], gamma: float
) -> None:
    own = np.random.default_rng(len(children)).random(len(children))

    def by_paths(task: int, weight: float) -> float:
        below = sum(by_paths(child, weight * gamma) for child in children[task])
        return weight * float(own[task]) + below

    found = with_dependents(own, children, dependents_first(children), gamma)
    assert found.tolist() == pytest.approx([by_paths(task, 1.0) for task in range(len(own))])


positive = st.floats(1e-2, 1e4)


@given(positive, positive, positive, st.floats(1.01, 100))
def test_priority_grows_with_urgency_size_and_waiting_and_falls_with_time(
    due: float, left: float, waited: float, factor: float
) -> None:
    def total(**given: float) -> float:
        usual = {"due_min": due, "left_min": left, "waited_min": waited, "iteration": 7.0}
        some = tasks(**{name: [value] for name, value in (usual | given).items()})
        return float(priorities(some, [], Weights()).total[0])

    before = total()
    assert total(urgency=factor) > before
    assert total(size=factor) > before
    assert total(waited_min=waited * factor) > before
    assert total(due_min=due * factor) < before
    assert total(left_min=left * factor) < before
    assert total(iteration=7.0 * factor) < before


def test_the_largest_part_of_the_model_learns_first() -> None:
    some = tasks(size=[0.7, 0.2, 0.1], urgency=[2.0] * 3, iteration=[1.0] * 3)
    assert learning_terms(some).tolist() == pytest.approx([1.4, 0.4, 0.2])
