"""Resizes in place in rounds: which jobs go on meanwhile, and whose GPUs are closed."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from dlsched.core.cluster.occupancy import Placement
from dlsched.daemon.live.next_runs import without
from dlsched.daemon.round.plan import Plan, carry_out
from dlsched.daemon.training.in_place import host_of, plan_of
from dlsched.protocol.ledger import Assign, MemberOver, ReleaseRun, RunStatus, StopRun
from dlsched.protocol.messages import (
    ExitReason,
    ExitRecord,
    JobId,
    NodeName,
    RunId,
    RunKey,
    RunNumber,
    StopReason,
    Told,
)


def lab_of(live: Any, nodes: tuple[int, ...] = (2, 2), sizes: str = "2,3,1") -> Any:
    options = (f"sizes={sizes}", "period_s=10")
    return live.LiveLab(nodes, parts={"scheduling": "testing-resize"}, options=options)


def elastic(lab: Any, now: float, **body: Any) -> JobId:
    job: JobId = lab.submit(now, 2, **{"min_gpus": 1, "max_gpus": 4, "in_place": True, **body})
    return job


def begin(lab: Any, now: float, plan: Plan) -> RunId:
    """The one run of a plan that gets ready beside the present one."""
    ((job, shares),) = plan.beside
    run_id = RunId(f"next{now}")
    key = RunKey(job, RunNumber(lab.ledger.jobs[job].runs + 1), run_id)
    lab.write(now, Assign(key=key, shares=shares, follows=lab.ledger.live_run(job).key.run_id))
    if lab.ledger.runs[run_id].status is RunStatus.PREPARING:
        lab.write(now, ReleaseRun(run_id))
    return run_id


def hand_over(lab: Any, now: float, job: JobId) -> None:
    run = lab.ledger.live_run(job)
    lab.write(now, StopRun(run.key.run_id, StopReason.RESIZE, hand_over="x"))
    for node in run.members:
        record = ExitRecord(
            key=run.key, node=node, reason=ExitReason.EXITED, code=143,
            stop=StopReason.RESIZE, told=Told.HANDED_OVER,
        )  # fmt: skip
        lab.write(now, MemberOver(run.key.run_id, node, record))


def end(lab: Any, now: float, run_id: RunId) -> None:
    """A run is gone on all its nodes."""
    run = lab.ledger.runs[run_id]
    for node in run.members:
        lab.write(now, MemberOver(run_id, node, presumed="gone"))


def closed(lab: Any) -> list[int]:
    return [node.closed for node in lab.live.nodes.all()]


def test_a_job_goes_on_until_its_next_run_takes_over(live: Any) -> None:
    lab = lab_of(live)
    job = elastic(lab, 0.0)
    lab.round(1.0)
    plan = carry_out(lab.decide(20.0), lab.state)
    assert (plan.stops, plan.starts) == ((), ())
    begin(lab, 20.0, plan)
    assert sum(mask.bit_count() for mask in closed(lab)) == 1  # what the next run has beyond it
    assert lab.live.where(job).gpus == 2
    waiting = lab.submit(21.0, 1)
    lab.round(22.0, "fill")
    plan = carry_out(lab.decide(23.0), lab.state)  # decides the same resize again
    assert plan.is_empty
    assert sorted(lab.running()) == [job, waiting]
    hand_over(lab, 30.0, job)
    assert lab.live.where(job).gpus == 3
    assert closed(lab) == [0, 0]
    row = lab.live.jobs.row_of[job]
    columns = lab.live.jobs
    assert [columns.get(x, row) for x in ("starts", "resizes", "lost_s")] == [2, 1, 0]
    assert columns.get("executed", row) == pytest.approx(29.0)  # all that it did goes on
    assert live.held_twice(lab.running().values()) == []


def test_work_that_was_handed_over_is_lost_with_the_run_that_has_it(live: Any) -> None:
    lab = lab_of(live)
    job = elastic(lab, 0.0)
    lab.round(1.0)
    begin(lab, 20.0, carry_out(lab.decide(20.0), lab.state))
    hand_over(lab, 31.0, job)
    end(lab, 41.0, lab.ledger.live_run(job).key.run_id)
    row = lab.live.jobs.row_of[job]
    assert lab.live.jobs.get("lost_s", row) == pytest.approx(40.0)
    assert lab.live.jobs.get("executed", row) == 0


@pytest.mark.parametrize("saved_s", [0.0, 9.0])
def test_work_that_was_handed_over_is_kept_over_a_restart(live: Any, saved_s: float) -> None:
    lab = lab_of(live)
    job = elastic(lab, 0.0)
    lab.round(1.0)
    if saved_s:
        run_id = lab.ledger.live_run(job).key.run_id
        lab.live.accounting.checkpoint(job, run_id, 1.0 + saved_s)
    begin(lab, 20.0, carry_out(lab.decide(20.0), lab.state))
    hand_over(lab, 31.0, job)

    def work() -> list[float]:
        row = lab.live.jobs.row_of[job]
        return [lab.live.jobs.get(name, row) for name in ("executed", "saved", "lost_s")]

    assert work() == pytest.approx([30.0, saved_s, 0.0])
    lab.restart(31.0)
    assert work() == pytest.approx([30.0, saved_s, 0.0])
    end(lab, 41.0, lab.ledger.live_run(job).key.run_id)
    assert work() == pytest.approx([saved_s, saved_s, 40.0 - saved_s])


def test_a_job_that_has_not_asked_for_it_is_stopped(live: Any) -> None:
    lab = lab_of(live)
    job = elastic(lab, 0.0, in_place=False)
    lab.round(1.0)
    plan = carry_out(lab.decide(20.0), lab.state)
    assert (plan.beside, plan.stops) == ((), ((job, StopReason.RESIZE),))


def test_a_job_whose_new_gpus_another_one_is_leaving_is_stopped(live: Any) -> None:
    lab = lab_of(live, (2, 2))
    job = elastic(lab, 0.0)
    leaving = lab.submit(0.0, 2)
    lab.round(1.0)
    decided = lab.decide(20.0)
    lab.stop(20.0, leaving, StopReason.PREEMPT)
    where = Placement((0, 1), (0b11, 0b1))
    decided = replace(decided, suspended=(job,), launched={job: where})
    plan = carry_out(decided, lab.state)
    assert (plan.beside, plan.stops) == ((), ((job, StopReason.RESIZE),))
    assert lab.live.claims[job].placement == where


def test_after_a_next_run_that_has_failed_the_resize_is_a_restart(live: Any) -> None:
    lab = lab_of(live)
    job = elastic(lab, 0.0)
    lab.round(1.0)
    end(lab, 25.0, begin(lab, 20.0, carry_out(lab.decide(20.0), lab.state)))
    assert closed(lab) == [0, 0]
    assert lab.live.where(job).gpus == 2
    plan = carry_out(lab.decide(30.0), lab.state)
    assert plan.beside == ()
    assert plan.stops == ((job, StopReason.RESIZE),)


def test_gpus_that_it_gives_up_are_anothers_only_when_it_has_left_them(live: Any) -> None:
    lab = lab_of(live, (2,), sizes="2,1")
    job = elastic(lab, 0.0)
    lab.round(1.0)
    waiting = lab.submit(2.0, 1)
    plan = carry_out(lab.decide(20.0), lab.state)
    begin(lab, 20.0, plan)
    assert waiting not in lab.live.claims
    assert lab.start_due(21.0) == []
    hand_over(lab, 30.0, job)
    lab.round(31.0)
    assert sorted(lab.running()) == [job, waiting]
    assert live.held_twice(lab.running().values()) == []


def test_a_new_daemon_knows_it_and_closes_its_gpus(live: Any) -> None:
    lab = lab_of(live)
    job = elastic(lab, 0.0)
    lab.round(1.0)
    run_id = begin(lab, 20.0, carry_out(lab.decide(20.0), lab.state))
    before = closed(lab)
    lab.restart(25.0)
    assert closed(lab) == before
    assert lab.live.next_runs.late(26.0, 60.0) == []
    assert lab.live.next_runs.late(90.0, 60.0) == [run_id]
    hand_over(lab, 95.0, job)
    assert lab.live.where(job).gpus == 3
    assert lab.live.next_runs.late(999.0, 60.0) == []


def test_the_plan_crosses_the_network_once_for_each_node() -> None:
    nodes = [NodeName(each) for each in ("n1", "n2", "n2", "n2", "n3")]
    hosts = [str(each) for each in nodes]
    word, places = json.loads(plan_of(NodeName("n1"), nodes, hosts, [1, 2, 3, 4, 5], "w"))
    assert word == "w"
    assert [place[:2] for place in places] == [[host, k] for k, host in enumerate(hosts, 1)]
    over_network = [
        rank for rank, (*_, source) in enumerate(places)
        if nodes[rank] != (NodeName("n1") if source < 0 else nodes[source])
    ]  # fmt: skip
    assert [nodes[rank] for rank in over_network] == ["n2", "n3"]


def test_hosts_of_addresses() -> None:
    assert [host_of(each) for each in ("a:1", "[::1]:2", "")] == ["a", "::1", "127.0.0.1"]


def test_what_a_placement_has_beyond_another_one() -> None:
    assert without(Placement((0, 2), (0b111, 0b1)), Placement((0, 1), (0b101, 0b1))) == (
        Placement((0, 2), (0b010, 0b1))
    )
