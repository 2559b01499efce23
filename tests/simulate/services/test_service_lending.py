"""Replicas take GPUs from trainings and give them back, worked by hand and on random clusters."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlsched.policies.services.service_times import Measured
from dlsched.policies.services.sizing import Sla
from simulate.clusters.cluster_events import ClusterEvent
from simulate.engine import Engine
from simulate.services.description import Requests, Service


def service(*steps: tuple[float, float], **settings: Any) -> Service:
    """Requests take 0.1 s; one replica keeps the promise at 1/s, two at 15/s."""
    times, rates = zip(*steps, strict=True)
    usual = {"most": 4, "setup_s": 20.0, "idle_s": 100.0, "windows": 1}
    return Service(
        name="ask",
        sla=Sla(within_s=1.0, share=0.9),
        service_time=Measured([0.1]),
        requests=Requests(times=times, rates=rates),
        **(usual | settings),
    )


BUSY = ((0.0, 1.0), (100.0, 15.0), (300.0, 1.0))


def test_a_training_gives_way_when_requests_come_and_goes_on_after_them(lab: Any) -> None:
    result = lab.run(
        [(0, 3, 1000)], "fifo", cluster="1x4", clock="events", services=[service(*BUSY)]
    )
    # replica 1 from 0 on; replica 2 is asked for when the window up to 110 has been seen, used
    # until the one up to 310, and quiet for 100 s: the training has no room from 110 to 410
    assert lab.spans(result) == {"A": (0, 1300)}
    assert result.jobs.preemptions.tolist() == [1]
    told = result.summary["services"]
    assert told["jobs_displaced"] == 1
    assert told["gpu_hours"] == pytest.approx((1300 + 300) / 3600)
    assert told["lent_gpu_hours"] == pytest.approx((4 * 1300 - 1600) / 3600)
    one = told["by_service"]["ask"]
    assert (one["cold_starts"], one["max_replicas"]) == (2, 2)
    assert one["missing_s"] == 20 + 20
    assert one["requests"] == pytest.approx(100 + 200 * 15 + 1000)
    # not in time: before replica 1 is warm; from 100 to 130 one replica is to answer 15/s
    assert one["in_time_share"] == pytest.approx(1 - (20 + 30 * 15) / 4100, abs=2e-3)
    assert one["kept_share"] == pytest.approx(1 - 50 / 1300)


def test_free_gpus_are_taken_before_a_training_has_to_go(lab: Any) -> None:
    result = lab.run(
        [(0, 2, 1000)], "fifo", cluster="2x2", clock="events", services=[service(*BUSY)]
    )
    assert lab.spans(result) == {"A": (0, 1000)}
    assert result.summary["services"]["jobs_displaced"] == 0


def test_the_training_that_began_last_gives_way_and_its_other_gpus_serve_others(lab: Any) -> None:
    jobs = [(0, 1, 1000), (1, 2, 1000), (2, 1, 50)]
    result = lab.run(jobs, "first-fit", cluster="1x4", clock="events", services=[service(*BUSY)])
    assert result.jobs.preemptions.tolist() == [0, 1, 0]
    assert lab.spans(result)["C"][0] == 110


def test_a_failed_node_takes_its_replicas_with_it_and_others_start_elsewhere(lab: Any) -> None:
    fails = ClusterEvent(time=50, kind="fail", node=0)
    back = ClusterEvent(time=500, kind="join", node=0)
    result = lab.run(
        [(0, 1, 800)],
        "fifo",
        cluster="2x1",
        clock="events",
        events=[fails, back],
        services=[service((0.0, 1.0))],
    )
    one = result.summary["services"]["by_service"]["ask"]
    assert one["cold_starts"] == 2
    assert result.summary["services"]["jobs_displaced"] == 1
    assert lab.spans(result)["A"][1] == 500 + 750


def test_requests_that_come_in_a_day_shape_come_again(lab: Any) -> None:
    requests = Requests(times=(0.0, 500.0), rates=(1.0, 15.0), period_s=1000.0)
    daily = replace(service((0.0, 1.0)), requests=requests)
    result = lab.run([(0, 1, 2950)], "fifo", cluster="1x4", clock="events", services=[daily])
    one = result.summary["services"]["by_service"]["ask"]
    assert one["cold_starts"] == 1 + 3
    assert one["requests"] == pytest.approx(3 * 500 * 16 - 50 * 15)


def watched(engine: Engine) -> list[int]:
    """Check at each decision that closed GPUs are those of replicas; their numbers."""
    seen: list[int] = []

    def look(engine: Engine, allocation: Any) -> None:
        assert engine.lending is not None
        held: dict[int, int] = {}
        for serving in engine.lending.all:
            assert max(serving.held, default=0) <= serving.service.most
            for placement in serving.held.values():
                (node,), (mask,) = placement
                assert not held.get(node, 0) & mask
                held[node] = held.get(node, 0) | mask
        assert held == engine.world.occupancy.closed
        for row, placement in engine.world.occupancy.held.items():
            for node, mask in zip(*placement, strict=True):
                assert not mask & held.get(node, 0), row
        seen.append(sum(mask.bit_count() for mask in held.values()))

    engine.observers.append(look)
    return seen


steps = st.lists(st.sampled_from([0.0, 2.0, 15.0, 40.0]), min_size=1, max_size=6).map(
    lambda rates: tuple((150.0 * k, rate) for k, rate in enumerate(rates))
)


@settings(max_examples=12)
@given(
    policy=st.sampled_from(["fifo", "srtf", "las", "tiresias", "first-fit"]),
    first=steps,
    second=steps,
    noise=st.booleans(),
    gateways=st.integers(1, 3),
    reserve=st.integers(0, 1),
    jobs=st.lists(
        st.tuples(st.integers(0, 600), st.integers(1, 5), st.integers(1, 400)),
        min_size=1,
        max_size=10,
    ),
)
def test_no_gpu_is_lent_twice_whatever_comes(
    lab: Any,
    policy: str,
    first: Any,
    second: Any,
    noise: bool,
    gateways: int,
    reserve: int,
    jobs: Any,
) -> None:
    services = [
        service(*first, noise=noise, gateways=gateways, gpus=2),
        service(*second, noise=noise, reserve=reserve),
    ]
    engine = lab.engine(jobs, policy, cluster="3x4", services=services)
    engine.horizon = 20_000.0
    watched(engine)
    engine.run()
    assert engine.lending is not None
    assert all(serving.starts for serving in engine.lending.all)


@pytest.mark.parametrize("clock", ["rounds", "events"])
@pytest.mark.parametrize("policy", ["fifo", "srtf", "las", "tiresias", "easy", "themis", "afs"])
def test_trainings_of_any_policy_end_beside_services(lab: Any, policy: str, clock: str) -> None:
    rng = np.random.default_rng(3)
    jobs = [
        (int(at), int(gpus), int(long))
        for at, gpus, long in zip(
            rng.integers(0, 500, 12),
            rng.choice([1, 2, 4], 12),
            rng.integers(50, 900, 12),
            strict=True,
        )
    ]
    engine = lab.engine(jobs, policy, cluster="2x4", clock=clock, services=[service(*BUSY)])
    seen = watched(engine)
    engine.run()
    assert (engine.world.table.finish > 0).all()
    assert {1, 2} <= set(seen)
