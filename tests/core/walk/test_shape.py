"""Which GPUs of a node a gang gets that asks for so many of each type."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.core.allocation import Refused
from dlsched.core.cluster.description import Cluster, Node
from dlsched.core.cluster.gpus_by_type import ByType
from dlsched.core.cluster.occupancy import Placement
from dlsched.core.errors import PolicyFailed
from dlsched.core.gpu_request import FreeGpus, GpuRequest
from dlsched.core.walk.walk import Walk
from dlsched.policies.registry import make, names

PLACEMENTS = [name for name in names("placement") if name != "hived"]
TYPES = st.lists(st.sampled_from(["a100", "h100", "v100"]), min_size=1, max_size=8)
WANTED = st.dictionaries(
    st.sampled_from(["a100", "h100", "v100"]), st.integers(1, 3), min_size=2, max_size=3
)


def mixed_cluster(types: list[list[str]]) -> Cluster:
    """Nodes with GPUs of these types; those of one type are of that type."""
    nodes = [
        Node(name=f"n{k}", gpus=len(each), gpu_type=each[0])
        if len(set(each)) == 1
        else Node(name=f"n{k}", gpus=len(each), gpu_types=tuple(each))
        for k, each in enumerate(types)
    ]
    return Cluster(nodes)


@pytest.mark.parametrize("placement", PLACEMENTS)
@given(
    types=st.lists(TYPES, min_size=1, max_size=4),
    busy=st.lists(st.integers(0, 255), min_size=4, max_size=4),
    wanted=WANTED,
    nodes=st.integers(1, 2),
    whole=st.sampled_from([False, False, True]),
)
def test_never_a_wrong_type_never_a_busy_gpu_and_refused_only_where_none_can(
    lab: Any, placement: str, types: Any, busy: Any, wanted: Any, nodes: int, whole: bool
) -> None:
    cluster, count = mixed_cluster(types), sum(wanted.values())
    held = {0: {k: m for k, gpus in enumerate(types) if (m := busy[k] & (1 << len(gpus)) - 1)}}
    ctx = lab.context(cluster, [1, count * nodes], holding=held if held[0] else {})
    ctx.table.shapes[1] = (count,) * nodes
    ctx.table.gpus_by_type[1] = tuple(sorted(wanted.items()))
    if whole:
        ctx.table.whole_nodes.add(1)
    free = list(ctx.occupancy.free)

    def has_them(node: int) -> bool:
        there = [kind for gpu, kind in enumerate(types[node]) if free[node] >> gpu & 1]
        enough = all(there.count(kind) >= number for kind, number in wanted.items())
        return enough and not (whole and len(there) < len(types[node]))

    got = Walk(ctx, make("placement", placement), preemptive=True).place(1)
    able = sum(map(has_them, range(len(types))))
    assert isinstance(got, Refused) == (able < nodes)
    if isinstance(got, Refused):
        return
    assert len(got.nodes) == nodes
    for node, mask in zip(got.nodes, got.masks, strict=True):
        assert not mask & ~free[node]
        given_types = [kind for gpu, kind in enumerate(types[node]) if mask >> gpu & 1]
        if whole:
            assert len(given_types) == len(types[node])
        else:
            assert {kind: given_types.count(kind) for kind in given_types} == wanted


def test_rows_that_ask_for_other_types_are_not_alike(lab: Any) -> None:
    table = lab.context(mixed_cluster([["a100", "v100"]] * 3), [2, 2, 2]).table
    table.shapes = dict.fromkeys(range(3), (2,))
    table.gpus_by_type = dict.fromkeys((1, 2), (("a100", 1), ("v100", 1)))
    any_type, first, second = (GpuRequest(row, 2, table).layout for row in range(3))
    assert first == second != any_type


def test_exact_gpus_must_be_of_the_types(lab: Any) -> None:
    ctx = lab.context(mixed_cluster([["a100", "v100", "v100"], ["v100"] * 3]), [2])
    ctx.table.shapes[0], ctx.table.gpus_by_type[0] = (2,), (("a100", 1), ("v100", 1))
    walk = Walk(ctx, make("placement", "min-nodes"), preemptive=True)
    for node, mask in ((0, 0b110), (1, 0b011)):
        with pytest.raises(PolicyFailed, match="lie otherwise"):
            walk.place_exactly(0, Placement((node,), (mask,)))
    walk.place_exactly(0, Placement((0,), (0b101,)))


def test_a_refusal_says_the_types_and_jobs_without_them_never_ask(
    lab: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    with_each = FreeGpus.with_each

    def counted(free: FreeGpus, wanted: ByType) -> int:
        asked.append(wanted)
        return with_each(free, wanted)

    monkeypatch.setattr(FreeGpus, "with_each", counted)
    ctx = lab.context(mixed_cluster([["a100", "v100"], ["v100"] * 4]), [2, 2, 2, 6])
    ctx.table.shapes = {0: (2,), 1: (1, 1), 2: (2,), 3: (3, 3)}
    ctx.table.gpus_by_type = {2: (("a100", 1), ("v100", 1)), 3: (("a100", 1), ("v100", 2))}
    walk = Walk(ctx, make("placement", "first-free"), preemptive=True)
    for row in (0, 1):
        walk.place(row)
    assert not asked
    assert str(walk.place(2)) == "Fragmented: needs 1 a100 and 1 v100 on 1 node"
    assert str(walk.place(3)) == "Resources: needs 6 GPUs, 4 are free"
    assert len(asked) == 1
