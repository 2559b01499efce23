"""Apollo's parts: the sheet's examples, and what holds for any node, batch and number of tokens."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.core.arrays import Floats
from dlsched.policies.scheduling.apollo.completion import RunTimes, completion, success_rate
from dlsched.policies.scheduling.apollo.corrections import Tolerance, Trigger, is_straggler, trigger
from dlsched.policies.scheduling.apollo.matching import (
    at_best,
    dispatch_order,
    first_batch,
    greedily,
    match,
)
from dlsched.policies.scheduling.apollo.tokens import Waiting, by_tokens, upgrades
from dlsched.policies.scheduling.apollo.waits import (
    Held,
    has_changed,
    look_up,
    moments,
    queue_waits,
    wait_matrix,
)

INF = np.inf


def test_completion_weighs_a_failure() -> None:
    assert completion(2, 10, 30, 0.9, 2) == pytest.approx(46.2)


def test_the_task_that_would_lose_most_gets_the_node() -> None:
    costs = np.array([[10.0, 12.0], [10.0, 20.0]])
    assert match(costs, [0, 0]) == ({0: 1, 1: 0}, 2)
    assert greedily(costs, [0, 0]) == {0: 0, 1: 1}
    assert at_best(costs) == {0: 1, 1: 0}


def test_waits_of_the_sheets_node() -> None:
    running = [Held(27, 1, 4), Held(16, 1, 8)]
    queue = [Held(20, 2, 4), Held(18, 1, 8), Held(1, 8, 4), Held(7, 8, 4)]
    found = wait_matrix(moments(8, 32, running, queue), [1, 2, 4, 8, 16], [2, 4, 8, 16, 32])
    assert found.tolist() == [
        [0, 0, 0, 16, 35],
        [0, 0, 0, 16, 35],
        [16, 16, 16, 16, 35],
        [35, 35, 35, 35, 35],
        [INF] * 5,
    ]
    assert queue_waits(moments(8, 32, running, queue), 4) == [0, 0, 27, 28]


def test_good_matches_go_first_and_tokens_bound_them() -> None:
    wait = np.array([0, 0, 5, 9, 9])
    costs = np.diag([50.0, 40.0, 30.0, 20.0, 19.0])
    order = dispatch_order({task: task for task in range(5)}, costs, wait)
    assert order == [1, 0, 2, 4, 3]
    assert by_tokens(order, 3, 1) == ([1, 0, 2], [4])
    assert by_tokens(order, -1) == ([], [])


def test_a_node_that_no_task_fits_gets_none() -> None:
    costs = np.array([[INF, 3.0], [INF, 4.0], [INF, INF]])
    assert match(costs, [0, 0, 0]).node_of == {0: 1}
    assert greedily(costs, [0, 0, 0]) == at_best(costs) == {0: 1}
    assert match(np.full((2, 2), INF), [0, 0]) == ({}, 0)
    assert at_best(np.full((2, 2), INF)) == {}


def test_ties_go_to_the_lower_node_then_to_priority_then_to_the_lower_task() -> None:
    equal = np.full((3, 2), 5.0)
    assert match(equal, [2, 1, 1]) == ({1: 0, 2: 1}, 2)


def test_iterations_are_bounded() -> None:
    assert len(match(np.full((20, 20), 1.0), [0] * 20).node_of) == 10
    assert len(match(np.full((20, 20), 1.0), [0] * 20, 3).node_of) == 3


def test_a_batch_has_tasks_of_similar_priority() -> None:
    assert first_batch([5, 1, 1.5, 1], 8) == [1, 3]
    assert first_batch([5, 1, 1.5, 1], 8, span=1.0) == [1, 3, 2]
    assert first_batch([5, 1, 1.5, 1], 1) == [1]
    assert first_batch([], 4) == []


def test_old_matrices_are_read_pessimistically() -> None:
    matrices = np.array([[[0, 1, INF], [2, 3, INF], [INF, INF, INF]]] * 2, np.float64)
    sizes = ([1, 2, 4], [2, 4, 8])
    stale = np.array([False, True])
    assert look_up(matrices, *sizes, (1, 2), stale).tolist() == [0, 3]
    assert look_up(matrices, *sizes, (1.5, 3), stale).tolist() == [3, 3]  # nothing larger fits
    assert look_up(matrices, *sizes, (5, 1), stale).tolist() == [INF, INF]


def test_a_report_is_due_when_a_wait_has_changed_by_a_tenth() -> None:
    told = np.array([[10.0, INF]])
    assert not has_changed(told, np.array([[10.9, INF]]))
    assert has_changed(told, np.array([[11.1, INF]]))
    assert has_changed(told, np.array([[10.0, 5.0]]))
    assert has_changed(np.zeros((1, 1)), np.array([[0.1]]))


def test_what_is_known_of_run_times_and_of_success() -> None:
    times = RunTimes()
    assert times.estimate("map", 7.0) == 7.0
    times.finished("map", 2.0)
    times.finished("map", 4.0)
    assert times.estimate("map", 7.0) == 3.0
    assert success_rate(0, 0) == 0.5
    assert success_rate(8, 8) == 0.9


@pytest.mark.parametrize(
    ("told", "waited", "left", "mean", "why"),
    [
        (10.0, 0.0, 45.0, None, Trigger.WORSE),
        (10.0, 0.0, 39.0, None, None),  # not 30 s more
        (100.0, 0.0, 140.0, None, None),  # not half as much again
        (10.0, 5.0, 10.0, 12.0, Trigger.SLOW),
        (10.0, 13.0, 1.0, 12.0, Trigger.WAITED),
        (10.0, 5.0, 5.0, 12.0, None),
    ],
)
def test_when_a_waiting_task_is_looked_at_again(
    told: float, waited: float, left: float, mean: float | None, why: Trigger | None
) -> None:
    assert trigger(told, waited, left, mean, Tolerance()) == why
    assert is_straggler(left, left - 1)
    assert not is_straggler(left, left)


def test_free_tokens_go_where_regular_tasks_are_few() -> None:
    waiting = [Waiting("a", 2, 90.0), Waiting("b", 0, 1.0), Waiting("c", 0, 5.0)]
    assert upgrades(waiting, 2) == ["c", "b"]
    assert upgrades(waiting, 0) == []


# -- for any batch and node ------------------------------------------------------------------------

batches = st.integers(1, 7).flatmap(
    lambda tasks: st.integers(1, 7).flatmap(
        lambda nodes: st.lists(
            st.lists(st.integers(0, 30), min_size=nodes, max_size=nodes),
            min_size=tasks,
            max_size=tasks,
        )
    )
)


@given(batches, st.data())
def test_matching_is_stable_in_each_iteration(rows: list[list[int]], data: st.DataObject) -> None:
    """Re-enacts the iterations: a node that was proposed to took the proposal of most saving."""
    costs: Floats = np.array(rows, np.float64)
    priority = data.draw(st.lists(st.integers(0, 3), min_size=len(rows), max_size=len(rows)))
    tasks, nodes = set(range(costs.shape[0])), set(range(costs.shape[1]))
    most = max(costs.shape)
    final = match(costs, priority, most).node_of
    assert len(final) == min(costs.shape)  # tasks are left only where nodes have run out
    assert len(set(final.values())) == len(final)
    for iterations in range(1, most + 1):
        matched = match(costs, priority, iterations).node_of
        new = {task: node for task, node in matched.items() if task in tasks}
        for task in tasks:
            best = min(nodes, key=lambda node: (costs[task, node], node), default=None)
            if best is None:
                break
            won = next(other for other, node in new.items() if node == best)
            assert saving(costs, won, best, nodes) >= saving(costs, task, best, nodes)
        tasks -= set(new)
        nodes -= set(new.values())
        if not (tasks and nodes):
            break
    assert matched == final
    assert cost_of(costs, at_best(costs)) <= cost_of(costs, final)


def saving(costs: Floats, task: int, node: int, nodes: set[int]) -> float:
    others = [costs[task, other] for other in nodes if other != node]
    return float(min(others, default=INF) - costs[task, node])


def cost_of(costs: Floats, node_of: dict[int, int]) -> float:
    return float(sum(costs[pair] for pair in node_of.items()))


tasks_on_node = st.lists(
    st.builds(Held, st.integers(1, 20), st.integers(1, 8), st.integers(0, 8)), max_size=6
)


@given(tasks_on_node, tasks_on_node, st.integers(1, 8), st.integers(0, 8))
def test_a_probe_waits_as_if_it_stood_at_the_end_of_the_queue(
    ran: list[Held], queue: list[Held], cores: int, memory: int
) -> None:
    running: list[Held] = []
    for task in ran:  # as many as there is room for
        used = [*running, task]
        if sum(t.cores for t in used) <= 8 and sum(t.memory for t in used) <= 8:
            running.append(task)
    matrix = wait_matrix(moments(8, 8, running, queue), [cores], [memory])
    probe = Held(1, cores, memory)
    waits = queue_waits(moments(8, 8, running, [*queue, probe]), len(queue) + 1)
    assert matrix[0, 0] == waits[-1]
    assert waits[:-1] == queue_waits(moments(8, 8, running, queue), len(queue))
    for moment in moments(8, 8, running, queue):
        assert moment.cores >= 0
        assert moment.memory >= 0
