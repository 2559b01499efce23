"""What-if answers in a replay: they come true, they compare, and they leave others as they are."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlsched.core.errors import BadInput
from dlsched.core.rewards import RewardCurve
from simulate.engine import Engine
from simulate.latest_submit import TO_S
from simulate.supposing import Answer, Choice, suppose
from tests.simulate.test_limits_on_gpus import JOBS as CLASSED
from tests.simulate.test_limits_on_gpus import LIMITS, cluster_of, trace_of

pytestmark = pytest.mark.slow

jobs_of = st.lists(
    st.tuples(st.integers(0, 90), st.integers(1, 4), st.integers(1, 200)), min_size=1, max_size=8
)


def ask(lab: Any, trace: Any, policy: str, job: str, *choices: Choice, **more: Any) -> Answer:
    arrivals = more.pop("arrivals", False)
    given = lab.settings(policy, **{"clock": "events", "check": False, **more})
    return suppose(trace, lab.cluster("1x4"), given, job, choices, arrivals=arrivals)


@pytest.mark.parametrize("policy", ["fifo", "easy", "las", "srtf", "tiresias", "edf", "karuna"])
@pytest.mark.parametrize("clock", ["events", "rounds"])
@settings(max_examples=10)
@given(jobs=jobs_of)
def test_a_prediction_comes_true_where_durations_are_exact(
    jobs: list[Any], policy: str, clock: str, lab: Any
) -> None:
    jobs = sorted(jobs)
    trace = lab.trace(jobs, deadline=[500.0] * len(jobs))
    result = lab.run(trace, policy, cluster="1x4", clock=clock)
    for place in (0, len(jobs) - 1):
        name = str(trace.job_id[place])
        told = ask(lab, trace, policy, name, clock=clock, arrivals=True).supposed[0]
        assert told.starts[0] == pytest.approx(result.jobs.first_start_time[place])
        assert told.ends[0] == pytest.approx(result.jobs.finish_time[place])
    last = ask(lab, trace, policy, name, clock=clock).supposed[0]  # nothing comes after it
    assert last.ends[0] == pytest.approx(result.jobs.finish_time[-1])


@pytest.mark.parametrize("policy", ["fifo", "easy", "las"])
@pytest.mark.parametrize("clock", ["events", "rounds"])
@settings(max_examples=20)
@given(jobs=CLASSED, limits=LIMITS)
def test_a_prediction_comes_true_where_a_class_has_a_limit(
    jobs: list[Any], limits: Any, policy: str, clock: str, lab: Any
) -> None:
    trace, cluster = trace_of(lab, jobs), cluster_of(limits)
    given = lab.settings(policy, clock=clock, check=False)
    ran = lab.run(trace, policy, cluster=cluster, clock=clock, check=False)
    for place in (len(jobs) // 2, len(jobs) - 1):
        name = str(trace.job_id[place])
        if ran.jobs.status[place] == "refused":
            continue
        told = suppose(trace, cluster, given, name, [], arrivals=True).supposed[0]
        assert told.starts[0] == pytest.approx(ran.jobs.first_start_time[place])
        assert told.ends[0] == pytest.approx(ran.jobs.finish_time[place])


@settings(max_examples=20)
@given(jobs=jobs_of, shorter=st.lists(st.floats(0.1, 1.0), min_size=8, max_size=8))
def test_under_fifo_no_job_ends_later_than_predicted_if_all_take_less(
    jobs: list[Any], shorter: list[float], lab: Any
) -> None:
    jobs = [(0, gpus, takes) for _, gpus, takes in jobs]
    real = [(0, g, takes * part) for (_, g, takes), part in zip(jobs, shorter, strict=False)]
    expected = [float(takes) for *_, takes in jobs]
    result = lab.run(lab.trace(real), "fifo", cluster="1x4", clock="events")
    trace = lab.trace(real, expected=expected)
    told = ask(lab, trace, "fifo", str(trace.job_id[-1]), estimate="declared").supposed[0]
    assert result.jobs.finish_time[-1] <= told.ends[0] + 1e-9


@settings(max_examples=20)
@given(jobs=jobs_of)
def test_under_fifo_a_job_at_the_tail_starts_no_other_job_later(jobs: list[Any], lab: Any) -> None:
    jobs = [(0, gpus, takes) for _, gpus, takes in jobs]
    starts = [
        lab.run(some, "fifo", cluster="1x4", clock="events").jobs.first_start_time.tolist()
        for some in (jobs, [*jobs, (0, 2, 50)])
    ]
    assert starts[1][: len(jobs)] == starts[0]


def test_the_example_of_a_deadline_at_risk(lab: Any) -> None:
    """60 s until the GPUs are free, then 40 s of work, to be done within 100 s."""
    trace = lab.trace([(0, 4, 60), (0, 4, 40)], deadline=[math.nan, 100.0])
    [told] = ask(lab, trace, "fifo", "B").supposed
    assert sorted(told.ends.tolist()) == [50.0, 100.0, 150.0]
    assert (told.on_time, told.verdict, told.reward) == (0.75, "at-risk", 0.75)
    assert told.interval == (30.0, 90.0, 50.0, 150.0)


def test_the_fewest_gpus_that_keep_a_deadline(lab: Any) -> None:
    trace = lab.trace([(0, 1, 100)], deadline=[80.0])
    answer = ask(lab, trace, "fifo", "A", Choice(gpus=2, seconds=50.0))
    assert [told.verdict for told in answer.supposed] == ["unlikely", "ok"]
    assert [told.gpu_s for told in answer.supposed] == [100.0, 100.0]


def test_what_an_alternative_costs_the_others_is_told(lab: Any) -> None:
    trace = lab.trace(
        [(0, 4, 100), (10, 4, 50), (20, 4, 30)],
        sla=["", "asap:100,400", "soft:60,10,100"],
    )
    answer = ask(lab, trace, "fifo", "C", Choice(policy="sjf"))
    fifo, shortest = answer.supposed
    assert (fifo.ends[0], shortest.ends[0]) == (180.0, 130.0)
    assert shortest.others_later_s == pytest.approx(30 / 2)  # one of two ends half a minute later
    curve = RewardCurve.of_text("asap:100,400")
    assert shortest.others_reward == pytest.approx(float(curve.at(170.0) - curve.at(140.0)))
    assert fifo.others_reward == 0
    assert 0 <= fifo.reward <= shortest.reward <= 10


def test_jobs_that_come_later_arrive_only_on_request(lab: Any) -> None:
    trace = lab.trace([(0, 4, 100), (0, 4, 50), (20, 4, 10)])
    ends = [
        ask(lab, trace, "sjf", "A", arrivals=come).supposed[0].ends[0] for come in (False, True)
    ]
    assert ends == [150.0, 160.0]


def test_a_question_leaves_the_trace_as_it_was(lab: Any) -> None:
    trace = lab.trace([(0, 2, 100), (5, 2, 50)], min_gpus=[1.0, 1.0], max_gpus=[4.0, 4.0])
    before = {name: column.copy() for name, column in trace.columns.items()}
    ask(lab, trace, "fifo", "B", Choice(gpus=4))
    assert trace.num_gpus.tolist() == [2.0, 2.0]
    for name, column in before.items():
        np.testing.assert_array_equal(trace.columns[name], column)


@pytest.mark.parametrize(
    ("job", "columns", "message"),
    [
        ("Z", {}, "--what-if: job 'Z' is not known"),
        ("B", {}, "--what-if: job B: Never: asks for 9 GPUs"),
        ("A", {"parents": ["", "A"]}, "a trace with dependencies, or with limits of arrays, has"),
    ],
)
def test_what_cannot_be_answered_is_said(lab: Any, job: str, columns: Any, message: str) -> None:
    trace = lab.trace([(0, 1, 10), (0, 9, 10)], **columns)
    with pytest.raises(BadInput, match=message):
        ask(lab, trace, "fifo", job)


def test_the_latest_submit_waits_for_as_long_as_there_is_time_to_spare(lab: Any) -> None:
    """Nothing else is there: 60 s of work in the longest case, to be done within 500 s."""
    trace = lab.trace([(0, 2, 40)], deadline=[500.0])
    [told] = ask(lab, trace, "fifo", "A").supposed
    assert told.latest_submit == pytest.approx(440.0)


@pytest.mark.parametrize(("deadline", "latest"), [(149.0, math.nan), (150.0, 90.0), (170.0, 110.0)])
def test_a_job_that_has_to_wait_may_be_submitted_when_gpus_come_free(
    deadline: float, latest: float, lab: Any
) -> None:
    """In the longest case GPUs are free after 90 s, and it takes 60 s."""
    trace = lab.trace([(0, 4, 60), (0, 4, 40)], deadline=[math.nan, deadline])
    [told] = ask(lab, trace, "fifo", "B").supposed
    assert told.latest_submit == pytest.approx(latest, nan_ok=True)


@settings(max_examples=25)
@given(
    jobs=jobs_of, policy=st.sampled_from(["fifo", "easy", "srtf", "edf"]), work=st.integers(1, 99)
)
def test_submitted_then_it_keeps_the_deadline_and_a_little_later_it_does_not(
    jobs: list[Any], policy: str, work: int, lab: Any
) -> None:
    """A replay of each case, in which it is really submitted then, says the same."""
    jobs = [(0, gpus, takes) for _, gpus, takes in jobs]
    due, no_deadlines = 600.0, [math.nan] * len(jobs)
    trace = lab.trace([*jobs, (0, 2, work)], deadline=[*no_deadlines, due])
    latest = ask(lab, trace, policy, str(trace.job_id[-1])).supposed[0].latest_submit

    def is_sure(at: float) -> bool:
        def end(factor: float) -> float:
            real = [*((0, gpus, takes * factor) for _, gpus, takes in jobs), (at, 2, work * factor)]
            expected = [*(float(takes) for *_, takes in jobs), float(work)]
            said = lab.trace(real, expected=expected, deadline=[*no_deadlines, due - at])
            result = lab.run(said, policy, cluster="1x4", clock="events", estimate="declared")
            return float(result.jobs.finish_time[-1])

        return all(end(factor) <= due + 1e-6 for factor in (0.5, 1.0, 1.5))

    if math.isnan(latest):
        assert not is_sure(0.0)
    else:
        assert is_sure(latest)
        assert not is_sure(latest + TO_S)


@pytest.mark.parametrize("policy", ["las", "karuna", "chronus", "elasticflow"])
@settings(max_examples=8)
@given(jobs=jobs_of, due=st.sampled_from([300.0, 900.0, 3000.0]), others_due=st.floats(200, 5000))
def test_a_try_that_goes_on_from_an_earlier_one_ends_as_a_replay_of_its_own(
    policy: str, jobs: list[Any], due: float, others_due: float, lab: Any
) -> None:
    jobs = [(0, gpus, takes) for _, gpus, takes in jobs]
    others = [others_due if place % 2 else math.nan for place in range(len(jobs))]
    trace = lab.trace([*jobs, (0, 2, 60)], deadline=[*others, due])
    latest = ask(lab, trace, policy, str(trace.job_id[-1])).supposed[0].latest_submit
    if math.isnan(latest):
        return
    expected = [*(float(takes) for *_, takes in jobs), 60.0]
    for factor in (0.5, 1.0, 1.5):
        real = [(0, gpus, takes * factor) for _, gpus, takes in jobs]
        said = lab.trace(
            [*real, (latest, 2, 60 * factor)],
            expected=expected,
            deadline=[*others, due - latest],
        )
        result = lab.run(said, policy, cluster="1x4", clock="events", estimate="declared")
        assert result.jobs.finish_time[-1] <= due + 1e-6


def test_what_comes_before_the_submit_is_not_run_again_for_each_try(
    lab: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run is a decision a job; halving 180 moments alone would take 24 of them."""
    jobs = [(0, 4, 100)] * 61
    trace = lab.trace(jobs, deadline=[*[math.nan] * 60, 10_000.0])
    decisions, decide = 0, Engine._decide_in

    def counted(engine: Engine, mode: Any) -> bool:
        nonlocal decisions
        decisions += 1
        return decide(engine, mode)

    monkeypatch.setattr(Engine, "_decide_in", counted)
    [told] = ask(lab, trace, "edf", str(trace.job_id[-1])).supposed
    assert told.latest_submit == pytest.approx(9850.0)
    assert decisions < 10 * len(jobs)


