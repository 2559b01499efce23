"""Live rounds with nodes of several GPU types, and jobs that want so many of each."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from dlsched.core.cluster.gpus_by_type import by_type_of
from dlsched.core.cluster.occupancy import Placement
from dlsched.daemon.live.placement_constraints import PlacementConstraints
from dlsched.daemon.round.decide import decide
from dlsched.daemon.round.forecasts.alternatives import Alternative, Question
from dlsched.daemon.round.forecasts.answering import answer
from dlsched.daemon.round.plan import verify
from dlsched.daemon.round.snapshot import LiveSnapshot
from dlsched.daemon.round.snapshot_builder import take_snapshot
from dlsched.policies.registry import names

TYPES = {"n1": "v100 a100 v100 a100", "n2": "v100 v100 v100 v100", "n3": "a100 v100 a100 v100 v100"}
FEW = ("what-if.scheduling=las,srtf", "what-if.admission=accept-all")
POLICIES = [*names("scheduling"), "testing-always-preempt", "testing-never", "testing-resize"]
OTHER_TYPES = "its GPUs are of other types than it asked for"
WHY = "Fragmented: needs 1 a100 and 1 v100 on 1 node"


def mixed_lab(live: Any, policy: str = "fifo", **parts: str) -> Any:
    """Two nodes of two types each, and one of one."""
    options = FEW if policy == "what-if" else ()
    lab = live.LiveLab((), parts={"scheduling": policy, **parts}, options=options)
    for name, types in TYPES.items():
        each = types.split()
        lab.add_node(name, len(each), each[0] if len(set(each)) == 1 else "")
    describe(lab)
    return lab


def describe(lab: Any) -> None:
    """What the agents report."""
    for name, types in TYPES.items():
        gpus = [{"uuid": f"GPU-{name}-{k}", "type": kind} for k, kind in enumerate(types.split())]
        lab.live.describe_node(name, PlacementConstraints.facts(json.dumps({"gpus": gpus})))


def types_of(lab: Any, job: int) -> list[dict[str, int]]:
    """How many GPUs of each type a job has on each of its nodes."""
    return [
        Counter(TYPES[share.node].split()[int(gpu.rpartition("-")[2])] for gpu in share.gpus)
        for share in lab.running().get(job, ())
    ]


@pytest.mark.parametrize("policy", POLICIES)
def test_under_every_policy_a_job_runs_on_its_types_or_waits(live: Any, policy: str) -> None:
    lab = mixed_lab(live, policy)
    common = {"expected_s": 100.0, "time_limit_s": 200.0}
    wanted = {}
    for each, gang in (
        ("a100:1,v100:1", (2,)),
        ("a100:1,v100:2", (3, 3)),
        ("a100:2,v100:1", (3,)),
        ("a100:2", (2,)),
        ("a100:1", (1, 1)),
    ):
        job = lab.submit(0.0, sum(gang), gang=gang, gpus_by_type=each, **common)
        wanted[job] = {kind: int(n) for kind, _, n in (e.partition(":") for e in each.split(","))}
        lab.submit(1.0, 1, **common)
        lab.submit(1.0, 2, gang=(1, 1), **common)
    began = set()
    for number in range(1, 30):
        lab.round(61.0 * number)
        describe(lab)
        for job, types in wanted.items():
            assert all(each == types for each in types_of(lab, job))
        began |= lab.running().keys()
        if number % 2 and lab.running():
            lab.end(61.0 * number + 30.0, min(lab.running()))
        if number == 4:
            lab.restart(61.0 * number + 40.0)
            describe(lab)
    assert wanted.keys() <= began or policy == "testing-never"


def test_a_job_waits_with_its_reason_while_only_the_other_type_is_free(live: Any) -> None:
    lab = mixed_lab(live)
    for _ in range(2):  # all a100 there are
        lab.submit(0.0, 3, gang=(3,), gpus_by_type="a100:2,v100:1")
    lab.round(1.0)
    assert [types_of(lab, job) for job in (1, 2)] == [[{"a100": 2, "v100": 1}]] * 2
    waits = lab.submit(2.0, 2, gang=(2,), gpus_by_type="a100:1,v100:1")
    assert lab.round(3.0).reason_texts()[waits] == WHY
    lab.end(4.0, 1)
    lab.round(5.0)
    assert types_of(lab, waits) == [{"a100": 1, "v100": 1}]


def test_a_snapshot_keeps_the_types_and_is_no_longer_without_them(live: Any) -> None:
    lab = mixed_lab(live)
    for _ in range(50):
        lab.submit(0.0, 2, gang=(2,))
    before = take_snapshot(lab.state, "full", 1.0)
    assert before.table.gpus_by_type == {}
    lab.submit(0.0, 4, gang=(4,), gpus_by_type="a100:2,v100:2")
    snapshot = take_snapshot(lab.state, "full", 1.0)
    assert snapshot.table.gpus_by_type == {50: by_type_of("a100:2,v100:2")}
    assert [nodes for _, nodes in snapshot.pools] == [b"\x07", b"\x05"], "only mixed nodes"
    again = LiveSnapshot.from_bytes(snapshot.to_bytes())
    assert again.table.gpus_by_type == snapshot.table.gpus_by_type
    assert decide(again).to_bytes() == decide(snapshot).to_bytes()


def test_a_plan_with_other_types_is_no_plan(live: Any) -> None:
    lab = mixed_lab(live)
    job = lab.submit(0.0, 2, gang=(2,), gpus_by_type="a100:1,v100:1")
    decided = decide(take_snapshot(lab.state, "full", 1.0))
    assert decided.launched[job] == Placement((0,), (0b11,))
    wrong = replace(decided, launched={job: Placement((0,), (0b101,))})
    (problem,) = verify(wrong, lab.live)
    assert (problem.text, problem.is_offence) == (OTHER_TYPES, True)


@pytest.mark.parametrize(
    ("admission", "reason"), [("cells", "Never"), ("accept-all", "Fragmented")]
)
def test_cells_have_one_type_so_such_a_job_is_refused(
    live: Any, admission: str, reason: str
) -> None:
    lab = mixed_lab(live, placement="hived", admission=admission)
    job = lab.submit(0.0, 2, gang=(2,), gpus_by_type="a100:1,v100:1")
    decided = lab.round(1.0)
    told = f"{reason}: the GPUs of a cell have one type, and it asks for several"
    assert decided.reason_texts()[job] == told
    assert job not in lab.running()


def test_a_forecast_and_what_if_follow_the_types(live: Any) -> None:
    lab = mixed_lab(live)
    common = {"expected_s": 100.0}
    for _ in range(2):  # all a100 there are
        lab.submit(0.0, 3, gang=(3,), gpus_by_type="a100:2,v100:1", **common)
    lab.round(0.0)
    mine = lab.submit(1.0, 2, gang=(2,), gpus_by_type="a100:1,v100:1", **common)
    of_any = lab.submit(1.0, 2, gang=(2,), **common)
    snapshot = take_snapshot(lab.state, "full", 1.0)
    for job, like, starts in ((mine, of_any, [100.0, 1.0]), (of_any, mine, [1.0, 100.0])):
        asked = (Alternative(job=job), Alternative(job=job, like=like, gang=2))
        found = answer(Question(snapshot=snapshot, alternatives=asked, supposed=(like,)))
        assert [float(outcome.starts[0]) for outcome in found] == starts
