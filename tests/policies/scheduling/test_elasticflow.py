"""ElasticFlow: shares that keep deadlines, admission, and what is left."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dlsched.composition.settings import Costs
from dlsched.core.cluster.description import parse_cluster_spec
from dlsched.core.speed.throughput_table import JobKind, Measurement, ThroughputTable
from dlsched.policies.scheduling.elasticflow.admission import AdmissionControl
from dlsched.policies.scheduling.elasticflow.planner import Planner
from dlsched.policies.scheduling.elasticflow.planning import Demand, Plan, Sizes, plan
from dlsched.policies.scheduling.elasticflow.policy import ElasticFlow, ElasticFlowOptions
from dlsched.policies.scheduling.elasticflow.timeline import FOREVER, Steps
from simulate.replay import replay
from simulate.results.tables import JobOutcomes
from simulate.settings import RunSettings
from simulate.traces.open import open_trace

SPEEDS = {"good": 0.9, "fair": 0.6, "poor": 0.3}  # speed on n GPUs: n to this power
GPUS = np.array([1, 2, 4, 8])


def sizes(power: float = 1.0, total: int = 8) -> Sizes:
    return Sizes.of(GPUS, GPUS**power, total)


def as_steps(found: Plan) -> list[tuple[float, int]]:
    return list(zip(found.steps.times, found.steps.gpus, strict=True))


def replayed(
    tmp_path: Path, jobs: list[tuple[Any, ...]], *options: str, overhead: float = 0.0, **named: Any
) -> JobOutcomes:
    """Jobs are (submit, steps, deadline after it or None, model, most GPUs)."""
    lines = ["job_id,submit_time,num_gpus,total_iterations,model,deadline,min_gpus,max_gpus"]
    for number, (submit, steps, deadline, model, most) in enumerate(jobs):
        due = "" if deadline is None else deadline
        lines.append(f"{number},{submit},1,{steps},{model},{due},1,{most}")
    trace = tmp_path / "jobs.csv"
    trace.write_text("\n".join(lines) + "\n")
    table = ThroughputTable(
        [
            Measurement(gpu_type="gpu", scale=gpus, kind=JobKind(model, None), rate=gpus**power)
            for model, power in SPEEDS.items()
            for gpus in GPUS.tolist()
        ]
    )
    return replay(
        open_trace(trace),
        parse_cluster_spec("2x4:gpu"),
        RunSettings(
            policy="elasticflow",
            options=("margin=1", *options),
            costs=Costs(restart_overhead=overhead),
            check=True,
            **named,
        ),
        throughputs=table,
    ).jobs


def test_the_fewest_gpus_that_keep_the_deadline_are_used_as_late_as_possible() -> None:
    """Free: 8 until 100 s, then 2, then 8; 640 steps by 300 s need two GPUs from the start."""
    free = Steps([0.0, 100.0, 200.0], [8, 2, 8])
    found = plan(Demand(600.0, 300.0, sizes()), free, 10.0)
    assert found.keeps
    assert as_steps(found) == [(0.0, 2)]
    late = plan(Demand(250.0, 300.0, sizes()), free, 10.0)
    assert as_steps(late) == [(0.0, 1)]
    waits = plan(Demand(90.0, 300.0, sizes()), free, 10.0)
    assert as_steps(waits) == [(0.0, 0), (200.0, 1)]
    assert waits.real_end == 290.0


free_strategy = st.lists(
    st.tuples(st.integers(1, 900), st.integers(0, 8)), min_size=1, max_size=12
).map(
    lambda steps: Steps(
        np.cumsum([0.0, *(lasts for lasts, _ in steps)]).tolist(), [*(g for _, g in steps), 8]
    ).merged()
)


@given(
    free_strategy,
    st.integers(1, 20_000),
    st.integers(1, 6000),
    st.sampled_from([1.0, 0.6, 0.3]),
)
def test_shares_are_those_of_the_formula_over_all_sizes_and_stretches(
    free: Steps, left: int, due: int, power: float
) -> None:
    """The formula is written over arrays here, [size, stretch]."""
    own = sizes(power)
    found = plan(Demand(float(left), float(due), own), free, 1.0)
    starts = np.array([time for time in free.times if time < due])
    lasts = np.diff(np.append(starts, due))
    has = np.minimum(GPUS[:, None], np.array(own.below)[free.gpus[: len(starts)]])
    work = lasts * np.array(own.rate)[has]
    from_behind = work[:, ::-1].cumsum(axis=1)[:, ::-1]
    fits = (from_behind >= left).any(axis=1)
    assert found.keeps == fits.any()
    if not fits.any():
        return
    size = int(fits.argmax())
    point = int(np.flatnonzero(from_behind[size] >= left)[-1])
    expected = np.concatenate(
        [has[size - 1, :point] if size else np.zeros(point), has[size, point:]]
    )
    done = (lasts * np.array(own.rate)[expected.astype(np.int64)]).cumsum()
    last = point + int((done[point:] >= left).argmax())
    assert found.steps.times[-1] <= found.real_end <= due
    ahead = starts[starts < found.real_end].tolist()
    now = [found.use.gpus[bisect_right(found.use.times, time) - 1] for time in ahead]
    assert now == expected[: last + 1].tolist()


def test_the_example_of_three_jobs_on_four_gpus() -> None:
    """deepspeech2 and gpt2 need two GPUs each; vgg16 is declined."""
    rates = {
        "deepspeech2": [3.0231577845960493, 5.3658588170062025, 7.543931899743629],
        "gpt2": [3.76, 6.959745, 11.5],
        "vgg16": [2.6247764189255065, 4.873619474205853, 8.720751494818506],
    }
    first, second, third = (
        Demand(left, due, Sizes.of(GPUS[:3], np.array(rates[model]), 4))
        for model, left, due in (
            ("deepspeech2", 9641, 1956), ("gpt2", 10996, 2096), ("vgg16", 18958, 2833),
        )
    )  # fmt: skip
    planner = Planner(4, 60.0)
    plans, _ = planner.plan_all([first, second])
    assert [each.first for each in plans] == [2, 2]
    assert [each.real_end for each in plans] == [1797.0, 1580.0]
    answers = AdmissionControl([], planner, arrivals="one-by-one").ask([first, second, third])
    assert [answer.enters for answer in answers] == [True, True, False]


def test_what_is_left_goes_to_the_job_that_gains_most_by_either_rule() -> None:
    """The good job saves no GPU time by more GPUs, the poor one wastes most of it."""
    demands = [Demand(800.0, FOREVER, sizes(1.0, 6)), Demand(800.0, FOREVER, sizes(0.3, 6))]
    planner, first = Planner(6, 10.0), {}
    for costliest in (False, True):
        plans, free = planner.plan_all(demands)
        planner.give_the_rest(demands, plans, free, costliest=costliest)
        first[costliest] = [each.first for each in plans]
    assert first == {False: [4, 2], True: [2, 4]}


demands_strategy = st.lists(
    st.tuples(st.integers(10, 5000), st.integers(30, 4000), st.sampled_from([1.0, 0.6, 0.3])),
    min_size=1,
    max_size=8,
).map(lambda jobs: [Demand(left, due, sizes(power)) for left, due, power in jobs])


@example(  # a restart that is longer than what is left of a deadline
    [
        Demand(left, due, sizes(power))
        for left, due, power in [
            *((10, 871, 1.0), (112, 30, 0.3), (224, 30, 0.3)),
            *((241, 30, 1.0), (384, 30, 0.6), (1211, 30, 0.6)),
        ]
    ],
    30.0,
)
@given(demands_strategy, st.sampled_from([0.0, 30.0]))
def test_plans_never_hold_more_gpus_than_there_are_and_do_all_the_work(
    demands: list[Demand], restart: float
) -> None:
    demands = [Demand(d.left, d.due, d.sizes, 0, restart) for d in demands]
    planner = Planner(8, 10.0)
    plans, free = planner.plan_all(sorted(demands, key=lambda each: each.due))
    planner.give_the_rest(sorted(demands, key=lambda each: each.due), plans, free)
    use = Steps.always(0)
    for demand, each in zip(sorted(demands, key=lambda d: d.due), plans, strict=True):
        use = use.plus(each.use)
        assert each.keeps == (each.real_end <= demand.due)
        times = np.append(each.use.times[:-1], each.real_end)
        done = sum(demand.work(each.use.gpus[:-1], np.diff(times).tolist(), 0))
        assert done >= demand.left * (1 - 1e-9)
    assert max(use.gpus) <= 8
    assert min(use.gpus) >= 0


jobs_strategy = st.lists(
    st.tuples(
        st.integers(0, 900),
        st.integers(30, 3000),
        st.none() | st.integers(60, 4000),
        st.sampled_from(list(SPEEDS)),
        st.sampled_from([1, 2, 4, 8]),
    ),
    min_size=1,
    max_size=10,
)


BETWEEN_ROUNDS: list[tuple[Any, ...]] = [  # the last comes, and starts, where nothing was due
    *[(0, 30, None, "good", 1)] * 7,
    *((0, 181, None, "good", 1), (0, 325, None, "poor", 4), (61, 283, 205, "fair", 8)),
]


@pytest.mark.slow
@pytest.mark.parametrize("clock", ["rounds", "events"])
@settings(max_examples=20)
@example(jobs=BETWEEN_ROUNDS, overhead=20.0)
@given(jobs=jobs_strategy, overhead=st.sampled_from([0.0, 20.0]))
def test_no_job_is_admitted_that_misses_its_deadline(
    tmp_path_factory: pytest.TempPathFactory,
    clock: str,
    jobs: list[tuple[Any, ...]],
    overhead: float,
) -> None:
    found = replayed(tmp_path_factory.mktemp("jobs"), jobs, clock=clock, overhead=overhead)
    assert set(found.status.tolist()) <= {"completed", "refused"}
    done = found.status == "completed"
    deadline = found.extra.get("deadline", np.full(len(found), np.nan))
    assert not (done & (found.jct > deadline + 1e-6)).any()


def test_a_job_that_starts_between_rounds_is_planned_in_the_next_one(tmp_path: Path) -> None:
    """On the two GPUs that were idle when it came it would be late."""
    found = replayed(tmp_path, BETWEEN_ROUNDS, overhead=20.0)
    assert found.status.tolist() == ["completed"] * 10
    assert found.jct[9] <= 205
    assert found.resizes[9] >= 1


def test_a_plan_waits_for_the_restart_that_goes_on() -> None:
    """Of a restart of 20 s, begun 5 s ago, 15 s are left; a change would begin another one."""
    free = Steps.always(8)
    going = Demand(100.0, 200.0, sizes(), has=1, restart=20.0, since=5.0)
    assert plan(going, free, 10.0).real_end == 115.0
    assert plan(replace(going, since=np.inf), free, 10.0).real_end == 100.0
    assert plan(going, free, 10.0, first=1).real_end == 115.0
    assert plan(going, free, 10.0, first=2).real_end == 70.0
    late = plan(replace(going, due=110.0, sizes=sizes(total=1)), Steps.always(1), 10.0)
    assert (late.keeps, late.real_end) == (False, 115.0)


def test_the_plans_of_a_promise_stay_where_planning_anew_breaks_it() -> None:
    """The first job holds two of four GPUs by its old plan, whatever is thought of its work now."""
    planner = Planner(4, 10.0)
    behind = Demand(1000.0, 100.0, sizes(total=4))
    kept = Plan(Steps.always(2), 100.0, 100.0, keeps=True)
    control = AdmissionControl([behind], planner, arrivals="one-by-one", promised={0: kept})
    answers = control.ask(
        [Demand(200.0, 100.0, sizes(total=4)), Demand(10.0, 100.0, sizes(total=4))]
    )
    assert [answer.enters for answer in answers] == [True, False]
    assert control.plans[0] is kept
    assert as_steps(control.plans[1]) == [(0.0, 2)]
    assert answers[1].earliest == 110.0


def test_strictly_no_job_enters_while_one_that_is_there_is_late() -> None:
    late = Demand(1000.0, 100.0, sizes(total=4))
    new = [Demand(10.0, 900.0, sizes(total=4)), Demand(10.0, FOREVER, sizes(total=4))]
    for arrivals, enters in (("one-by-one", True), ("strict", False)):
        answers = AdmissionControl([late], Planner(4, 10.0), arrivals=arrivals).ask(new)
        assert [answer.enters for answer in answers] == [enters, enters]
    answers = AdmissionControl([], Planner(4, 10.0), arrivals="strict").ask([late, *new])
    assert [answer.enters for answer in answers] == [False, True, True]


def test_a_job_is_declined_with_the_earliest_deadline_that_can_be_kept(tmp_path: Path) -> None:
    """Alone it takes 500 s on its only GPU, and plans are in slots of a minute."""
    found = replayed(tmp_path, [(0, 500, 400, "good", 1)])
    assert found.status.tolist() == ["refused"]
    assert found.reason[0] == (
        "Never: its deadline cannot be kept with those of the jobs that are there; "
        "the earliest that can is 540 s after the submit"
    )
    kept = replayed(tmp_path, [(0, 500, 540, "good", 1)])
    assert kept.status.tolist() == ["completed"]


def test_a_job_with_a_deadline_gets_the_gpus_that_it_needs_and_no_job_waits_idly(
    tmp_path: Path,
) -> None:
    """By itself a job has all GPUs; beside an urgent one as many as that leaves."""
    alone = replayed(tmp_path, [(0, 1000, 900, "good", 8)])
    assert alone.finish_time[0] == pytest.approx(1000 / 8**0.9, rel=1e-3)
    both = replayed(tmp_path, [(0, 4000, None, "good", 8), (120, 1500, 300, "good", 8)])
    assert both.status.tolist() == ["completed"] * 2
    assert both.jct[1] <= 300
    assert both.resizes[0] >= 1


def test_without_admission_every_job_runs_and_some_are_late(tmp_path: Path) -> None:
    jobs = [(0, 3000, 420, "poor", 8), (10, 3000, 420, "poor", 8)]
    found = replayed(tmp_path, jobs, admission="accept-all")
    assert found.status.tolist() == ["completed"] * 2
    assert (found.jct > 420).all()
    greedy = replayed(tmp_path, jobs, "shares=greedy", admission="accept-all")
    assert greedy.finish_time[0] < greedy.finish_time[1]


def test_its_state_comes_back_and_follows_a_packed_table() -> None:
    policy, again = ElasticFlow(ElasticFlowOptions()), ElasticFlow(ElasticFlowOptions())
    steps = Steps([0.0, 60.0], [2, 1])
    policy._promises.promise([3], [None], 7.0)
    policy._promises.keep([3, 5], [Plan(steps, 120.0, 110.0, True)] * 2, 7.0)
    again.load_state_dict(policy.state_dict())
    again.renumber(np.array([5, 3]), 0)
    kept = again._promises.kept_instead(
        [1], [Plan(steps, 120.0, 110.0, False)], Planner(8, 60.0), 37.0
    )
    assert kept is not None
    assert as_steps(kept[0]) == [(0.0, 2), (30.0, 1)]
    assert kept[0].real_end == 80.0
