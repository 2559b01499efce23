"""From a trace to units: codes, rounding, pools, families and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dlsched.core.cluster.description import Cluster, Node, VirtualCluster, parse_cluster_spec
from dlsched.core.errors import BadInput
from simulate.population import offered_load, populate, scaled_submits

ONE = parse_cluster_spec("1x4")


def test_fractions_of_a_gpu_become_whole_ones(lab: Any) -> None:
    units, *_ = populate(lab.trace([(0, 0.25, 1), (0, 1.5, 1), (0, 0, 1), (0, 3, 1)]), ONE)
    assert units.gang.tolist() == [1, 2, 1, 3]


def test_owners_are_codes_in_order_of_appearance(lab: Any) -> None:
    trace = lab.trace([(0, 1, 1)] * 4, user=["bob", "", "ann", "bob"], vc=["", "x", "x", "y"])
    units, *_ = populate(trace, ONE)
    assert (units.user.tolist(), units.names["user"]) == ([0, -1, 1, 0], ("bob", "ann"))
    assert (units.vc.tolist(), units.names["vc"]) == ([-1, 0, 0, 1], ("x", "y"))


def test_further_columns_reach_policies_by_name(lab: Any) -> None:
    trace = lab.trace(
        [(0, 1, 1)] * 2, model=["vgg16", "a3c"], tokens=[1.0, 2.0], priority=[1.0, 2.0]
    )
    units, *_ = populate(trace, ONE)
    assert units.extra["model"].tolist() == ["vgg16", "a3c"]
    assert units.extra["tokens"].tolist() == [1, 2]
    assert units.priority.tolist() == [1, 2]


def test_load_divides_the_gaps_and_keeps_the_first_submit() -> None:
    assert scaled_submits(np.array([10.0, 20.0, 40.0]), 2.0).tolist() == [10, 15, 25]
    assert scaled_submits(np.array([10.0, 20.0]), None).tolist() == [10, 20]
    assert scaled_submits(np.array([]), 2.0).tolist() == []


def test_the_offered_load_is_the_work_over_the_capacity(lab: Any) -> None:
    trace = lab.trace([(0, 2, 100), (100, 4, 50)])
    assert offered_load(trace, ONE) == pytest.approx((200 + 200) / (4 * 100))
    assert offered_load(trace, ONE, 0.5) == pytest.approx(0.5)
    assert np.isnan(offered_load(lab.trace([(0, 2, 100)]), ONE))


def test_round_delivered_moves_with_the_load(lab: Any) -> None:
    trace = lab.trace([(0, 1, 1), (90, 1, 1)], round_delivered=[0.0, 300.0])
    *_, visible = populate(trace, ONE)
    assert visible.tolist() == [0, 300]
    *_, visible = populate(trace, ONE, load=2.0)
    assert visible.tolist() == [0, 150]


@pytest.mark.parametrize("big", [1e6 + 1, 1234567.0, 123456789012.0])
def test_numbers_that_name_jobs_are_written_in_full(lab: Any, big: float) -> None:
    names = [f"{big:.0f}", f"{big + 1:.0f}"]
    trace = lab.trace([(0, 1, 1), (0, 1, 1)], names=names, parents=[float("nan"), big])
    units, *_ = populate(trace, ONE)
    assert units.parents == {1: (0,)}
    grouped, *_ = populate(lab.trace([(0, 1, 1)] * 2, group=[big, big + 1]), ONE)
    assert grouped.group.tolist() == [0, 1]


@pytest.mark.parametrize("separator", [" ", ";", "|", " ; "])
def test_several_parents_may_be_named(lab: Any, separator: str) -> None:
    trace = lab.trace([(0, 1, 1)] * 3, parents=["", "", separator.join("AB")])
    units, *_ = populate(trace, ONE)
    assert units.parents == {2: (0, 1)}


@pytest.mark.parametrize(
    ("parents", "why"),
    [
        (["", "Z"], "job B waits for Z, which is not in the trace"),
        (["A", ""], "waits for itself"),
        (["B", "A"], "waits for itself"),
    ],
)
def test_families_that_make_no_sense_are_refused(lab: Any, parents: list[str], why: str) -> None:
    with pytest.raises(BadInput, match=why):
        populate(lab.trace([(0, 1, 1)] * 2, parents=parents), ONE)


def test_a_diamond_is_not_a_circle(lab: Any) -> None:
    trace = lab.trace([(0, 1, 1)] * 4, parents=["", "A", "A", "B C"])
    units, *_ = populate(trace, ONE)
    assert units.parents == {1: (0,), 2: (0,), 3: (1, 2)}


@pytest.mark.timeout(10)
def test_a_long_chain_of_parents_is_checked_without_recursion(lab: Any) -> None:
    count = 30_000
    names = [f"j{k}" for k in range(count)]
    parents = [*names[1:], ""]  # each waits for the next
    units, *_ = populate(lab.trace([(0, 1, 1)] * count, names=names, parents=parents), ONE)
    assert len(units.parents) == count - 1


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ({"min_gpus": [3.0]}, "min_gpus is 3; it must be from 0 to the 2"),
        ({"max_gpus": [1.0]}, "max_gpus is 1; it must be at least the 2"),
        ({"min_gpus": [-2.0]}, "min_gpus is -2; it must be"),
    ],
)
def test_bounds_that_leave_out_the_gang_are_refused(
    lab: Any, columns: dict[str, Any], why: str
) -> None:
    with pytest.raises(BadInput, match=why):
        populate(lab.trace([(0, 2, 1)], **columns), ONE)


def test_bounds_may_be_unknown(lab: Any) -> None:
    units, *_ = populate(lab.trace([(0, 2, 1), (0, 2, 1)], max_gpus=[float("nan"), 4.0]), ONE)
    assert units.max_gpus.tolist() == [-1, 4]


def test_a_job_without_duration_is_refused_by_name(lab: Any) -> None:
    with pytest.raises(BadInput, match="job B has no duration"):
        populate(lab.trace([(0, 1, 1), (0, 1, float("nan"))]), ONE)


MIXED = Cluster(
    [
        Node(name="a", gpus=4, gpu_type="v100"),
        Node(name="b", gpus=4, gpu_type="k80"),
        Node(name="c", gpus=4, gpu_type="k80"),
    ],
    [VirtualCluster(name="red", nodes=("b",))],
)


def test_pools_are_the_nodes_of_a_tenant_and_the_types_a_job_allows(lab: Any) -> None:
    trace = lab.trace(
        [(0, 1, 1)] * 5,
        vc=["red", "", "red", "other", ""],
        gpu_type=["k80", "k80", "v100", "v100 | k80", ""],
    )
    units, _, pools, _ = populate(trace, MIXED)
    nodes = [pools.nodes[int(pool)] for pool in units.pool]
    assert nodes == [0b010, 0b100, 0b000, 0b101, 0b101]
    assert not pools.disjoint
    assert not pools.whole


def test_a_type_the_cluster_lacks_is_refused_with_the_reason(lab: Any) -> None:
    trace = lab.trace([(0, 1, 1), (0, 1, 1)], gpu_type=["h100", "v100"])
    result = lab.run(trace, cluster=MIXED)
    assert result.jobs.status.tolist() == ["refused", "completed"]
    assert "h100" in result.jobs.reason[0]


def test_on_one_type_of_gpu_the_types_of_the_trace_play_no_role(lab: Any) -> None:
    result = lab.run(lab.trace([(0, 1, 1)], gpu_type=["h100"]), cluster="1x4:v100")
    assert result.jobs.status.tolist() == ["completed"]
