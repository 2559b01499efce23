"""The world of short tasks: what holds at every moment of any run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import count

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlsched.core.errors import BadInput
from simulate.worlds.short_tasks.comparison import MATCHINGS, compare_matchings
from simulate.worlds.short_tasks.options import Kind, Options
from simulate.worlds.short_tasks.scheduler import JobState, Scheduler
from simulate.worlds.short_tasks.servers import Server
from simulate.worlds.short_tasks.work import Copy, Job, Stage, Task, longest_paths
from simulate.worlds.short_tasks.world import World

FOUR = Kind(count=4, cores=4, memory=8)


def stage(name: str = "1", tasks: int = 8, *parents: str, **more: float) -> Stage:
    values = {"runtime": 2.0, "spread": 0.0, "cores": 1.0, "memory": 1.0, **more}
    return Stage(
        name=name, tasks=tasks, parents=parents, **{"expected": values["runtime"], **values}
    )


def job(name: str, arrival: float, *stages: Stage, tokens: int | None = None) -> Job:
    return Job(id=name, arrival=arrival, stages=stages, tokens=tokens)


def copy(number: int, cores: float, seconds: float, *, regular: bool) -> Copy:
    task = Task(number=number, job=0, stage=0, priority=0.0, runtime=seconds, home=0)
    return Copy(
        task=task,
        server=0,
        cores=cores,
        memory=0.0,
        seconds=seconds,
        expected=seconds,
        regular=regular,
        sent_at=0.0,
        told_wait=0.0,
    )


class Watched(World):
    """Checks after every moment that nothing is held twice, and tokens are kept."""

    def act(self) -> None:
        super().act()
        for server in self.servers:
            assert sum(each.cores for each in server.running) <= server.cores + 1e-6
            assert sum(each.memory for each in server.running) <= server.memory + 1e-6
        here = [
            each
            for server in self.servers
            for each in (*server.running, *server.queue, *server.opportunistic)
        ]
        for state in self.outcome.jobs:
            mine = [each for each in here if each.task.job == state.number]
            kinds = Counter(each.regular for each in mine)
            assert (kinds[True], kinds[False]) == (state.regular, state.opportunistic)
            assert max(kinds[True], kinds[False]) <= state.tokens


stages = st.builds(
    lambda tasks, runtime, cores, memory, spread: stage(
        "1", tasks, runtime=runtime, cores=cores, memory=memory, spread=spread
    ),
    st.integers(1, 25),
    st.sampled_from([0.5, 2.0, 9.0]),
    st.integers(1, 4),
    st.integers(0, 8),
    st.sampled_from([0.0, 1.0]),
)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(stages, min_size=1, max_size=4),
    st.integers(1, 3),
    st.integers(1, 9),
    st.sampled_from(MATCHINGS),
    st.booleans(),
)
def test_every_task_is_done_once_within_its_jobs_tokens(
    each: list[Stage], schedulers: int, tokens: int, matching: str, rough: bool
) -> None:
    jobs = [
        job(str(n), 1.5 * n, first, replace(first, name="2", parents=("1",)), tokens=tokens)
        for n, first in enumerate(each)
    ]
    options = Options(
        schedulers=schedulers,
        fetch_s=1.0,
        straggler_share=0.2 if rough else 0.0,
        change=np.inf if rough else 0.1,
    )
    kind = replace(FOUR, success=0.8 if rough else 1.0)
    outcome = Watched(jobs, [kind], matching, options).run()
    assert outcome.counts["done"] == sum(s.tasks for one in jobs for s in one.stages)
    assert all(state.ended_at is not None for state in outcome.jobs)
    assert not any(state.regular or state.opportunistic for state in outcome.jobs)


@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(1, 9), st.integers(0, 9)), max_size=8),
    st.lists(st.tuples(st.integers(1, 4), st.integers(1, 9), st.integers(0, 9)), max_size=8),
)
def test_opportunistic_tasks_never_delay_regular_ones(
    regular: list[tuple[int, int, int]], others: list[tuple[int, int, int]]
) -> None:
    alone = starts(regular, [])
    beside = starts(regular, others)
    assert alone == beside


def starts(
    regular: Sequence[tuple[int, int, int]], others: Sequence[tuple[int, int, int]]
) -> dict[int, float]:
    """When each regular task starts on one server; the tuples are cores, seconds and arrival."""
    server, numbers = Server(4, 0, 1.0, (1,)), count()
    coming = [
        (at, copy(next(numbers), cores, seconds, regular=is_regular))
        for tasks, is_regular in ((regular, True), (others, False))
        for cores, seconds, at in tasks
    ]
    found: dict[int, float] = {}
    for now in range(200):
        for each in [c for c in server.running if c.started_at is not None]:
            if each.started_at + each.seconds <= now:
                server.remove(each)
        for at, each in coming:
            if at == now:
                (server.queue if each.regular else server.opportunistic).append(each)
        for each in server.start(now)[0]:
            if each.regular:
                found[each.task.number] = now
    return found


def test_an_upgraded_task_is_not_ended_any_more() -> None:
    server = Server(1, 0, 1.0, (1,))
    first, second = copy(1, 1, 5, regular=False), copy(2, 1, 5, regular=True)
    server.opportunistic.append(first)
    assert server.start(0.0) == ([first], [])
    server.upgrade(first)
    server.queue.append(second)
    assert server.start(1.0) == ([], [])
    assert server.matrix(1.0, [1], [0]).tolist() == [[9.0]]
    assert server.waits(1.0) == [4.0]


def test_two_schedulers_with_the_same_matrix_choose_alike_unless_the_wait_is_random() -> None:
    """Herding, and what the random part is for."""

    def chosen(spread: float) -> list[set[int]]:
        options, found = Options(spread=spread, opportunistic=False), []
        for number in range(2):
            scheduler = Scheduler(number, 8, ([1.0], [1.0]), "stable", options)
            one = job("a", 0.0, stage(tasks=1))
            state = JobState(job=one, number=0, tokens=3, left=[3])
            for task in range(3):
                state.add(Task(number=task, job=0, stage=0, priority=0.0, runtime=2.0, home=0))
            tried = (np.zeros(8, np.int64), np.zeros(8, np.int64))
            found.append({each.server for each in scheduler.choose(state, tried, 100.0)})
        return found

    first, second = chosen(0.0)
    assert first == second == {0, 1, 2}
    first, second = chosen(0.05)
    assert first != second


def test_stages_of_the_longest_path_go_first() -> None:
    diamond = (
        stage("a", 1),
        stage("b", 1, "a", runtime=9.0),
        stage("c", 1, "a", runtime=1.0),
        stage("d", 1, "b", "c", runtime=3.0),
    )
    assert longest_paths(diamond) == {"a": 14.0, "b": 12.0, "c": 4.0, "d": 3.0}
    narrow = Kind(count=1, cores=1, memory=8)
    [result] = compare_matchings([job("j", 0.0, *diamond)], [narrow], ["stable"], Options())
    assert result.figures["makespan_s"] == 15.0  # one after the other, on one core


def test_a_task_that_waits_too_long_is_copied_and_runs_once() -> None:
    """One scheduler believes that its task is short; the other's tasks then wait behind it."""
    liar = stage("1", 8, runtime=400.0, expected=1.0, cores=4.0)
    honest = stage("1", 40, runtime=2.0)
    jobs = [job("liar", 0.0, liar, tokens=2), job("honest", 0.5, honest, tokens=40)]
    options = Options(change=np.inf, spread=0.0, opportunistic=False)
    for corrections in (True, False):
        outcome = Watched(jobs, [FOUR], "stable", replace(options, corrections=corrections)).run()
        copies = sum(
            outcome.counts[k] for k in ("wait-is-worse", "wait-above-mean", "waited-above-mean")
        )
        ended = outcome.jobs[1].ended_at
        assert ended is not None
        if corrections:
            assert copies > 0
            corrected = ended
        else:
            assert copies == 0
            assert corrected < 60 < ended


