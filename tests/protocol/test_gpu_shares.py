"""Several runs on one GPU: only those that have said how much they need, and never too much."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlsched.core.errors import InvariantBroken
from dlsched.protocol import agent
from dlsched.protocol import messages as m
from dlsched.protocol.agent.step import AgentTurn
from dlsched.protocol.gpu_shares import without_room
from dlsched.protocol.ledger import (
    Adopt,
    Assign,
    JobStatus,
    Ledger,
    LetGo,
    MemberOver,
    Quarantine,
    RegisterNode,
    Request,
    StopRun,
    Submit,
    SuspendRun,
    apply_all,
)

N1 = m.NodeName("n1")
G0, G1 = m.GpuId("g0"), m.GpuId("g1")


def run_id(job: int) -> m.RunId:
    return m.RunId(f"run-{job}")


def key(job: int) -> m.RunKey:
    return m.RunKey(m.JobId(job), m.RunNumber(1), run_id(job))


def assign(job: int, *gpus: m.GpuId) -> Assign:
    return Assign(key=key(job), shares=(m.Share(node=N1, gpus=gpus),))


def cluster(*shares: float | None) -> Ledger:
    """A node of two GPUs, and jobs that need such parts of theirs."""
    node = RegisterNode(
        node=N1,
        boot_id=m.BootId("b"),
        incarnation=m.Incarnation(1),
        inventory=m.Inventory(gpus=(G0, G1)),
    )
    jobs = [
        Submit(
            request=Request(request_id=m.RequestId(f"r{job}"), gpu_share=share), job=m.JobId(job)
        )
        for job, share in enumerate(shares, 1)
    ]
    return apply_all(Ledger(epoch=m.Epoch(3)), [node, *jobs])


@pytest.mark.parametrize(
    ("shares", "fits"),
    [
        ((0.5, 0.5), True),
        ((0.5, 0.6), False),
        ((0.5, None), False),
        ((None, 0.1), False),
        ((1 / 3, 1 / 3, 1 / 3), True),
        ((0.1,) * 10, True),
        ((0.1,) * 11, False),
    ],
)
def test_a_gpu_takes_runs_while_their_shares_are_no_more_than_one(
    shares: tuple[float | None, ...], *, fits: bool
) -> None:
    ledger = cluster(*shares)
    *first, last = [assign(job, G0) for job in range(1, len(shares) + 1)]
    ledger = apply_all(ledger, first)
    assert (G0 in ledger.busy(N1, share=shares[-1])) is not fits
    if fits:
        after = apply_all(ledger, [last])
        assert len(after.runs_on(N1)) == len(shares)
        told = [want.gpu_share for want in after.desired(N1)]
        assert told == list(shares)
    else:
        with pytest.raises(InvariantBroken, match="is not free"):
            apply_all(ledger, [last])


def test_a_job_without_a_share_finds_a_shared_gpu_busy() -> None:
    ledger = apply_all(cluster(0.25, None), [assign(1, G0, G1)])
    assert ledger.busy(N1) == {G0, G1}
    assert ledger.busy(N1, share=0.75) == set()
    assert ledger.busy(N1, run_id(1)) == set()


def test_a_quarantined_gpu_and_that_of_an_orphan_have_no_room() -> None:
    orphan = m.HeldRun(key=key(9), phase=m.Phase.RUNNING, gpus=(G1,), nodes=(N1,))
    ledger = apply_all(cluster(0.1), [Quarantine(N1, (G0,)), Adopt(orphan, N1)])
    assert ledger.busy(N1, share=0.1) == {G0, G1}


def test_a_suspended_run_goes_on_beside_others_that_leave_it_room() -> None:
    away = apply_all(
        cluster(0.5, 0.5, 0.5),
        [assign(1, G0), SuspendRun(run_id(1), True, True), LetGo(run_id(1), N1), assign(2, G0)],
    )
    beside = apply_all(away, [SuspendRun(run_id(1), False)])
    assert beside.jobs[m.JobId(1)].status is JobStatus.RUNNING
    lent = apply_all(away, [assign(3, G0)])
    with pytest.raises(InvariantBroken, match="free"):
        apply_all(lent, [SuspendRun(run_id(1), False)])
    over = MemberOver(run_id(3), N1, presumed="gone")
    assert apply_all(lent, [over, SuspendRun(run_id(1), False)]).busy(N1, share=0.1) == {G0}


def test_of_two_on_a_gpu_one_may_leave() -> None:
    both = apply_all(cluster(0.5, 0.5, None), [assign(1, G0), assign(2, G0)])
    left = apply_all(
        both,
        [StopRun(run_id(1), m.StopReason.PREEMPT), MemberOver(run_id(1), N1, presumed="gone")],
    )
    assert left.busy(N1) == {G0}
    assert left.busy(N1, share=0.5) == set()


def desired(job: int, share: float | None, want: m.Want = m.Want.RUNNING) -> m.DesiredRun:
    return m.DesiredRun(
        key=key(job), want=want, epoch=m.Epoch(1), boot_id=m.BootId("b"), gpus=(G0,),
        layout=(m.Share(node=N1, gpus=(G0,)),), gpu_share=share,
    )  # fmt: skip


def holding(*held: agent.Held) -> agent.AgentState:
    return agent.AgentState(
        node=N1,
        inventory=m.Inventory(gpus=(G0,)),
        boot_id=m.BootId("b"),
        held={each.desired.key.run_id: each for each in held},
        desired=tuple(each.desired for each in held),
    )


def running(job: int, share: float | None, **more: bool) -> agent.Held:
    return agent.Held(desired=desired(job, share), phase=m.Phase.RUNNING, **more)


@pytest.mark.parametrize(
    ("held", "share", "why"),
    [
        ((running(1, 0.5),), 0.5, ""),
        ((running(1, 0.5),), None, "GPU held by run 1.1"),
        ((running(1, None),), 0.5, "GPU held by run 1.1"),
        ((running(1, 0.5), running(2, 0.5)), 0.1, "GPU held by run 1.1"),
        ((running(1, 0.5, quarantined=True),), 0.1, "GPU held by run 1.1"),
        ((running(1, None),), 0.0, ""),
        ((running(1, 0.0),), None, ""),
        ((running(1, 0.0, quarantined=True),), 0.0, "GPU held by run 1.1"),
    ],
)
def test_a_node_looks_for_itself(
    held: tuple[agent.Held, ...], share: float | None, why: str
) -> None:
    turn = AgentTurn(holding(*held))
    assert turn.veto(desired(7, share)) == why


def test_a_run_that_has_let_go_is_thawed_beside_others_that_leave_it_room() -> None:
    away = agent.Held(
        desired=desired(1, 0.5, m.Want.SUSPENDED),
        phase=m.Phase.SUSPENDED,
        suspension=1,
        let_go=True,
    )
    for share, blocks in ((0.5, False), (0.6, True)):
        turn = AgentTurn(holding(away, running(2, share)))
        assert (turn.blocks_resume(away) is not None) is blocks
    assert AgentTurn(holding(replace(away, let_go=False))).blocks_resume(away) is None


def test_what_has_room_is_counted_gpu_by_gpu() -> None:
    holders = [((G0, G1), 0.5), ((G1,), 0.4)]
    assert without_room(holders, 0.2) == {G1}
    assert without_room(holders, 0.1) == set()
