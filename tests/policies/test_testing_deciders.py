"""The adversarial deciders: the world survives the wild ones and stops the unlawful ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dlsched.core.errors import BadInput, PolicyFailed
from dlsched.core.invariants import check_world
from dlsched.policies.registry import find, names
from simulate.clusters.cluster_events import ClusterEvent

pytestmark = pytest.mark.slow

WILD = ("testing-always-preempt", "testing-thrash", "testing-slow", "testing-random")
JOBS = [(0, 2, 500), (10, 4, 900), (20, 1, 200), (30, 3, 700), (700, 8, 100), (900, 1, 600)]


def occupancy_of(engine: Any) -> tuple[Any, ...]:
    o = engine.world.occupancy
    return (o.free[:], o.level[:], o.free_total, dict(o.held), dict(o.reserved))


def test_adversaries_are_found_by_name_but_listed_apart() -> None:
    adversaries = names("scheduling", for_tests=True)
    assert len(adversaries) == 8
    assert not set(adversaries) & set(names("scheduling"))
    assert all(find("scheduling", name).name == name for name in adversaries)


@pytest.mark.parametrize("policy", WILD)
@pytest.mark.parametrize("how", ["clock=rounds", "clock=events", "semantics=blox"])
def test_the_world_survives_a_wild_policy(lab: Any, policy: str, how: str) -> None:
    key, _, value = how.partition("=")
    given = {"clock": value} if key == "clock" else {"options": (how,)}
    result = lab.run(JOBS, policy, cluster="2x4", overhead=5.0, **given)
    assert result.jobs.status.tolist() == ["completed"] * len(JOBS)


@pytest.mark.parametrize("policy", WILD)
def test_the_world_survives_a_wild_policy_with_failing_nodes(lab: Any, policy: str) -> None:
    events = [
        ClusterEvent(time=100, kind="fail", node=0),
        ClusterEvent(time=250, kind="join", node=0),
        ClusterEvent(time=300, kind="drain", node=1),
        ClusterEvent(time=800, kind="undrain", node=1),
        ClusterEvent(time=950, kind="leave", node=1),
        ClusterEvent(time=1300, kind="join", node=1),
    ]
    result = lab.run(JOBS, policy, cluster="2x4", clock="rounds", interval=60.0, events=events)
    assert result.jobs.status.tolist() == ["completed"] * len(JOBS)


@pytest.mark.parametrize("policy", ["testing-always-preempt", "testing-thrash", "testing-random"])
def test_wild_policies_respect_the_minimum_run_time(lab: Any, policy: str) -> None:
    result = lab.run(JOBS, policy, cluster="2x4", clock="rounds", min_run=150.0)
    assert result.jobs.status.tolist() == ["completed"] * len(JOBS)


def test_thrash_moves_every_job_in_each_round(lab: Any) -> None:
    result = lab.run([(0, 2, 600)], "testing-thrash", cluster="2x4", clock="rounds", round_s=60)
    assert result.jobs.migrations.tolist() == [9]


@pytest.mark.parametrize("how", [{"clock": "rounds"}, {"clock": "events"}])
def test_a_policy_that_grants_nothing_ends_with_unfinished_jobs(lab: Any, how: Any) -> None:
    result = lab.run(JOBS, "testing-never", cluster="2x4", **how)
    assert result.jobs.status.tolist() == ["unfinished"] * len(JOBS)
    assert set(result.jobs.reason.tolist()) == {"Testing: this policy grants nothing"}
    assert result.warnings == ("6 jobs can never run",)


def test_a_policy_that_never_lets_a_job_work_is_stopped(lab: Any) -> None:
    # each move costs a restart as long as the round, so no job ever gets anywhere
    jobs = [(0, 2, 500), (0, 2, 500)]
    result = lab.run(
        jobs, "testing-thrash", cluster="2x4", clock="rounds", overhead=60, check=False
    )
    assert result.jobs.status.tolist() == ["unfinished", "unfinished"]
    assert "no progress" in result.warnings[0]


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_policy_that_raises_ends_the_run_and_changes_nothing(lab: Any, at: int) -> None:
    options = (f"at={at}",)
    engine = lab.engine(JOBS, "testing-raising", cluster="2x4", clock="events", options=options)
    before: list[tuple[Any, ...]] = [occupancy_of(engine)]
    engine.observers.append(lambda e, _: before.append(occupancy_of(e)))
    with pytest.raises(
        PolicyFailed, match=f"testing-raising failed.*decision {at} went wrong"
    ) as e:
        engine.run()
    assert "\n" not in str(e.value)
    assert occupancy_of(engine) == before[-1]
    check_world(engine.world.table, engine.world.occupancy, engine.now)


@pytest.mark.parametrize(
    "offence",
    ["twice", "taken", "missing", "out-of-service", "partial", "same-node", "ended", "reserved"],
)
@pytest.mark.parametrize("how", [{"clock": "events"}, {"options": ("semantics=blox",)}])
def test_a_policy_that_gives_what_it_must_not_is_stopped(
    lab: Any, offence: str, how: dict[str, Any]
) -> None:
    how = dict(how)
    how["options"] = (*how.get("options", ()), f"offence={offence}")
    away = [ClusterEvent(time=1e6, kind="join", node=1)]
    jobs = [(0, 2, 500), (10, 2, 900), (20, 2, 200), (30, 3, 700), (900, 1, 600)]
    engine = lab.engine(jobs, "testing-over-allocate", cluster="2x4", events=away, **how)
    before: list[tuple[Any, ...]] = [occupancy_of(engine)]
    engine.observers.append(lambda e, _: before.append(occupancy_of(e)))
    with pytest.raises(PolicyFailed, match=r"^policy testing-over-allocate: ") as error:
        engine.run()
    assert "\n" not in str(error.value)
    assert occupancy_of(engine)[:3] == before[-1][:3] or engine.world.finished
    check_world(engine.world.table, engine.world.occupancy, engine.now)


def test_a_raising_policy_counts_on_after_a_restart() -> None:
    policy = find("scheduling", "testing-raising")
    first = policy(policy.Options(at=3))
    first.load_state_dict({"decisions": 2})
    assert first.state_dict() == {"decisions": 2}


def test_the_random_policy_depends_on_the_seed_only(lab: Any) -> None:
    runs = [
        lab.outcome(lab.run(JOBS, "testing-random", cluster="2x4", clock="rounds", seed=seed))
        for seed in (1, 1, 2)
    ]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]
    assert np.isfinite(float(runs[0]["finish"][0]))


def test_an_elastic_job_goes_through_its_sizes_and_others_stay(lab: Any) -> None:
    trace = lab.trace([(0, 2, 500), (0, 2, 300)], min_gpus=[1, 2], max_gpus=[3, 2])
    sizes = ("sizes=2,9,1", "period_s=100")
    result = lab.run(
        trace, "testing-resize", cluster="2x4", clock="rounds", round_s=100, options=sizes
    )
    assert result.jobs.status.tolist() == ["completed"] * 2
    assert result.jobs.starts.tolist() == [3, 1]  # 2, then 3 as 9 is too many, then 1
    assert result.jobs.resizes.tolist() == [2, 0]


@pytest.mark.parametrize("sizes", ["", "2,x", "0", "2,,3", "-1"])
def test_sizes_that_are_none_are_refused(lab: Any, sizes: str) -> None:
    with pytest.raises(BadInput, match="GPU counts are needed"):
        lab.run(JOBS, "testing-resize", cluster="2x4", options=(f"sizes={sizes}",))