@pytest.mark.parametrize(
    ("deadline", "moves"),
    [(2500.0, 0), (1300.0, 0), (1000.0, 1), (525.0, 3), (300.0, 4), (299.0, 0)],
)
def test_the_jobs_ahead_that_must_move_are_named(deadline: float, moves: int, lab: Any) -> None:
    """Half as long again, 150 s of what runs, 225 s of each job ahead and 150 s of its own."""
    jobs = [(0, 4, 140), *[(0, 4, 150)] * 4, (40, 4, 100)]
    trace = lab.trace(jobs, deadline=[math.nan] * 5 + [deadline])
    assert ask(lab, trace, "fifo", "F").must_move == ["B", "C", "D", "E"][:moves]


def test_a_job_that_comes_at_the_same_time_may_have_to_move(lab: Any) -> None:
    trace = lab.trace([(0, 4, 100), (0, 4, 100)], deadline=[math.nan, 150.0])
    answer = ask(lab, trace, "fifo", "B")
    assert (answer.must_move, answer.present) == (["A"], 1)
    assert ask(lab, trace, "fifo", "A").present == 0


LEASED = (
    [(0, 4, 1000), *[(0, 4, 1000)] * 3, (600, 4, 1000)],
    [2000.0, 4000.0, 6000.0, 8000.0, 5000.0],
)
URGENT = (
    [(0, 4, 140), *[(0, 4, 150)] * 4, (40, 4, 100)],
    [math.nan, 300.0, 500.0, 700.0, 900.0, 525.0],
)


@pytest.mark.parametrize(
    ("policy", "case", "moves"),
    [("edf", URGENT, "C"), ("elasticflow", URGENT, "C"), ("karuna", URGENT, "C"),
     ("chronus", LEASED, "D")],
)  # fmt: skip
def test_under_policies_that_plan_by_deadlines_it_is_those_ahead_in_the_plan(
    policy: str, case: tuple[list[Any], list[float]], moves: str, lab: Any
) -> None:
    """Without them the job is sure to keep its deadline."""
    jobs, due = case
    trace = lab.trace(jobs, deadline=due)
    mine = str(trace.job_id[-1])
    answer = ask(lab, trace, policy, mine)
    assert (answer.must_move, answer.supposed[0].on_time) == ([moves], 0.75)
    stay = [place for place, name in enumerate(trace.job_id.tolist()) if name != moves]
    names = [str(trace.job_id[place]) for place in stay]
    fewer = lab.trace([jobs[k] for k in stay], deadline=[due[k] for k in stay], names=names)
    assert ask(lab, fewer, policy, mine).supposed[0].on_time == 1.0
