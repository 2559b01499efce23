"""Fractions of GPUs in traces: they fill GPUs up to the whole, and everything counts them so."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.core.cluster.description import Cluster, Node, VirtualCluster
from dlsched.core.units import RUNNING
from simulate.checking import check_records
from simulate.population import offered_load
from simulate.results.outcomes import result_of


def test_fractions_fill_one_gpu_and_leave_the_other_to_a_whole_job(lab: Any) -> None:
    jobs = [(0, 0.25, 100), (0, 0.5, 100), (1, 0.25, 100), (2, 1, 50), (3, 0.5, 10)]
    result = lab.run(jobs, "fifo", cluster="1x2")
    assert lab.spans(result) == {
        "A": (0, 100), "B": (0, 100), "C": (1, 101), "D": (2, 52), "E": (52, 62)
    }  # fmt: skip
    check_records(result)
    assert result.jobs.gpu_seconds.tolist() == [25, 50, 25, 50, 5]
    assert result.jobs.num_gpus.tolist() == [1] * 5
    assert result.jobs.extra["gpu_share"].tolist() == [0.25, 0.5, 0.25, 1, 0.5]
    assert result.summary["gpu_utilization"] == pytest.approx(155 / (2 * 101))
    assert result.summary["offered_load"] == pytest.approx(155 / (2 * 3))


def test_more_than_a_gpu_is_as_many_equal_parts(lab: Any) -> None:
    result = lab.run([(0, 2.5, 100), (0, 0.5, 100)], "fifo", cluster="1x4")
    assert result.jobs.num_gpus.tolist() == [3, 1]
    assert result.jobs.gpu_seconds.tolist() == pytest.approx([250, 50])
    assert result.jobs.finish_time.tolist() == [100, 100]


def test_a_part_that_the_trace_names_is_not_packed_before_gpus_are_short(lab: Any) -> None:
    trace = lab.trace([(0, 1, 100), (0, 1, 100)], gpu_share=[0.5, 0.5])
    result = lab.run(trace, "fifo", cluster="1x2")
    assert "beside" not in result.jobs.extra
    assert result.jobs.gpu_seconds.tolist() == [50, 50]
    assert result.summary["unneeded_gpu_seconds"] == 100
    assert offered_load(trace, lab.cluster("1x2")) != 0


@pytest.mark.parametrize("policy", ["las", "tiresias", "multi-queue"])
def test_attained_service_counts_parts(lab: Any, policy: str) -> None:
    """Two whole jobs take turns, and a half attains as much as each if it runs all the time."""
    trace = lab.trace([(0, 1, 4000), (0, 1, 4000), (0, 1, 4000)], gpu_share=[0.5, np.nan, np.nan])
    engine = lab.engine(trace, policy, cluster="1x2", horizon=3030.0)
    engine.run()
    units = engine.cycle.ctx.units
    held = units.held_s
    assert units.attained.tolist() == pytest.approx((held * [0.5, 1.0, 1.0]).tolist())
    if policy == "las":
        assert held[0] == units.now, "what has attained least is not preempted"
        assert held[1] == pytest.approx(held[2], abs=900)


def quota(gpus: int) -> Cluster:
    nodes = [Node(name="n1", gpus=4)]
    return Cluster(nodes, [VirtualCluster(name="v", gpus=gpus, guaranteed=gpus)])


def test_a_quota_of_gpus_holds_parts_up_to_its_sum(lab: Any) -> None:
    """One GPU is the quota: four quarters run at once, a fifth waits for one of them."""
    trace = lab.trace([(0, 0.25, 100)] * 5, vc=["v"] * 5)
    result = lab.run(trace, "fifo", cluster=quota(1))
    assert sorted(result.jobs.first_start_time.tolist()) == [0, 0, 0, 0, 100]
    trace = lab.trace([(0, 0.1, 100)] * 11, vc=["v"] * 11)
    result = lab.run(trace, "fifo", cluster=quota(1))
    assert sorted(result.jobs.first_start_time.tolist()) == [0] * 10 + [100], "ten tenths make one"


def test_admission_by_quota_counts_parts(lab: Any) -> None:
    trace = lab.trace([(0, 0.5, 100)] * 3, user=["u"] * 3)
    result = lab.run(trace, "fifo", cluster="1x4", admission="quota", options=("admission.user=1",))
    assert result.jobs.first_start_time.tolist() == [0, 0, 100]


JOBS = st.lists(
    st.tuples(
        st.integers(0, 300),
        st.sampled_from([0.1, 0.25, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0]),
        st.integers(1, 400),
    ),
    min_size=1,
    max_size=14,
)


@given(jobs=JOBS, policy=st.sampled_from(["fifo", "srtf", "las", "easy"]))
def test_no_gpu_is_given_out_more_than_once_and_no_service_is_lost(
    lab: Any, jobs: list[tuple[float, float, float]], policy: str
) -> None:
    trace = lab.trace(jobs)
    engine = lab.engine(trace, policy, cluster="1x2+1x1", clock="rounds", round_s=60.0)
    world = engine.world

    def check(engine: Any, allocation: Any) -> None:
        taken: dict[tuple[int, int], float] = {}
        share = np.where(world.table.gpu_share > 0, world.table.gpu_share, 1.0)
        for row, placement in world.occupancy.held.items():
            for node, mask in zip(placement.nodes, placement.masks, strict=True):
                for gpu in range(mask.bit_length()):
                    if mask >> gpu & 1:
                        taken[node, gpu] = taken.get((node, gpu), 0.0) + share[row]
        assert all(part <= 1 + 1e-9 for part in taken.values()), taken

    engine.observers.append(check)
    stopped = engine.run()
    result = result_of(trace, lab.cluster("1x2+1x1"), lab.settings(policy), engine, stopped)
    check_records(result)
    assert result.summary["completed"] == len(jobs)
    assert not (world.table.status == RUNNING).any()
    asked = np.array([gpus * duration for _, gpus, duration in sorted(jobs, key=lambda j: j[0])])
    assert result.jobs.gpu_seconds.tolist() == pytest.approx(asked.tolist())
    assert result.summary["gpu_utilization"] <= 1 + 1e-9


@pytest.mark.parametrize("policy", ["las", "srtf", "multi-queue"])
@pytest.mark.parametrize("seed", range(8))
def test_moves_that_cost_nothing_count_parts_where_units_are(
    lab: Any, policy: str, seed: int
) -> None:
    """The replay compares the time line with what jobs have had."""
    rng = random.Random(seed)
    jobs = [
        (rng.choice([0, 60, 200]), rng.randint(1, 3), rng.randint(60, 900))
        for _ in range(rng.randint(4, 9))
    ]
    share = [rng.choice([0.5, 0.5, 0.3, np.nan]) for _ in jobs]
    options = ("semantics=sia",)
    trace = lab.trace(jobs, gpu_share=share)
    result = lab.run(trace, policy, cluster="2x3", options=options, round_s=60.0)
    assert (result.jobs.status == "completed").all()
