"""The agenda: what becomes visible when, what triggers a decision, and how a run ends."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dlsched.core.allocation import Refused
from dlsched.core.cluster.description import Cluster, Node, VirtualCluster
from dlsched.core.context import RoundContext
from dlsched.core.errors import BadInput, PolicyFailed
from dlsched.core.options import NoOptions
from dlsched.core.scheduling import SchedulingPolicy
from dlsched.core.semantics import Semantics
from dlsched.core.speed.truth import PerformanceModel
from dlsched.core.stage import AdmissionPolicy, Estimator, FairnessPolicy
from dlsched.core.units import Units
from dlsched.core.walk.walk import Walk
from simulate.published.profiles import PROFILES

FULL = replace(PROFILES["rounds"], between="full")

# -- when things become visible -------------------------------------------------------------------


def test_rounds_decide_on_the_grid_and_fill_in_between(lab: Any) -> None:
    # the GPU is free at 90: C fills it then; the grid is 60
    jobs = [(0, 1, 90), (10, 1, 30)]
    result = lab.run(jobs, "las", cluster="1x1", clock="rounds", round_s=60)
    # at 60 B has had less and takes over; A fills at 90
    assert lab.spans(result) == {"A": (0, 120), "B": (60, 90)}


def test_an_arrival_finds_an_idle_gpu_at_once(lab: Any) -> None:
    result = lab.run([(0, 1, 10), (70, 1, 10)], clock="rounds", round_s=60)
    assert lab.spans(result)["B"] == (70, 80)


def test_under_blox_everything_happens_on_the_grid(lab: Any) -> None:
    result = lab.run([(1, 1, 10), (301, 1, 10)], options=("semantics=blox",))
    assert lab.spans(result) == {"A": (300, 600), "B": (600, 900)}


def test_the_column_round_delivered_says_when_a_job_is_seen(lab: Any) -> None:
    trace = lab.trace([(0, 1, 10), (50, 1, 10)], round_delivered=[0.0, 300.0])
    result = lab.run(trace, options=("semantics=blox",))
    assert result.jobs.first_start_time.tolist() == [0, 300]
    early = lab.trace([(0, 1, 10), (450, 1, 10)], round_delivered=[0.0, 300.0])
    result = lab.run(early, options=("semantics=blox",), check=False)
    assert result.jobs.first_start_time.tolist() == [0, 300]


def test_a_decision_at_every_tick_and_every_change_can_be_had(lab: Any) -> None:
    engine = lab.engine(
        [(0, 1, 180), (70, 1, 20)], "srtf", cluster="1x1", skipping=False, semantics=FULL
    )
    times: list[float] = []
    engine.observers.append(lambda e, _: times.append(e.now))
    engine.run()
    assert engine.world.table.first_start.tolist() == [0, 70], "B preempts at once"
    # between two changes the ticks at which a job waits decide too
    engine = lab.engine(
        [(0, 1, 200), (70, 1, 200)], "srtf", cluster="1x1", skipping=False, semantics=FULL
    )
    engine.observers.append(lambda e, _: times.append(e.now))
    times.clear()
    engine.run()
    assert times == [0, 70, 120, 180, 200]


@pytest.mark.parametrize("policy", ["fifo", "las"])
def test_a_child_starts_when_its_parents_have_ended(lab: Any, policy: str) -> None:
    trace = lab.trace([(0, 1, 10), (0, 1, 30), (0, 1, 5)], parents=["", "", "A B"])
    result = lab.run(trace, policy, cluster="1x2")
    assert lab.spans(result)["C"] == (30, 35)


def test_a_child_may_be_submitted_after_its_parents_have_ended(lab: Any) -> None:
    trace = lab.trace([(0, 1, 10), (50, 1, 5), (50, 1, 5)], parents=["", "A", ""])
    assert lab.spans(lab.run(trace, "las", cluster="1x4"))["B"] == (50.0, 55.0)


def test_a_child_is_seen_on_the_grid_where_arrivals_are(lab: Any) -> None:
    trace = lab.trace([(0, 1, 10), (0, 1, 5)], parents=["", "A"])
    exact = replace(PROFILES["blox"], release="exact", finish="exact")
    engine = lab.engine(trace, cluster="1x2", semantics=exact)
    engine.run()
    assert engine.world.table.first_start.tolist() == [0, 300]


def test_children_of_a_refused_job_are_refused_too(lab: Any) -> None:
    jobs = [(0, 99, 10), (0, 1, 5), (0, 1, 5), (0, 1, 5)]
    result = lab.run(lab.trace(jobs, parents=["", "A", "B", ""]))
    assert result.jobs.status.tolist() == ["refused", "refused", "refused", "completed"]
    assert result.jobs.reason[1] == "Never: waits for a job that was refused"
    assert not result.warnings


def test_a_trace_whose_jobs_are_all_refused_ends_at_once(lab: Any) -> None:
    result = lab.run([(0, 99, 10)])
    assert result.jobs.status.tolist() == ["refused"]
    assert result.jobs.reason.tolist() == ["Never: asks for 99 GPUs, the cluster has 4"]


def test_a_gang_larger_than_its_quota_is_refused_up_front(lab: Any) -> None:
    cluster = Cluster(
        [Node(name="a", gpus=8)],
        [VirtualCluster(name="red", gpus=2, guaranteed=2), VirtualCluster(name="blue", gpus=8)],
    )
    trace = lab.trace([(0, 4, 10), (0, 4, 10)], vc=["red", "blue"])
    result = lab.run(trace, cluster=cluster)
    assert result.jobs.status.tolist() == ["refused", "completed"]
    assert result.jobs.reason[0] == "Never: asks for 4 GPUs, vc red may use 2"


def test_a_job_that_no_node_could_feed_is_refused_up_front(lab: Any) -> None:
    cluster = Cluster([Node(name="a", gpus=4, cpus=16)])
    trace = lab.trace([(0, 1, 10), (0, 1, 10)], num_cpus=[17.0, 16.0])
    result = lab.run(trace, cluster=cluster)
    assert result.jobs.status.tolist() == ["refused", "completed"]
    assert result.jobs.reason[0] == (
        "Never: cannot be placed even on the empty cluster: "
        "needs 1 GPU with 17 CPUs, the cluster has 0 such GPUs"
    )


# -- how a run ends -------------------------------------------------------------------------------


def test_a_run_stops_when_the_tracked_jobs_have_ended(lab: Any) -> None:
    trace = lab.trace([(0, 1, 10), (0, 1, 20), (0, 1, 999)], names=["1", "2", "3"])
    result = lab.run(trace, track=("1", "2"))
    assert result.jobs.status.tolist() == ["completed", "completed", "unfinished"]
    assert result.summary["end_time"] == 20


def test_a_horizon_cuts_a_run_short(lab: Any) -> None:
    result = lab.run([(0, 1, 100), (0, 4, 100)], horizon=60.0)
    assert result.jobs.status.tolist() == ["unfinished", "unfinished"]
    assert result.jobs.gpu_seconds.tolist() == [60, 0]
    assert result.summary["stopped"] == "the horizon of 60 s was reached"


def test_a_run_can_go_on_after_its_horizon(lab: Any) -> None:
    jobs = [(k * 11, 1 + k % 4, 50 + 17 * k) for k in range(9)]
    whole = lab.engine(jobs, "las")
    whole.run()
    cut = lab.engine(jobs, "las", horizon=97.0)
    cut.run()
    cut.horizon = np.inf
    cut.run()
    assert cut.world.table.finish.tolist() == whole.world.table.finish.tolist()


def test_the_same_seed_gives_the_same_outcome_and_the_clock_is_not_asked(lab: Any) -> None:
    jobs = [(k * 11, 1 + k % 4, 50 + 17 * k) for k in range(9)]
    runs = [lab.run(jobs, "testing-slow", clock="rounds") for _ in range(2)]
    assert lab.outcome(runs[0]) == lab.outcome(runs[1])


def test_simultaneous_ends_and_arrivals_are_one_event(lab: Any) -> None:
    engine = lab.engine([(0, 2, 10), (0, 2, 10), (10, 4, 5)], clock="events")
    decided: list[float] = []
    engine.observers.append(lambda e, _: decided.append(e.now))
    engine.run()
    assert decided == [0, 10]


def test_a_job_of_no_length_ends_when_it_starts(lab: Any) -> None:
    result = lab.run([(5, 1, 0)])
    assert lab.spans(result) == {"A": (5, 5)}


def test_an_idle_gap_costs_no_decisions(lab: Any) -> None:
    result = lab.run([(0, 1, 10), (1e7, 1, 10)], "las", clock="rounds")
    assert result.summary["decisions"] <= 3


# -- parts that misbehave -------------------------------------------------------------------------


class BadEstimator(Estimator[NoOptions]):
    name = "bad"

    def __init__(self, answer: Any) -> None:
        super().__init__(NoOptions())
        self.answer = answer

    def predict(self, units: Units, true_work: Any, ctx: RoundContext) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return np.array(self.answer, np.float64)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (ValueError("no idea"), "estimator bad failed: ValueError"),
        ([1.0, 2.0, 3.0], "answered for"),
        ([-1.0], "negative"),
    ],
)
def test_an_estimator_that_misbehaves_ends_the_run_with_one_line(
    lab: Any, answer: Any, why: str
) -> None:
    engine = lab.engine([(0, 1, 10)])
    engine.parts.estimator = BadEstimator(answer)
    with pytest.raises(PolicyFailed, match=why):
        engine.run()


class BadFairness(FairnessPolicy[NoOptions]):
    name = "bad"

    def entitle(self, units: Units, ctx: RoundContext) -> Any:
        raise KeyError("vc")


def test_a_fairness_part_that_raises_ends_the_run_with_one_line(lab: Any) -> None:
    engine = lab.engine([(0, 1, 10)])
    engine.parts.fairness = BadFairness(NoOptions())
    with pytest.raises(PolicyFailed, match="fairness bad failed: KeyError"):
        engine.run()


class BadAdmission(AdmissionPolicy[NoOptions]):
    name = "bad"

    def admit(self, queue: Units, ctx: RoundContext) -> Any:
        return np.ones(len(queue) + 1, np.bool_), {}


def test_an_admission_of_the_wrong_shape_ends_the_run_with_one_line(lab: Any) -> None:
    engine = lab.engine([(0, 1, 10)])
    engine.parts.admission = BadAdmission(NoOptions())
    with pytest.raises(PolicyFailed, match="admission bad answered for"):
        engine.run()


class NeverAdmits(AdmissionPolicy[NoOptions]):
    name = "never"

    def admit(self, queue: Units, ctx: RoundContext) -> Any:
        return np.zeros(len(queue), np.bool_), dict.fromkeys(
            queue.rows.tolist(), Refused("Admission", "not today")
        )


@pytest.mark.parametrize("clock", ["rounds", "events"])
def test_an_admission_that_admits_no_job_does_not_hang(lab: Any, clock: str) -> None:
    engine = lab.engine([(0, 1, 10), (5, 1, 10)], clock=clock)
    engine.parts.admission = NeverAdmits(NoOptions())
    stopped = engine.run()
    assert stopped.reason == "2 jobs can never run"
    assert str(engine.refusals[1]) == "Admission: not today"


@pytest.mark.parametrize("clock", ["rounds", "events"])
@pytest.mark.parametrize("policy", ["sia", "pollux"])
def test_a_job_that_fits_on_no_one_gpu_type_ends_the_run_soon(
    lab: Any, policy: str, clock: str
) -> None:
    jobs = [(0, 3, 600), (10, 5, 600), (20, 2, 600)]
    result = lab.run(jobs, policy, cluster="2x2:v100+1x4:k80", clock=clock)
    assert result.jobs.status.tolist() == ["completed", "unfinished", "completed"]
    assert "1 job can never run" in result.warnings
    assert result.summary["decisions"] < 30  # eleven rounds of a minute, and those of arrivals


class Sleeper(SchedulingPolicy[NoOptions]):
    """Starts every job an hour after the first decision, by its own alarm."""

    name = "sleeper"

    def allocate(self, units: Units, ctx: RoundContext, walk: Walk) -> None:
        if ctx.now < 3600:
            walk.wake_at(3600.0)
            walk.stable_until(3600.0)
            return
        for row in units.rows.tolist():
            walk.place(row)


@pytest.mark.parametrize("clock", ["rounds", "events"])
@pytest.mark.parametrize("skipping", [True, False])
def test_a_policy_is_woken_when_it_asked_to_be(lab: Any, clock: str, skipping: bool) -> None:
    engine = lab.engine([(0, 1, 10)], clock=clock, skipping=skipping)
    engine.parts.scheduling = Sleeper(NoOptions())
    engine.run()
    assert engine.world.table.first_start.tolist() == [3600]


class PatientSleeper(Sleeper):
    """The same, but it does not say for how long its answer holds; it waits for months."""

    def allocate(self, units: Units, ctx: RoundContext, walk: Walk) -> None:
        if ctx.now < 2e6:
            walk.wake_at(2e6)
            return
        for row in units.rows.tolist():
            walk.place(row)


def test_a_policy_that_waits_for_its_alarm_is_not_taken_for_dead(lab: Any) -> None:
    engine = lab.engine([(0, 1, 10)], clock="rounds", check=False)
    engine.parts.scheduling = PatientSleeper(NoOptions())
    engine.run()
    assert engine.world.table.first_start[0] == pytest.approx(2e6, abs=60)


# -- drifting rounds ------------------------------------------------------------------------------

DRIFT = Semantics(name="drift", grid=100.0, drift=True, release="tick")


class Speed(PerformanceModel):
    def __init__(self, rate: float) -> None:
        self.value = rate

    def rate(self, *_: Any, **__: Any) -> float:
        return self.value


@pytest.mark.parametrize(
    ("rate", "work", "rounds", "finish"),
    [
        (1.0, 250, [0, 100, 200], 250),
        (0.3, 60, [0, 100], 200),  # 30 steps in exactly 100 s
        (0.35, 40, [0, 100], 40 / 0.35),  # 35 steps take 100 s
        (0.33, 40, [0, 100], 40 / 0.33),
        (0.016, 2, [0, 62.5], 125),  # one step is 62.5 s, and a second does not fit: round ends
    ],
)
def test_a_drifting_round_ends_when_its_last_job_stops(
    lab: Any, rate: float, work: float, rounds: list[float], finish: float
) -> None:
    engine = lab.engine(
        [(0, 1, work)], "testing-always-preempt", performance=Speed(rate), semantics=DRIFT
    )
    times: list[float] = []
    engine.observers.append(lambda e, _: times.append(e.now))
    engine.run()
    assert engine.world.table.finish[0] == pytest.approx(finish)
    assert times == pytest.approx(rounds, abs=1.0)


def test_gpus_are_held_until_the_round_ends_though_the_finish_is_exact(lab: Any) -> None:
    engine = lab.engine([(0, 1, 30), (0, 1, 80), (10, 1, 10)], cluster="1x2", semantics=DRIFT)
    engine.run()
    table = engine.world.table
    assert table.finish.tolist() == [30, 80, 90]
    assert table.first_start.tolist() == [0, 0, 80]
    assert table.attained.tolist() == [80, 80, 10]


def test_a_restart_comes_out_of_a_drifting_round(lab: Any) -> None:
    engine = lab.engine([(0, 1, 150)], overhead=30.0, semantics=DRIFT)
    engine.run()
    assert engine.world.table.finish.tolist() == [180]
    assert engine.world.table.overhead_s.tolist() == [30]


def test_a_restart_longer_than_a_drifting_round_is_worked_off(lab: Any) -> None:
    engine = lab.engine([(0, 1, 50)], overhead=250.0, semantics=DRIFT)
    engine.run()
    assert engine.world.table.finish.tolist() == [300]


# -- before the start -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"policy": "no-such"}, "policy 'no-such' is not known"),
        ({"placement": "no-such"}, "placement 'no-such' is not known"),
        ({"admission": "no-such"}, "admission 'no-such' is not known"),
        ({"estimate": "no-such"}, "estimate 'no-such' is not known"),
        ({"estimate": "oracle:1"}, "takes no value"),
        ({"estimate": "noise:much"}, "must be a number"),
        ({"estimate": "user"}, "needs the column time_limit"),
        ({"options": ("misfit=maybe",)}, "must be one of"),
        ({"options": ("misfit",)}, "does not read KEY=VALUE"),
        ({"options": ("no_such=1",)}, "no_such"),
        ({"options": ("semantics=no-such",)}, "'no-such' is not known"),
        ({"clock": "sundial"}, "rounds or events"),
        ({"clock": "events", "options": ("semantics=blox",)}, "contradicts"),
        ({"clock": "events", "round_s": 60.0}, "has no rounds"),
        ({"clock": "rounds", "round_s": 0.0}, "positive"),
        ({"clock": "rounds", "round_s": float("inf")}, "positive"),
        ({"load": 0.0}, "--load"),
        ({"load": float("nan")}, "--load"),
        ({"track": ("Y", "Z")}, "--track"),
    ],
)
def test_settings_that_cannot_run_are_refused_before_the_start(
    lab: Any, given: dict[str, Any], why: str
) -> None:
    given = dict(given)
    policy = given.pop("policy", "fifo")
    with pytest.raises(BadInput, match=why) as error:
        lab.engine([(0, 1, 10)], policy, **given)
    assert "\n" not in str(error.value)


def test_an_engine_that_is_dropped_is_freed_at_once(lab):
    gc.collect()
    gc.disable()
    try:
        engine = weakref.ref(lab.engine([(0, 1, 10)], "fifo", cluster="1x1"))
        assert engine() is None
    finally:
        gc.enable()
