"""Replays under placement hived, which decides which job runs where below any ranking."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dlsched.composition.parts import build_parts
from dlsched.core.allocation import Refused
from dlsched.core.cluster.cell_tables import grants_of, plan_from_tables
from dlsched.core.cluster.description import Cluster, Node, VirtualCluster
from dlsched.core.cluster.occupancy import Occupancy, Placement
from dlsched.core.errors import BadInput, PolicyFailed
from dlsched.core.gpu_request import FreeGpus, GpuRequest
from dlsched.core.units import Status, UnitTable
from dlsched.policies.registry import make, names
from simulate.clusters.cluster_events import ClusterEvent
from simulate.clusters.cluster_files import read_cluster_file
from simulate.published.profiles import semantics_of
from simulate.results.tables import ReplayResult
from tests.policies.placement.test_hived_cells import TINY
from tests.policies.placement.test_hived_properties import check

ALL = {"placement": "hived", "clock": "events"}


def cluster(
    owned: dict[str, dict[str, int]], *, pinned: dict[str, tuple[str, ...]] | None = None
) -> Cluster:
    document = TINY
    if pinned:
        children = [{"address": "n0", "pinned": "fast"}, {"address": "n1"}]
        document = {**TINY, "physical_cells": [{"type": "RACK", "children": children}]}
    vcs = [
        VirtualCluster(
            name=vc,
            cells=grants_of([{"type": k, "count": n} for k, n in cells.items()], vc),
            pinned=(pinned or {}).get(vc, ()),
        )
        for vc, cells in owned.items()
    ]
    return Cluster(
        [Node(name=f"n{k}", gpus=4, gpu_type="GPU") for k in range(2)],
        vcs,
        cells=plan_from_tables(document, where="test"),
    )


SHARED = cluster({"A": {"RACK.NODE": 1}, "B": {"RACK.NODE.PAIR": 1}})


def run(lab: Any, on: Cluster, jobs: list[tuple[Any, ...]], **given: Any) -> ReplayResult:
    """Jobs are (submit, GPUs, duration, virtual cluster, priority)."""
    columns: dict[str, Any] = {"vc": [job[3] for job in jobs], "priority": [job[4] for job in jobs]}
    if "cell" in given:
        columns["cell"] = given.pop("cell")
    trace = lab.trace([job[:3] for job in jobs], **columns)
    found: ReplayResult = lab.run(trace, given.pop("policy", "fifo"), cluster=on, **ALL, **given)
    return found


def test_a_guaranteed_job_evicts_opportunistic_ones_and_they_come_back(lab: Any) -> None:
    result = run(lab, SHARED, [(0, 8, 100, "B", -1.0), (10, 4, 50, "A", 0.0)])
    assert lab.spans(result) == {"A": (0.0, 150.0), "B": (10.0, 60.0)}
    assert result.jobs.preemptions.tolist() == [1, 0]


def test_idle_cells_of_another_are_not_for_guaranteed_jobs(lab: Any) -> None:
    result = run(lab, SHARED, [(0, 2, 100, "B", 0.0), (1, 2, 100, "B", 0.0)])
    assert lab.spans(result) == {"A": (0.0, 100.0), "B": (100.0, 200.0)}


def test_priority_decides_inside_a_virtual_cluster_whatever_the_ranking(lab: Any) -> None:
    result = run(lab, SHARED, [(0, 4, 100, "A", 0.0), (10, 4, 50, "A", 5.0)])
    assert lab.spans(result)["B"] == (10.0, 60.0)
    assert result.jobs.preemptions.tolist() == [1, 0]


def test_a_lazy_victim_runs_on_where_it_is(lab: Any) -> None:
    jobs = [(0, 4, 100, "A", 0.0), (10, 4, 50, "A", 5.0)]
    result = run(lab, SHARED, jobs, options=("placement.lazy_preemption=true",))
    assert lab.spans(result) == {"A": (0.0, 100.0), "B": (10.0, 60.0)}
    assert result.jobs.preemptions.tolist() == [0, 0]


def test_no_other_job_gets_gpus_that_are_reserved(lab: Any) -> None:
    # B reserves both nodes at 10; C gets none of the idle GPUs, since its priority is not above B's
    owned = cluster({"A": {"RACK.NODE": 2}})
    jobs = [(0, 2, 100, "A", -1.0), (10, 8, 50, "A", 1.0), (20, 2, 10, "A", 1.0)]
    spans = lab.spans(run(lab, owned, jobs, min_run=60.0))
    assert spans["B"] == (60.0, 110.0)
    assert spans["C"] == (110.0, 120.0)


def test_a_higher_priority_overlap_cancels_a_reservation(lab: Any) -> None:
    owned = cluster({"A": {"RACK.NODE": 2}})
    jobs = [(0, 8, 100, "A", 0.0), (10, 8, 50, "A", 1.0), (20, 8, 10, "A", 2.0)]
    result = run(lab, owned, jobs, min_run=60.0)
    spans = lab.spans(result)
    assert spans["C"] == (60.0, 70.0)
    assert spans["B"] == (70.0, 120.0)
    assert result.jobs.preemptions.tolist() == [1, 0, 0]


def test_a_reservation_starts_as_soon_as_the_last_victim_may_leave(lab: Any) -> None:
    owned = cluster({"A": {"RACK.NODE": 2}})
    engine = lab.engine(
        lab.trace([(0, 8, 100), (10, 4, 50)], vc=["A", "A"], priority=[-1.0, 0.0]),
        "fifo", cluster=owned, min_run=60.0, **ALL,
    )  # fmt: skip
    kept: list[Any] = []
    engine.observers.append(lambda _, answer: kept.append(dict(answer.reserved)))
    engine.run()
    table = engine.world.table
    assert table.first_start.tolist() == [0.0, 60.0]
    assert table.preemptions.tolist() == [1, 0]
    assert [list(each) for each in kept[:3]] == [[], [1], []]


def test_a_pinned_cell_is_used_only_by_jobs_that_name_it(lab: Any) -> None:
    owned = cluster({"A": {}, "B": {"RACK.NODE": 1}}, pinned={"A": ("fast",)})
    jobs = [(0, 4, 100, "A", 0.0), (0, 4, 100, "B", 0.0), (0, 2, 10, "A", -1.0)]
    spans = lab.spans(run(lab, owned, jobs, cell=["fast", "", ""]))
    assert spans["A"] == spans["B"] == (0.0, 100.0)
    assert spans["C"][0] == 100.0


@pytest.mark.parametrize(
    ("job", "cell", "why"),
    [
        ((0, 1, 10, "C", 0.0), "", "vc C owns no cells; those that do: A, B"),
        ((0, 5, 10, "A", 0.0), "", "insufficient capacity in vc A"),
        ((0, 1, 10, "A", 1001.0), "", "priority must be -1"),
        ((0, 1, 10, "A", 0.0), "p", "vc A: pinned cell 'p' is not known; known: none"),
    ],
)
def test_what_cells_can_never_serve_is_refused_with_the_reason(
    lab: Any, job: tuple[Any, ...], cell: str, why: str
) -> None:
    result = run(lab, SHARED, [job], cell=[cell])
    assert result.jobs.status.tolist() == ["refused"]
    assert why in result.jobs.reason[0]


@pytest.mark.parametrize(
    ("gpus", "vc", "cell", "reason"),
    [
        (4, "A", "", ""),
        (4, "B", "fast", "Resources: its cells are on nodes that have not registered"),
        (5, "A", "", "Never: insufficient capacity in vc A, even while nothing runs"),
    ],
)
def test_a_job_waits_for_cells_of_a_node_that_has_not_registered(
    gpus: int, vc: str, cell: str, reason: str
) -> None:
    """One of two machines is there; the other one is pinned."""
    owned = cluster({"A": {"RACK.NODE": 1}, "B": {}}, pinned={"B": ("fast",)})
    there = Cluster(owned.nodes[1:], owned.vcs.values(), cells=owned.said_cells)
    table = UnitTable(1)
    table.gang[0], table.vc[0], table.names["vc"] = gpus, 0, [vc]
    table.extra = {"cell": np.array([cell], np.object_)}
    found = make("placement", "hived", {}).place(
        GpuRequest(0, gpus, table), FreeGpus(Occupancy(there), 1)
    )
    assert (str(found) if isinstance(found, Refused) else "") == reason


def test_a_bad_machine_moves_a_job_to_a_healthy_cell(lab: Any) -> None:
    owned = cluster({"A": {"RACK.NODE": 1}})
    fails = [ClusterEvent(time=30, kind="fail", node=0)]
    result = run(lab, owned, [(0, 4, 100, "A", 0.0)], events=fails)
    assert result.jobs.starts.tolist() == [2]
    assert result.jobs.status.tolist() == ["completed"]


def test_a_job_that_needs_part_of_a_gpu_has_it_alone(lab: Any) -> None:
    trace = lab.trace(
        [(0, 1, 100), (0, 1, 100)], vc=["B", "B"], priority=[0.0, 0.0], gpu_share=[0.5, 0.5]
    )
    result = lab.run(trace, "fifo", cluster=SHARED, **ALL)
    assert lab.spans(result) == {"A": (0.0, 100.0), "B": (0.0, 100.0)}


def test_layouts_and_whole_nodes_are_kept(lab: Any) -> None:
    owned = cluster({"A": {"RACK.NODE": 2}})
    trace = lab.trace(
        [(0, 4, 100), (100, 1, 100), (100, 1, 100)],
        vc=["A", "A", "A"],
        priority=[0.0, 0.0, 0.0],
        gang=["2+2", "", ""],
        exclusive=["", "yes", ""],
    )
    engine = lab.engine(trace, "fifo", cluster=owned, **ALL)
    held: list[dict[int, Placement]] = []
    engine.observers.append(lambda world, _: held.append(dict(world.world.occupancy.held)))
    engine.run()
    first = next(each for each in held if 0 in each)
    assert [mask.bit_count() for mask in first[0].masks] == [2, 2]
    later = next(each for each in held if 1 in each and 2 in each)
    assert later[1].gpus == 4
    assert later[1].nodes != later[2].nodes


def test_a_gpu_type_that_a_virtual_cluster_has_no_cells_of_is_refused(lab: Any) -> None:
    nodes = [Node(name=f"n{k}", gpus=4, gpu_type="ab"[k]) for k in range(2)]
    vcs = [
        VirtualCluster(name=vc, cells=grants_of([{"type": f"{kind}-node", "count": 1}], vc))
        for vc, kind in (("A", "a"), ("B", "b"))
    ]
    trace = lab.trace([(0, 1, 10)], vc=["A"], gpu_type=["b"])
    result = lab.run(trace, "fifo", cluster=Cluster(nodes, vcs), **ALL)
    assert result.jobs.status.tolist() == ["refused"]
    assert "vc A has no cells of b where it may run" in result.jobs.reason[0]


steps = st.lists(
    st.tuples(
        st.integers(0, 300),
        st.sampled_from([1, 1, 2, 3, 4, 8]),
        st.integers(1, 120),
        st.sampled_from("AB"),
        st.sampled_from([-1.0, -1.0, 0.0, 0.0, 2.0]),
    ),
    min_size=1,
    max_size=14,
)
fails = st.lists(st.tuples(st.integers(1, 300), st.integers(0, 1)), max_size=2)


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(
    jobs=steps,
    fails=fails,
    policy=st.sampled_from(["fifo", "las", "srtf"]),
    min_run=st.sampled_from([0.0, 25.0]),
    lazy=st.sampled_from(["true", "false"]),
)
def test_the_cells_agree_with_the_world_after_every_decision(
    lab: Any, jobs: list[Any], fails: list[Any], policy: str, min_run: float, lazy: str
) -> None:
    jobs = sorted(jobs)
    engine = lab.engine(
        lab.trace(
            [job[:3] for job in jobs],
            vc=[job[3] for job in jobs],
            priority=[job[4] for job in jobs],
        ),
        policy,
        cluster=SHARED,
        min_run=min_run,
        options=(f"placement.lazy_preemption={lazy}",),
        events=[
            ClusterEvent(time=time + wait, kind=kind, node=node)
            for time, node in fails
            for wait, kind in ((0, "fail"), (40, "join"))
        ],
        **ALL,
    )

    def agree(run: Any, _: Any) -> None:
        occupancy, table = run.world.occupancy, run.world.table
        placement = run.parts.placement
        placement.follow(occupancy, table)
        check(placement.cells)
        gangs = placement.cells.gangs.values()
        names = occupancy.cluster.names

        def gpus(where: Placement) -> set[tuple[str, int]]:
            pairs = list(zip(*where, strict=True))
            return {(names[n], k) for n, mask in pairs for k in range(4) if mask >> k & 1}

        here = {int(g.name): {(x.node, x.index) for x in g.gpus} for g in gangs}
        there = {row: gpus(where) for row, where in occupancy.held.items()}
        there |= {row: gpus(where) for row, where in occupancy.reserved.items()}
        assert here == there

    engine.observers.append(agree)
    engine.run()
    ended = engine.world.table.status
    assert set(ended.tolist()) <= {int(Status.COMPLETED), int(Status.REFUSED)}


def mixed(lab: Any, seed: int, count: int = 30) -> Any:
    rng = np.random.default_rng(seed)
    jobs = [
        (float(rng.integers(0, 600)), int(rng.choice([1, 1, 2, 2, 4])), float(rng.integers(5, 200)))
        for _ in range(count)
    ]
    return lab.trace(
        sorted(jobs),
        vc=["AB"[int(k)] for k in rng.integers(0, 2, count)],
        priority=[float(p) for p in rng.choice([-1, -1, 0, 0, 3], count)],
    )


RANKING = ["fifo", "first-fit", "sjf", "srtf", "las", "multi-queue", "tiresias", "edf", "easy"]


@pytest.mark.parametrize("policy", [p for p in RANKING if p in names("scheduling")])
@pytest.mark.parametrize("clock", ["rounds", "events"])
def test_any_ranking_policy_runs_on_cells(lab: Any, policy: str, clock: str) -> None:
    result = lab.run(
        mixed(lab, 7), policy, cluster=SHARED, placement="hived", clock=clock, min_run=20.0,
        events=[
            ClusterEvent(time=150, kind="fail", node=1),
            ClusterEvent(time=300, kind="join", node=1),
        ],
    )  # fmt: skip
    ended = set(result.jobs.status.tolist())
    assert ended <= {"completed", "refused"}
    assert "completed" in ended


def test_a_policy_that_chooses_gpus_itself_is_refused_where_cells_have_owners(lab: Any) -> None:
    with pytest.raises(BadInput, match="policy pollux: it chooses GPUs itself"):
        run(lab, SHARED, [(0, 1, 10, "A", 0.0)], policy="pollux")
    with pytest.raises(PolicyFailed, match="chooses GPUs itself, but virtual clusters own") as why:
        run(lab, SHARED, [(0, 1, 10, "A", 0.0)], policy="testing-thrash")
    assert why.value.exit_code == 2


@pytest.mark.parametrize("policy", ["fifo", "las"])
def test_a_run_goes_on_after_a_restart_as_if_nothing_had_happened(lab: Any, policy: str) -> None:
    given = {**ALL, "min_run": 15.0}
    whole = lab.engine(mixed(lab, 9), policy, cluster=SHARED, **given)
    whole.run()
    cut = lab.engine(mixed(lab, 9), policy, cluster=SHARED, horizon=250.0, **given)
    cut.run()
    state = pickle.loads(pickle.dumps(cut.parts.state_dict()))
    chosen = lab.settings(policy, **given)
    cut.cycle.parts = build_parts(chosen, semantics_of(chosen))
    assert not cut.parts.load_state_dict(state)
    cut.horizon = np.inf
    cut.run()
    for column in ("finish", "first_start", "starts", "preemptions"):
        ours, theirs = getattr(cut.world.table, column), getattr(whole.world.table, column)
        assert np.array_equal(ours, theirs, equal_nan=True), column


def test_gangs_follow_a_table_that_was_packed(lab: Any) -> None:
    engine = lab.engine(
        lab.trace([(0, 1, 100), (0, 2, 100)], vc=["A", "B"], priority=[0.0, 0.0]),
        "fifo", cluster=SHARED, horizon=50.0, **ALL,
    )  # fmt: skip
    engine.run()
    placement = engine.parts.placement
    placement.renumber(np.array([1]), 0)  # row 0 is gone, row 1 is the first now
    occupancy, table = engine.world.occupancy, engine.world.table
    occupancy.held[0] = occupancy.held.pop(1)
    occupancy.version += 1
    placement.follow(occupancy, table)
    [(name, gang)] = placement.cells.gangs.items()
    assert (name, gang.request.vc, len(list(gang.gpus))) == ("0", "B", 2)
    check(placement.cells)


# -- files ----------------------------------------------------------------------------------------

FILE = """
[[nodes]]
name = "n[0-1]"
gpus = 4
gpu_type = "GPU"