def test_a_straggler_gets_a_copy_and_the_first_wins() -> None:
    options = Options(straggler_share=0.1, straggler_factor=50.0, seed=2)
    jobs = [job("a", 0.0, stage(tasks=60, runtime=4.0))]
    with_copies = World(jobs, [FOUR], "stable", options).run()
    without = World(jobs, [FOUR], "stable", replace(options, corrections=False)).run()
    assert min(with_copies.counts[name] for name in ("straggler", "copies that won")) > 0
    assert with_copies.counts["done"] == without.counts["done"] == 60
    first, last = with_copies.jobs[0].ended_at, without.jobs[0].ended_at
    assert (first or np.inf) < (last or 0) / 2


def test_the_same_seed_gives_the_same_run() -> None:
    jobs = [job(str(n), n, stage(tasks=30, spread=1.0)) for n in range(3)]
    kinds = [replace(FOUR, success=0.9)]

    def figures(seed: int) -> dict[str, object]:
        [result] = compare_matchings(jobs, kinds, ["stable"], Options(seed=seed, fetch_s=2.0))
        return {k: v for k, v in result.figures.items() if k != "tasks_per_cpu_s"}

    assert figures(1) == figures(1) != figures(2)


def test_a_task_that_fits_nowhere_is_refused() -> None:
    with pytest.raises(
        BadInput, match="job big, stage 1: 9 cores and 1 of memory fit on no server"
    ):
        World([job("big", 0.0, stage(cores=9.0))], [FOUR], "stable", Options())
