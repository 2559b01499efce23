"""Short tasks in the daemon: each is one run's at a time, and ends once, whatever is repeated."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from dlsched.daemon.short_tasks.task_list import MOST_GIVEN, TaskList
from dlsched.db.task_runs import TaskEnd, TaskRun
from dlsched.protocol.messages import NodeName, RunId

RUNS = st.sampled_from([RunId("a"), RunId("b"), RunId("c")])


def end(task: int, ran_s: float = 1.0) -> TaskEnd:
    return TaskEnd(task=task, code=0, signal=0, ran_s=ran_s)


def test_a_bundle_keeps_a_run_busy_for_ten_seconds_and_shrinks_near_the_end() -> None:
    tasks = TaskList(["true"] * 100)
    run = RunId("a")
    assert tasks.give(run, [], 2) == [1]  # nothing is known of their length
    tasks.end(run, [end(1)])
    assert tasks.give(run, [], 2) == list(range(2, 12))
    assert tasks.give(run, range(2, 12), 2) == []
    tasks.end(run, [end(task) for task in range(2, 9)])
    assert tasks.give(run, [9, 10, 11], 2) == list(range(12, 19))
    assert tasks.give(RunId("b"), [], 40) == [19, 20]  # a fair part of what is left
    quick = TaskList(["true"] * 5000)
    quick.give(run, [], 1)
    quick.end(run, [end(1, 0.001)])
    assert len(quick.give(run, [], 1)) == MOST_GIVEN


def test_a_lost_answer_is_given_again() -> None:
    tasks = TaskList(["true"] * 9)
    run = RunId("a")
    tasks.give(run, [], 1)
    tasks.end(run, [end(1)])
    given = tasks.give(run, [], 1)
    assert tasks.give(run, [], 1)[: len(given)] == given
    assert tasks.end(run, [end(1)]) == (end(1),)  # told again
    assert tasks.end(RunId("b"), [end(given[0])]) == ()  # another run's
    assert given[0] not in tasks.ended


def test_a_new_leader_knows_what_is_stored() -> None:
    def row(task: int, run: str, ended: float | None) -> TaskRun:
        return TaskRun(
            task=task,
            run_id=RunId(run),
            node=NodeName("n1"),
            given_at=1.0,
            code=None if ended is None else 0,
            signal=None if ended is None else 0,
            ran_s=None if ended is None else 4.0,
            ended_at=ended,
        )

    tasks = TaskList(["true"] * 6, [row(1, "a", 9.0), row(2, "a", None), row(3, "b", None)])
    assert (tasks.mean_s, tasks.waiting) == (4.0, 3)
    tasks.take_back(lambda run: run == "b")
    assert tasks.waiting == 4
    assert tasks.give(RunId("a"), [2], 1) == [3]


def test_what_is_stored_is_not_stored_again() -> None:
    tasks, run = TaskList(["true"] * 3), RunId("a")
    tasks.give(run, [], 1)
    known = tasks.end(run, [end(1)])
    tasks.unstored.difference_update(each.task for each in known)
    assert tasks.end(run, [end(1)]) == ()


def test_a_run_keeps_what_an_older_database_does_not_know() -> None:
    tasks, run, other = TaskList(["true"] * 6), RunId("a"), RunId("b")
    assert (tasks.give(run, [], 2), tasks.give(other, [], 2)) == ([1], [2])
    assert tasks.adopt(run, [1, 2, 3, 4]) == [3, 4]  # 2 is another run's by now
    assert tasks.end(run, [end(4)]) == (end(4),)
    assert tasks.adopt(run, [3, 4]) == []
    assert tasks.waiting == 2


class Lists(RuleBasedStateMachine):
    """Runs come and go, answers are lost and told again."""

    def __init__(self) -> None:
        super().__init__()
        self.tasks = TaskList(["true"] * 30)
        self.held: dict[RunId, set[int]] = {}
        self.done: list[int] = []

    @rule(run=RUNS, arrives=st.booleans())
    def ask(self, run: RunId, arrives: bool) -> None:
        held = self.held.setdefault(run, set())
        given = self.tasks.give(run, held, 3)
        assert not held.intersection(given)
        if arrives:
            held.update(given)

    @rule(run=RUNS, twice=st.booleans())
    def finish(self, run: RunId, twice: bool) -> None:
        held = self.held.setdefault(run, set())
        if held:
            task = min(held)
            held.remove(task)
            self.done.append(task)
            for _ in range(1 + twice):
                assert self.tasks.end(run, [end(task)])

    @rule(run=RUNS)
    def lose(self, run: RunId) -> None:
        self.held.pop(run, None)
        self.tasks.take_back(lambda each: each == run)

    @invariant()
    def each_task_is_somewhere_once(self) -> None:
        given = [task for mine in self.tasks.given.values() for task in mine]
        assert len(given) == len(set(given))
        assert len(given) + len(self.tasks.ended) + self.tasks.waiting == 30
        assert sorted(self.done) == sorted(self.tasks.ended)
        for run, held in self.held.items():
            assert held <= self.tasks.given.get(run, set())


TestLists = Lists.TestCase


@given(st.integers(1, 60), st.integers(1, 5), st.floats(0.0, 100.0))
def test_runs_that_ask_often_enough_end_all_tasks(total: int, runs: int, ran_s: float) -> None:
    tasks = TaskList(["true"] * total)
    names = [RunId(str(number)) for number in range(runs)]
    for _ in range(total):
        for name in names:
            tasks.end(name, [end(task, ran_s) for task in tasks.give(name, [], runs)])
    assert tasks.ended == set(range(1, total + 1))
    assert not tasks.waiting
