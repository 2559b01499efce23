"""Reasons of waiting jobs: in Slurm's words, known at once, and all documented."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dlsched.daemon.live.nodes import ClusterRules
from dlsched.db.records import Dependency, Drained, FieldsChanged, HoldChanged
from dlsched.protocol.ledger import Attach
from dlsched.protocol.messages import JobId, NodeName, StopReason

ROOT = Path(__file__).parents[3]


def hold(lab: Any, job: JobId, by: str, now: float = 0.0) -> None:
    lab.write(now, Attach(HoldChanged(job=job, held=by, actor="x")))


def drain(lab: Any, node: str, now: float, *, drained: bool = True) -> None:
    row = Drained(node=NodeName(node), drained=drained, reason="fan", actor="x", at=now)
    lab.write(now, Attach(row))


def test_reasons_that_need_no_round_are_known_at_once(live: Any) -> None:
    lab = live.LiveLab((4,))
    first, mine, theirs = (lab.submit(0.0) for _ in range(3))
    hold(lab, mine, "user")
    hold(lab, theirs, "admin")
    later = lab.submit(0.0, begin_at=50.0)
    after = lab.submit(0.0, dependencies=(Dependency(kind="afterok", job=first),))
    assert [lab.live.reason(job) for job in (mine, theirs, later, after)] == [
        "JobHeldUser",
        "JobHeldAdmin",
        "BeginTime",
        f"Dependency: afterok:{first}",
    ]
    hold(lab, mine, "", 1.0)
    assert lab.live.reason(mine) == "Resources: waits for the next round"


def test_a_hold_is_the_reason_although_a_round_is_being_decided(live: Any) -> None:
    lab = live.LiveLab((1,))
    lab.submit(0.0)
    job = lab.submit(0.0)
    decided = lab.decide(1.0)
    hold(lab, job, "user", 1.0)
    lab.state.accept(decided)
    assert lab.live.reason(job) == "JobHeldUser"


def test_a_lowered_partition_limit_keeps_longer_jobs_waiting(live: Any) -> None:
    def rules(longest: float) -> ClusterRules:
        return ClusterRules(partitions={"main": None}, longest_s={"main": longest})

    lab = live.LiveLab((4,), rules=rules(100.0))
    job = lab.submit(0.0, partition="main", time_limit_s=60.0)
    short = lab.submit(0.0, partition="main", time_limit_s=20.0)
    lab.live.set_rules(rules(30.0))
    lab.round(1.0)
    assert set(lab.running()) == {short}
    assert lab.live.reason(job) == "PartitionTimeLimit: 60 s, partition main gives 30 s"
    lab.write(2.0, Attach(FieldsChanged(job=job, fields={"time_limit_s": 30.0}, actor="x")))
    lab.round(2.0)
    assert set(lab.running()) == {job, short}


@pytest.mark.parametrize("placement", ["first-free", "consolidated"])
def test_the_reason_names_nodes_that_take_no_work(live: Any, placement: str) -> None:
    lab = live.LiveLab((4, 4), parts={"scheduling": "fifo", "placement": placement})
    drain(lab, "n2", 0.0)
    there = lab.submit(0.0, only_nodes=("n2",))
    both = lab.submit(0.0, gang=(4, 4))
    lab.round(1.0)
    told = "ReqNodeNotAvail: n2 takes no new work"
    assert (lab.live.reason(there), lab.live.reason(both)) == (told, told)
    drain(lab, "n2", 2.0, drained=False)
    lab.round(2.0)
    assert set(lab.running()) == {there}
    assert lab.live.reason(both).partition(":")[0] in ("Resources", "Fragmented")


def test_a_job_that_was_preempted_waits_for_its_turn(live: Any) -> None:
    lab = live.LiveLab((4,))
    head = lab.submit(0.0, 4)
    hold(lab, head, "user")
    lab.submit(0.5)
    job = lab.submit(0.5)
    lab.round(1.0)
    hold(lab, head, "", 2.0)
    lab.stop(2.0, job, StopReason.PREEMPT)
    lab.end(3.0, job, code=143)
    fresh = lab.submit(3.0)
    lab.round(4.0)
    assert lab.live.reason(head) == "Resources: needs 4 GPUs, 3 are free"
    assert lab.live.reason(job) == "Lease: was preempted, waits for its turn under fifo"
    assert lab.live.reason(fresh) == "Priority: others go first under fifo"


def test_every_reason_is_documented() -> None:
    page = (ROOT / "docs" / "live-rounds.md").read_text()
    table = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    known = {word.strip(" `") for cell in table for word in cell.split(",")}
    assert {
        "JobHeldUser", "JobHeldAdmin", "BeginTime", "Dependency", "DependencyNeverSatisfied",
        "JobArrayTaskLimit", "PartitionTimeLimit", "BackOff", "Orphan", "Resources", "Priority",
        "Lease", "Fragmented", "ReqNodeNotAvail", "Quota", "Admission",
    } <= known  # fmt: skip
