"""Carbyne and its neighbours: the sheet's examples by hand, and what holds for all graphs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.core.errors import BadInput
from dlsched.policies.scheduling.carbyne.exact import ExactRoom
from dlsched.policies.scheduling.carbyne.plan import best, plan_backwards
from dlsched.policies.scheduling.carbyne.stages import Graph, Number, Stage, quotas, work_left
from simulate.worlds.dags.cluster import Cluster
from simulate.worlds.dags.comparison import DISCIPLINES, MAKERS, PROFILES, compare
from simulate.worlds.dags.disciplines import Carbyne, to_the_end
from simulate.worlds.dags.following import Discipline, Moment, exact, follow
from simulate.worlds.dags.workload import Dag, Workload


def stage(duration: Number, *demand: Number, tasks: int = 1, after: tuple[int, ...] = ()) -> Stage:
    return Stage(duration, demand, tasks, after)


def jobs_of(capacity: Sequence[int], *graphs: list[Stage]) -> Workload:
    jobs = [
        Dag(id=f"J{number}", arrival=0, graph=Graph(each)) for number, each in enumerate(graphs)
    ]
    names = tuple(f"r{number}" for number in range(len(capacity)))
    return Workload(resources=names, capacity=tuple(capacity), jobs=jobs)


def ends(workload: Workload, discipline: str, compat: str = "exact") -> dict[str, float]:
    [result] = compare(workload, [discipline], compat=compat)
    return {name: float(end) for name, end in result.ends.items()}


def altruism(short: int) -> Workload:
    donor = [stage(10, 1), stage(short, 1), stage(1, 1, after=(0, 1))]
    return jobs_of([4], donor, [stage(2, 3)])


@pytest.mark.parametrize("compat", PROFILES)
def test_a_job_lends_what_it_does_not_need_yet(compat: str) -> None:
    assert ends(altruism(6), "carbyne", compat) == {"J0": 11, "J1": 2}
    assert ends(altruism(6), "drf-cp", compat) == {"J0": 11, "J1": 8}
    # with less work left than the other one, the donor comes first for what it lent
    assert ends(altruism(2), "carbyne", compat) == {"J0": 11, "J1": 4}


def test_the_plan_is_made_from_the_end() -> None:
    graph = altruism(6).jobs[0].graph
    plan = plan_backwards(graph, [1, 1, 1], ExactRoom([2]))
    assert plan is not None
    assert (plan.length, plan.first) == (11, [1, 0, 0])
    assert plan_backwards(altruism(6).jobs[1].graph, [1], ExactRoom([2])) is None


def test_shares_are_dominant_ones() -> None:
    first, second = Graph([stage(1, 1, 4)]), Graph([stage(1, 3, 1)])
    # one dominant share s for both: CPUs 9 (s + 2 s / 3 ...) as in the paper on DRF
    found = quotas([first, second], (9, 18))
    assert found == [(3, 12), (6, 2)]
    assert quotas([], (9, 18)) == []


def test_a_task_is_packed_by_the_product_with_what_is_free() -> None:
    room = ExactRoom([Fraction(1), Fraction(1, 2)])
    tasks = [(Fraction(1, 2), Fraction(1, 10)), (Fraction(1, 5), Fraction(1, 2))]
    needs = [room.need(task) for task in tasks]
    scores = [room.score(need) for need in needs]
    scale = Fraction(scores[0] or 0) / Fraction(55, 100)
    assert scores == [Fraction(55, 100) * scale, Fraction(45, 100) * scale]
    assert best([0, 1], needs, room) == 0
    room.take(needs[0])
    assert room.score(needs[1]) is None


def test_work_left_counts_tasks_that_have_not_begun() -> None:
    graph = Graph([stage(4, Fraction(3, 10), Fraction(4, 10), tasks=3)])
    assert work_left(graph, [3]) == pytest.approx(6.0)
    assert work_left(graph, [2]) == pytest.approx(4.0)


def test_the_longest_way_to_the_end_is_that_of_all_children() -> None:
    graph = Graph([stage(4, 1), stage(2, 1, after=(0,)), stage(7, 1, after=(0,)), stage(1, 1)])
    assert to_the_end(graph) == [11, 2, 7, 1]


def test_a_job_that_is_never_altruistic_takes_its_share_at_once() -> None:
    lends, never = (
        follow(profile, Carbyne(profile.shares, altruism=chance))
        for chance in (1.0, 0.0)
        if (profile := exact(altruism(6)))
    )
    assert (lends["J1"], never["J1"]) == (2, 8)


def test_tetris_prefers_what_fits_best_and_then_what_is_short() -> None:
    narrow, wide = [stage(4, 6)], [stage(3, 8)]  # as much work in both
    assert ends(jobs_of([10], narrow, wide), "tetris") == {"J1": 3, "J0": 7}
    # the large job is longer by far, which weighs more than how well it fits
    assert ends(jobs_of([10], [stage(100, 8)], [stage(1, 6)]), "tetris") == {"J1": 1, "J0": 101}


def test_tetris_ends_a_nearly_finished_stage_first() -> None:
    """Nine of ten tasks are done; the last one goes before a task that fits better."""
    first = [stage(2, 1, tasks=10), stage(1, 10, after=(0,))]
    workload = jobs_of([9], first[:1], [stage(4, 8, tasks=1)])
    profile = exact(workload)
    cluster = Cluster(profile.workload.capacity, profile.amounts)
    for dag in profile.workload.jobs:
        cluster.admit(dag)
    behind = cluster.jobs[0]
    behind.waiting, behind.unfinished = [1], [1]
    MAKERS["tetris"](profile)(cluster, Moment(touched=[], arriving=False))
    assert behind.waiting == [0]


def test_a_task_whose_rounded_score_is_zero_is_named() -> None:
    tiny = jobs_of([Fraction(1, 4)], [stage(1, Fraction(1, 100))])
    assert ends(tiny, "carbyne") == {"J0": 1}
    with pytest.raises(BadInput, match="jobs J0 never end"):
        compare(tiny, ["carbyne"], compat="artifact2016")


# -- what holds for all graphs --------------------------------------------------------------------

stages = st.tuples(
    st.integers(1, 9),
    st.tuples(st.integers(0, 40), st.integers(0, 40)),
    st.integers(1, 4),
    st.integers(0, 7),
)
described = st.lists(
    st.tuples(st.integers(0, 12), st.lists(stages, min_size=1, max_size=4)), min_size=1, max_size=5
)


def workload_of(of: Any) -> Workload:
    jobs = []
    for number, (arrival, listed) in enumerate(of):
        graph = [
            Stage(
                duration,
                (Fraction(first + 1, 100), Fraction(second, 50)),
                tasks,
                tuple(each for each in range(place) if parents >> each & 1),
            )
            for place, (duration, (first, second), tasks, parents) in enumerate(listed)
        ]
        jobs.append(Dag(id=str(number), arrival=arrival, graph=Graph(graph)))
    return Workload(resources=("a", "b"), capacity=(1, 2), jobs=jobs)


class Watched:
    """A discipline, with a look at the cluster before and after."""

    def __init__(self, inner: Discipline, *, conserves: bool) -> None:
        self.inner, self.conserves = inner, conserves
        self.begun: Counter[tuple[str, int]] = Counter()

    def __call__(self, cluster: Cluster, moment: Moment) -> None:
        before = [(job, list(job.waiting), list(job.ready)) for job in cluster.jobs]
        for job, _, ready in before:
            parents = {p for number in ready for p in job.graph.stages[number].parents}
            assert not any(job.unfinished[parent] for parent in parents)
        self.inner(cluster, moment)
        for job, waiting, ready in before:
            for number, left in enumerate(job.waiting):
                assert left <= waiting[number]
                assert left == waiting[number] or number in ready
                self.begun[job.dag.id, number] += waiting[number] - left
        if cluster.jobs:
            held = zip(*(job.held for job in cluster.jobs), strict=True)
            assert tuple(map(sum, held)) == cluster.used
            assert cluster.next_end is not None  # nothing waits on an idle cluster
        assert all(used <= size for used, size in zip(cluster.used, cluster.capacity, strict=True))
        if self.conserves:
            self._is_work_conserving(cluster)

    def _is_work_conserving(self, cluster: Cluster) -> None:
        """What is free does not suffice for any job of which nothing runs."""
        for job in cluster.jobs:
            if job.waiting == job.unfinished:
                room = ExactRoom(cluster.free)
                assert plan_backwards(job.graph, job.waiting, room) is None


@given(of=described, name=st.sampled_from(DISCIPLINES), chance=st.sampled_from([1.0, 0.5, 0.0]))
def test_every_task_runs_once_after_its_parents_and_nothing_is_overcommitted(
    of: Any, name: str, chance: float
) -> None:
    profile = exact(workload_of(of))
    inner = Carbyne(profile.shares, altruism=chance) if name == "carbyne" else MAKERS[name](profile)
    watched = Watched(inner, conserves=name == "carbyne")
    found = follow(profile, watched)
    assert watched.begun == {
        (job.id, number): each.tasks
        for job in profile.workload.jobs
        for number, each in enumerate(job.graph.stages)
    }
    for job in profile.workload.jobs:
        assert found[job.id] - job.arrival >= max(to_the_end(job.graph))


@given(of=described)
def test_a_plan_has_room_for_its_work_and_begins_something(of: Any) -> None:
    workload = workload_of(of).in_whole_units()
    sizes = quotas([job.graph for job in workload.jobs], workload.capacity)
    for job, size in zip(workload.jobs, sizes, strict=True):
        waiting = [each.tasks for each in job.graph.stages]
        plan = plan_backwards(job.graph, waiting, ExactRoom(size))
        if plan is None:
            continue
        assert plan.length >= max(to_the_end(job.graph))
        work = [
            sum(each.demand[r] * each.duration * each.tasks for each in job.graph.stages)
            for r in range(len(size))
        ]
        assert all(part <= plan.length * room for part, room in zip(work, size, strict=True))
        roots = {n for n, each in enumerate(job.graph.stages) if not each.parents}
        begun = {number for number, count in enumerate(plan.first) if count}
        assert begun
        assert begun <= roots


@given(of=described)
def test_a_chain_alone_ends_when_its_plan_does(of: Any) -> None:
    arrival, listed = of[0]
    chain = [(*each[:3], 1 << place >> 1) for place, each in enumerate(listed)]
    workload = workload_of([(arrival, chain)])
    [job] = workload.in_whole_units().jobs
    waiting = [each.tasks for each in job.graph.stages]
    plan = plan_backwards(job.graph, waiting, ExactRoom(workload.in_whole_units().capacity))
    assert plan is not None
    assert ends(workload, "carbyne")[job.id] - job.arrival == plan.length


def test_nothing_looks_again_when_a_planned_begin_comes() -> None:
    """So a job alone can end after its plan: the third task waits for the end of the second."""
    alone = jobs_of([3], [stage(2, 1), stage(3, 1), stage(4, 1)])
    plan = plan_backwards(alone.jobs[0].graph, [1, 1, 1], ExactRoom([3]))
    assert plan is not None
    assert (plan.length, ends(alone, "carbyne")["J0"]) == (4, 5)


@given(of=described)
def test_the_units_of_resources_do_not_matter(of: Any) -> None:
    workload = workload_of(of)
    whole = workload.in_whole_units()
    for name in DISCIPLINES:
        assert ends(workload, name) == ends(whole, name)