[cell_types.PAIR]
child = "GPU"
count = 2

[cell_types.NODE]
child = "PAIR"
count = 2
node = true

[[physical_cells]]
type = "NODE"
nodes = "n[0-1]"

[[vcs]]
name = "A"
cells = [{ type = "NODE", count = 1 }]
"""


def test_a_file_of_cells_is_read(tmp_path: Path) -> None:
    path = tmp_path / "cells.toml"
    path.write_text(FILE)
    found = read_cluster_file(path)
    assert [address.address for _, address in found.cells.tops] == ["n0", "n1"]
    assert found.cell_owners["A"][0][0].count == 1


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ('nodes = "n[0-1]"', 'nodes = "n0"', "do not tile node n1: it has GPUs 0, 1, 2, 3, its"),
        ("count = 1 }", "count = 3 }", "own 3 cells of type NODE in NODE, 2 are there"),
        ('type = "NODE", count', 'type = "RACK", count', "must begin with the type of a top-level"),
        ('type = "NODE", count', 'type = "NODE.QUAD", count', "is no path of types in NODE"),
        ("cells = [", 'pinned = ["x"]\ncells = [', "no cell is pinned as 'x'; known: none"),
        ("node = true", "node = false", "exactly one of NODE.PAIR.GPU must say node = true, 0 do"),
        ('child = "PAIR"', 'child = "NODE"', "type NODE would be inside itself"),
        ("count = 2\n\n[cell", "count = 0\n\n[cell", "cell_types.PAIR]: count must be a whole"),
        (
            'type = "NODE"\nnodes',
            'type = "NOD"\nnodes',
            "type 'NOD' is not known; known: PAIR, NODE",
        ),
        ('child = "GPU"', 'child = "GPU"\nkind = 1', "cell_types.PAIR]: key 'kind' is not known"),
        ('gpu_type = "GPU"', 'gpu_type = "v100"', "node n0 has GPUs of type v100"),
        ("cells = [", "gpus = 4\ncells = [", "give either gpus .a quota. or nodes .*, or cells"),
        (
            'nodes = "n[0-1]"\n\n[[v',
            'nodes = "n[0-2]"\n\n[[v',
            "name node n2, which does not exist",
        ),
    ],
)
def test_a_wrong_file_of_cells_is_one_line_that_names_file_and_key(
    tmp_path: Path, before: str, after: str, why: str
) -> None:
    path = tmp_path / "cells.toml"
    assert before in FILE
    path.write_text(FILE.replace(before, after, 1))
    with pytest.raises(BadInput, match=why) as found:
        read_cluster_file(path)
    assert str(found.value).startswith(str(path))
    assert "\n" not in str(found.value)
