"""What must hold for every scheduling policy on any trace and any cluster.

Policies and placements are discovered from the registry. Each run checks every invariant after
every decision (no GPU twice, gangs whole, pools kept, work conserved, records that add up); the
tests here add what can be said of the outcome.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dlsched.policies.registry import names
from simulate.clusters.cluster_events import ClusterEvent
from simulate.results.tables import ReplayResult

POLICIES = [*names("scheduling"), "testing-always-preempt", "testing-thrash", "testing-random"]
FEW = ("what-if.scheduling=las,srtf", "what-if.admission=accept-all")
TOLERANCE_S = 1e-6

jobs_of = st.lists(
    st.tuples(
        st.one_of(st.integers(0, 300), st.sampled_from([0.0, 60.0, 120.0])),
        st.integers(1, 7),
        st.one_of(st.integers(1, 400), st.floats(0.01, 400.0)),
    ),
    min_size=1,
    max_size=15,
)
situations = st.fixed_dictionaries(
    {
        "jobs": jobs_of,
        "cluster": st.sampled_from(["1x7", "2x4", "3x3", "1x4+2x2", "7x1", "2x4:a+1x2:b"]),
        "placement": st.sampled_from(names("placement")),
        "clock": st.sampled_from(["rounds", "events", ""]),
        "overhead": st.sampled_from([0.0, 7.5]),
        "min_run": st.sampled_from([0.0, 0.0, 45.0]),
        "round_s": st.sampled_from([None, None, 17.0, 0.1 * 300]),  # longer than a restart
    }
)
failures = st.lists(
    st.tuples(st.integers(1, 600), st.sampled_from(["fail", "leave", "drain"]), st.integers(0, 1)),
    max_size=4,
)


def run(lab: Any, policy: str, situation: dict[str, Any], **more: Any) -> ReplayResult:
    given = dict(situation)
    if policy == "what-if":  # each of its decisions is two runs to the end
        given["jobs"] = given["jobs"][:5]
        given["round_s"] = None
    if policy in ("testing-always-preempt", "testing-thrash"):
        given["overhead"] = 0.0  # were all moved each round, none would ever be ready
    if given["clock"] == "":  # stands for Blox
        given["options"] = ("semantics=blox", *FEW)
        del given["clock"]
    else:
        given["options"] = FEW
    if given.get("clock") == "events":
        del given["round_s"]
    result: ReplayResult = lab.run(given.pop("jobs"), policy, **given, **more)
    return result


def check_outcome(result: ReplayResult, overhead: float) -> None:
    jobs = result.jobs
    done = jobs.status == "completed"
    assert set(jobs.status.tolist()) <= {"completed", "refused"}
    assert all(jobs.reason[~done])
    least = jobs.submit_time + jobs.duration + overhead
    assert (jobs.finish_time[done] >= least[done] - TOLERANCE_S).all()
    assert (jobs.first_start_time[done] >= jobs.submit_time[done] - TOLERANCE_S).all()
    assert (jobs.starts[done] >= 1).all()
    worked = (jobs.duration + overhead) * jobs.num_gpus
    assert (jobs.gpu_seconds[done] >= worked[done] - TOLERANCE_S * jobs.num_gpus[done]).all()
    assert (jobs.gpu_seconds[~done] == 0).all()
    assert (result.timeline.allocated_gpus <= result.timeline.total_gpus).all()


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=9, suppress_health_check=[HealthCheck.too_slow])
@given(situation=situations)
def test_any_trace_on_any_cluster_is_run_to_its_end(
    lab: Any, policy: str, situation: dict[str, Any]
) -> None:
    overhead = 0.0 if policy.startswith("testing") else situation["overhead"]
    check_outcome(run(lab, policy, situation), overhead)


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=6)
@given(situation=situations, events=failures, interval=st.sampled_from([None, 30.0]))
def test_nodes_may_fail_leave_and_drain_at_any_time(
    lab: Any, policy: str, situation: dict[str, Any], events: list[Any], interval: float | None
) -> None:
    nodes = lab.cluster(situation["cluster"]).names
    script = []
    for time, kind, node in events:
        if node < len(nodes):
            script.append(ClusterEvent(time=time, kind=kind, node=node))
            back = "undrain" if kind == "drain" else "join"
            script.append(ClusterEvent(time=time + 90, kind=back, node=node))
    result = run(lab, policy, situation, events=script, interval=interval)
    check_outcome(result, 0.0)


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=3)
@given(situation=situations)
def test_the_same_input_gives_the_same_outcome(
    lab: Any, policy: str, situation: dict[str, Any]
) -> None:
    runs = [lab.outcome(run(lab, policy, situation, seed=3)) for _ in range(2)]
    assert runs[0] == runs[1]


def random_jobs(random_: random.Random, count: int, most_gpus: int) -> list[tuple[int, int, int]]:
    """Jobs that come so fast that some of them wait."""
    return [
        (random_.randrange(25 * count), random_.randint(1, most_gpus), random_.randint(1, 400))
        for _ in range(count)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("policy", names("scheduling"))
@settings(max_examples=8)
@given(
    seed=st.integers(0, 1000),
    clock=st.sampled_from(["rounds", "events"]),
    min_run=st.sampled_from([45.0, 90.0, 130.0]),
)
def test_a_job_keeps_its_gpus_for_the_minimum_time(
    lab: Any, policy: str, seed: int, clock: str, min_run: float
) -> None:
    """Also one that shares GPUs with a job that has them for longer already."""
    random_ = random.Random(seed)
    jobs = random_jobs(random_, 5 if policy == "what-if" else 12, 3)
    trace = lab.trace(jobs, gpu_share=[random_.choice([1.0, 0.5, 0.5, 0.3]) for _ in jobs])
    engine = lab.engine(trace, policy, cluster="2x3", clock=clock, min_run=min_run, options=FEW)
    engine.between_rounds = None  # each start is seen
    began: dict[int, float] = {}

    def see(engine: Any, allocation: Any) -> None:
        for row in allocation.suspended:
            assert engine.now - began[row] >= min_run, f"job {row} at {engine.now:g} s"
        began.update(dict.fromkeys(allocation.launched, engine.now))

    engine.observers.append(see)
    engine.run()


@pytest.mark.slow
@pytest.mark.parametrize("policy", names("scheduling"))
@settings(max_examples=5)
@given(seed=st.integers(0, 1000), clock=st.sampled_from(["rounds", "rounds", "events"]))
def test_the_order_in_which_jobs_got_their_gpus_decides_nothing(
    lab: Any, policy: str, seed: int, clock: str
) -> None:
    """A live cluster that starts anew does not know it."""
    shuffle = random.Random(seed)
    jobs = random_jobs(shuffle, 5 if policy == "what-if" else 60, 6)

    def forget_order(engine: Any, _: Any) -> None:
        held = engine.world.occupancy.held
        rows = shuffle.sample(list(held), len(held))
        placements = [held.pop(row) for row in rows]
        held.update(zip(rows, placements, strict=True))

    outcomes = []
    for observers in ([], [forget_order]):
        engine = lab.engine(jobs, policy, cluster="2x4", clock=clock, options=FEW)
        engine.observers += observers
        engine.run()
        table = engine.world.table
        outcomes.append((table.first_start.tolist(), table.finish.tolist(), table.starts.tolist()))
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("policy", [p for p in names("scheduling") if p != "what-if"])
@settings(max_examples=12)
@given(situation=situations)
def test_a_non_preemptive_policy_starts_every_job_once(
    lab: Any, policy: str, situation: dict[str, Any]
) -> None:
    engine = lab.engine([(0, 1, 1)], policy)
    if engine.parts.scheduling.preemptive or situation["clock"] == "":
        return
    jobs = run(lab, policy, situation).jobs
    assert (jobs.starts[jobs.status == "completed"] == 1).all()
    assert jobs.preemptions.sum() == jobs.migrations.sum() == 0


@pytest.mark.exhaustive
@pytest.mark.timeout(1800)
# an integer program a decision: its 25 traces above take long enough
@pytest.mark.parametrize("policy", [policy for policy in POLICIES if policy != "shockwave"])
@settings(max_examples=150)
@given(
    situation=situations,
    events=failures,
    interval=st.sampled_from([None, 30.0]),
    more=st.lists(jobs_of, max_size=3),
)
def test_many_more_traces_and_clusters(
    lab: Any,
    policy: str,
    situation: dict[str, Any],
    events: list[Any],
    interval: float | None,
    more: list[Any],
) -> None:
    situation = dict(situation, jobs=[*situation["jobs"], *(job for jobs in more for job in jobs)])
    nodes = lab.cluster(situation["cluster"]).names
    script = [
        ClusterEvent(time=time + shift, kind=what, node=node)
        for time, kind, node in events
        if node < len(nodes)
        for shift, what in ((0, kind), (90, "undrain" if kind == "drain" else "join"))
    ]
    result = run(lab, policy, situation, events=script, interval=interval)
    check_outcome(result, 0.0)
    again = run(lab, policy, situation, events=script, interval=interval, skipping=False)
    assert lab.outcome(again) == lab.outcome(result)
    assert np.isfinite(result.summary["avg_jct"] or 0.0)
