"""The plain policies on examples worked by hand, at every change and in the rounds of Blox."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlsched.core.allocation import Allocation
from simulate.engine import Engine

E1 = [(0, 2, 10), (1, 4, 5), (2, 2, 9), (3, 2, 4), (4, 1, 20)]
E2 = [(0, 3, 10), (1, 3, 5), (2, 4, 5), (3, 1, 30)]
E4 = [(0, 2, 2), (0, 1, 8), (0, 2, 6)]
T5 = [(0, 1, 1000), (10, 1, 700), (20, 1, 200), (700, 1, 100), (900, 1, 600)]
T5M = [(0, 3, 600), (0, 2, 900), (0, 1, 300), (300, 4, 300), (300, 2, 300)]


@pytest.mark.parametrize(
    ("policy", "starts", "ends", "avg_jct", "makespan"),
    [
        ("fifo", [0, 10, 15, 15, 19], [10, 15, 24, 19, 39], 19.4, 39),
        ("first-fit", [0, 31, 2, 10, 11], [10, 36, 11, 14, 31], 18.4, 36),
        ("fjf", [0, 31, 2, 10, 11], [10, 36, 11, 14, 31], 18.4, 36),
    ],
)
def test_example_e1(
    lab: Any, policy: str, starts: list[float], ends: list[float], avg_jct: float, makespan: float
) -> None:
    result = lab.run(E1, policy, placement="count")
    assert result.jobs.first_start_time.tolist() == starts
    assert result.jobs.finish_time.tolist() == ends
    assert (result.summary["avg_jct"], result.summary["makespan"]) == (avg_jct, makespan)


@pytest.mark.parametrize(
    ("policy", "starts", "ends", "avg_jct", "makespan"),
    [
        ("fifo", [0, 10, 15, 20], [10, 15, 20, 50], 22.25, 50),
        ("first-fit", [0, 10, 33, 3], [10, 15, 38, 33], 22.5, 38),
    ],
)
def test_example_e2(
    lab: Any, policy: str, starts: list[float], ends: list[float], avg_jct: float, makespan: float
) -> None:
    result = lab.run(E2, policy, placement="count")
    assert result.jobs.first_start_time.tolist() == starts
    assert result.jobs.finish_time.tolist() == ends
    assert (result.summary["avg_jct"], result.summary["makespan"]) == (avg_jct, makespan)


@pytest.mark.parametrize(
    ("policy", "ends", "avg_jct"),
    [
        ("srtf", [2, 16, 8], 8.6667),
        ("srsf", [2, 10, 16], 9.3333),
        ("sjf-gpu", [10, 8, 16], 11.3333),
        ("fifo", [2, 10, 16], 9.3333),
    ],
)
def test_example_e4(lab: Any, policy: str, ends: list[float], avg_jct: float) -> None:
    result = lab.run(E4, policy, cluster="1x2", placement="count")
    assert result.jobs.finish_time.tolist() == ends
    assert result.summary["avg_jct"] == pytest.approx(avg_jct, abs=5e-5)


def logbook(engine: Engine) -> list[tuple[float, list[int], dict[int, list[int]]]]:
    """Per decision that did something: time, suspended rows, GPUs of the launched ones."""
    notes: list[tuple[float, list[int], dict[int, list[int]]]] = []

    def note(engine: Engine, allocation: Allocation) -> None:
        cluster = engine.world.occupancy.cluster
        if allocation.launched or allocation.suspended:
            launched = {row: p.gpu_ids(cluster) for row, p in allocation.launched.items()}
            notes.append((engine.now, list(allocation.suspended), launched))

    engine.observers.append(note)
    return notes


@pytest.mark.parametrize(
    ("policy", "ends", "suspensions", "avg_jct"),
    [
        ("fifo", [1200, 1200, 1500, 1500, 2100], [], 1174),
        ("las", [1800, 1800, 600, 1200, 1500], [(300, [0]), (900, [1, 0])], 1054),
        ("srtf", [1200, 1800, 600, 1200, 1800], [(900, [1])], 994),
    ],
)
def test_example_v1_of_blox(
    lab: Any, policy: str, ends: list[float], suspensions: list[Any], avg_jct: float
) -> None:
    blox = {"cluster": "1x2", "placement": "first-free", "options": ("semantics=blox",)}
    engine = lab.engine(T5, policy, **blox)
    notes = logbook(engine)
    engine.run()
    assert engine.world.table.finish.tolist() == ends
    assert [(t, suspended) for t, suspended, _ in notes if suspended] == suspensions
    assert lab.run(T5, policy, **blox).summary["avg_jct"] == avg_jct


def test_the_rounds_of_example_v1_under_las(lab: Any) -> None:
    engine = lab.engine(
        T5, "las", cluster="1x2", placement="first-free", options=("semantics=blox",)
    )
    notes = logbook(engine)
    engine.run()
    assert notes == [
        (0, [], {0: [0]}),
        (300, [0], {1: [1], 2: [0]}),
        (600, [], {0: [0]}),
        (900, [1, 0], {3: [1], 4: [0]}),
        (1200, [], {0: [1]}),
        (1500, [], {1: [0]}),
    ]


@pytest.mark.parametrize(
    ("placement", "at_0", "at_600"),
    [
        ("first-free", {0: [0, 1, 2], 1: [3, 4], 2: [5]}, {3: [0, 1, 2, 5], 4: [6, 7]}),
        ("consolidated", {0: [0, 1, 2], 1: [4, 5], 2: [3]}, {3: [0, 1, 2, 3], 4: [6, 7]}),
    ],
)
def test_example_v2_of_blox(
    lab: Any, placement: str, at_0: dict[int, list[int]], at_600: dict[int, list[int]]
) -> None:
    engine = lab.engine(
        T5M, "fifo", cluster="2x4", placement=placement, options=("semantics=blox",)
    )
    notes = logbook(engine)
    engine.run()
    assert notes == [(0, [], at_0), (600, [], at_600)]
    assert engine.world.table.finish.tolist() == [600, 900, 300, 900, 900]


def test_las_gives_the_gpu_to_the_job_with_least_service(lab: Any) -> None:
    # 60-s rounds on one GPU: A runs alone, B catches up, then they take turns
    result = lab.run([(0, 1, 180), (60, 1, 120)], "las", cluster="1x1", clock="rounds", round_s=60)
    assert lab.spans(result) == {"A": (0, 300), "B": (60, 240)}


def test_las_counts_gpu_seconds_unless_told_to_count_seconds(lab: Any) -> None:
    jobs = [(0, 2, 300), (0, 1, 300), (60, 2, 60)]
    by_gpu_time = lab.run(jobs, "las", cluster="1x3", clock="rounds")
    by_time = lab.run(jobs, "las", cluster="1x3", clock="rounds", options=("service=time",))
    assert by_gpu_time.jobs.preemptions.tolist() == [1, 0, 0]
    assert by_time.jobs.preemptions.sum() >= 1


def test_sjf_starts_the_shortest_first_and_stops_at_a_misfit(lab: Any) -> None:
    jobs = [(0, 3, 50), (1, 4, 10), (1, 1, 20), (1, 1, 5)]
    result = lab.run(jobs, "sjf")
    # D is shortest and fits beside A; B is next and does not, so C behind it waits
    assert result.jobs.first_start_time.tolist() == [0, 50, 60, 1]


def test_a_larger_priority_goes_before_the_order_of_submit(lab: Any) -> None:
    trace = lab.trace([(0, 4, 10), (1, 4, 10), (2, 4, 10)], priority=[1.0, 1.0, 5.0])
    assert lab.spans(lab.run(trace, "fifo"))["C"] == (10, 20)


def test_the_starvation_guard_lifts_a_job_to_the_front_for_good(lab: Any) -> None:
    # newcomers have always had less than A, until A has waited for a minute
    jobs = [(0, 1, 30), *[(10 * k, 1, 10) for k in range(1, 30)]]
    rounds = {"cluster": "1x1", "clock": "rounds", "round_s": 10}
    starved = lab.run(jobs, "las", **rounds)
    guarded = lab.run(jobs, "las", options=("guard_s=60",), **rounds)
    assert starved.jobs.finish_time[0] == 320
    assert guarded.jobs.finish_time[0] == 100


def test_equal_keys_keep_the_order_of_the_previous_decision(lab: Any) -> None:
    # A and B tie at 10 s left when B has caught up; A ran before and keeps the GPU
    result = lab.run([(0, 1, 20), (10, 1, 10)], "srtf", cluster="1x1")
    assert lab.spans(result) == {"A": (0, 20), "B": (20, 30)}


# -- what must hold for any jobs ------------------------------------------------------------------

JOBS = st.lists(
    st.tuples(st.integers(0, 40), st.integers(1, 4), st.integers(1, 30)), min_size=1, max_size=12
)
SINGLES = st.lists(
    st.tuples(st.integers(0, 40), st.just(1), st.integers(1, 30)), min_size=1, max_size=12
)


@given(JOBS)
def test_fifo_starts_in_order_of_submit(lab: Any, jobs: list[Any]) -> None:
    starts = lab.run(jobs, "fifo").jobs.first_start_time.tolist()
    assert starts == sorted(starts)


@given(SINGLES)
def test_fifo_is_first_fit_when_all_jobs_need_one_gpu(lab: Any, jobs: list[Any]) -> None:
    runs = [lab.spans(lab.run(jobs, policy, cluster="1x2")) for policy in ("fifo", "first-fit")]
    assert runs[0] == runs[1]


@given(SINGLES)
def test_with_one_gpu_and_no_arrivals_srtf_is_sjf(lab: Any, jobs: list[Any]) -> None:
    together = [(0, 1, duration) for _, _, duration in jobs]
    runs = [lab.spans(lab.run(together, policy, cluster="1x1")) for policy in ("srtf", "sjf")]
    assert runs[0] == runs[1]


def best_mean_jct(jobs: list[tuple[int, int, int]]) -> float:
    """The least mean JCT on one GPU over all preemptive schedules that switch at arrivals.

    Between two arrivals (and after the last) it is best to finish in some order, so trying every
    order of preference is exhaustive.
    """
    best = float("inf")
    for order in itertools.permutations(range(len(jobs))):
        left = [duration for _, _, duration in jobs]
        now, total, done = 0.0, 0.0, 0
        while done < len(jobs):
            ready = [k for k in order if jobs[k][0] <= now and left[k] > 0]
            coming = [submit for submit, _, _ in jobs if submit > now]
            if not ready:
                now = min(coming)
                continue
            job = ready[0]
            run = min(left[job], min(coming, default=float("inf")) - now)
            now += run
            left[job] -= run
            if left[job] == 0:
                total += now - jobs[job][0]
                done += 1
        best = min(best, total / len(jobs))
    return best


@settings(max_examples=25)
@given(
    st.lists(st.tuples(st.integers(0, 12), st.just(1), st.integers(1, 12)), min_size=1, max_size=5)
)
def test_srtf_is_optimal_on_one_gpu(lab: Any, jobs: list[tuple[int, int, int]]) -> None:
    result = lab.run(jobs, "srtf", cluster="1x1")
    assert result.summary["avg_jct"] == pytest.approx(best_mean_jct(jobs))


@given(JOBS, st.randoms(use_true_random=False))
def test_permuting_jobs_of_equal_submit_changes_only_ties(
    lab: Any, jobs: list[Any], dice: Any
) -> None:
    # all durations differ, so srtf has no ties to break
    distinct = [(submit, 1, 1000 + 97 * k) for k, (submit, _, _) in enumerate(jobs)]
    names = [f"job{k}" for k in range(len(distinct))]
    shuffled = list(range(len(distinct)))
    dice.shuffle(shuffled)
    one = lab.run(lab.trace(distinct, names=names), "srtf", cluster="1x2")
    other = lab.run(
        lab.trace([distinct[k] for k in shuffled], names=[names[k] for k in shuffled]),
        "srtf",
        cluster="1x2",
    )
    assert lab.spans(one) == lab.spans(other)


def test_a_fill_does_not_forget_which_jobs_ran_before(lab: Any) -> None:
    # F fills the idle GPU at 70; at 120 A, B and C tie, and A and B, which run, go on
    jobs = [(0, 2, 500), (0, 2, 500), (1, 2, 500), (70, 1, 100)]
    result = lab.run(jobs, "sjf-gpu", cluster="1x5", clock="rounds")
    assert result.jobs.preemptions.tolist() == [0, 0, 0, 0]
