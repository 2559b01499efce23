"""Suspended runs whose GPUs others get: when every node has said so, and back when free."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlsched.core.errors import InvariantBroken
from dlsched.protocol import agent, keeper, rules
from dlsched.protocol import messages as m
from dlsched.protocol.agent.step import AgentTurn
from dlsched.protocol.ledger import (
    Assign,
    JobStatus,
    Ledger,
    LetGo,
    MemberOver,
    RegisterNode,
    ReleaseRun,
    Request,
    StopRun,
    Submit,
    SuspendRun,
    Write,
    apply_all,
)
from tests.protocol.simulation import Behaviour, Fault, Faults, World, schedules

N1, N2 = m.NodeName("n1"), m.NodeName("n2")
GPU = m.GpuId("g0")
OLD, NEW = m.RunId("old"), m.RunId("new")
SHARES = (m.Share(node=N1, gpus=(GPU,)), m.Share(node=N2, gpus=(GPU,)))


def assign(job: int, run_id: m.RunId) -> Assign:
    return Assign(key=m.RunKey(m.JobId(job), m.RunNumber(1), run_id), shares=SHARES)


def cluster(*writes: Write) -> Ledger:
    """Two nodes of one GPU, two gangs that want both; the first runs."""
    made: list[Write] = [
        RegisterNode(
            node=name,
            boot_id=m.BootId("b"),
            incarnation=m.Incarnation(1),
            inventory=m.Inventory(gpus=(GPU,)),
        )
        for name in (N1, N2)
    ]
    made += [
        Submit(request=Request(request_id=m.RequestId(f"r{job}"), gang=(1, 1)), job=m.JobId(job))
        for job in (1, 2)
    ]
    first = [assign(1, OLD), ReleaseRun(OLD)]
    return apply_all(Ledger(epoch=m.Epoch(3)), [*made, *first, *writes])


def test_gpus_are_anothers_only_when_every_node_has_said_so() -> None:
    half = cluster(SuspendRun(OLD, True, True), LetGo(OLD, N1))
    assert half.busy(N1) == half.busy(N2) == {GPU}
    with pytest.raises(InvariantBroken, match="is not free"):
        apply_all(half, [assign(2, NEW)])
    away = apply_all(half, [LetGo(OLD, N2)])
    assert away.busy(N1) == away.busy(N2) == set()
    lent = apply_all(away, [assign(2, NEW)])
    assert lent.busy(N1) == {GPU}
    with pytest.raises(InvariantBroken, match="is not free"):
        apply_all(lent, [SuspendRun(OLD, False)])
    over = [MemberOver(NEW, name, presumed="gone") for name in (N1, N2)]
    back = apply_all(lent, [*over, SuspendRun(OLD, False)])
    assert back.jobs[m.JobId(1)].status is JobStatus.RUNNING
    assert not any(member.let_go for member in back.runs[OLD].members.values())


def test_a_suspension_that_keeps_its_gpus_lends_nothing() -> None:
    kept = cluster(SuspendRun(OLD, True), LetGo(OLD, N1), LetGo(OLD, N2))
    assert kept.busy(N1) == {GPU}
    assert kept.desired(N1)[0].suspension == 0


def test_a_run_that_is_away_and_asked_to_leave_may_want_its_gpus_to_save() -> None:
    away = cluster(SuspendRun(OLD, True, True), LetGo(OLD, N1), LetGo(OLD, N2))
    leaving = apply_all(away, [StopRun(OLD, m.StopReason.REQUEUE)])
    assert leaving.busy(N1) == {GPU}


def test_no_two_suspensions_have_one_number_even_after_a_restore() -> None:
    first = cluster(SuspendRun(OLD, True, True))
    again = apply_all(first, [SuspendRun(OLD, False), SuspendRun(OLD, True, True)])
    restored = apply_all(replace(cluster(), epoch=m.Epoch(4)), [SuspendRun(OLD, True, True)])
    numbers = [made.runs[OLD].suspension for made in (first, again, restored)]
    assert len(set(numbers)) == 3
    assert first.desired(N1)[0].suspension == numbers[0]


@pytest.mark.parametrize(
    ("want", "wanted", "said", "let_go", "off"),
    [
        (m.Want.SUSPENDED, 7, 7, True, True),
        (m.Want.SUSPENDED, 7, 7, False, False),
        (m.Want.SUSPENDED, 7, 6, True, False),  # it has run since
        (m.Want.SUSPENDED, 0, 0, True, False),  # it keeps them
        (m.Want.RUNNING, 0, 7, True, False),
        (m.Want.STOPPED, 7, 7, True, False),
    ],
)
def test_when_a_node_takes_a_run_to_be_off_its_gpus(
    want: m.Want, wanted: int, said: int, let_go: bool, off: bool
) -> None:
    desired = replace(cluster().desired(N1)[0], want=want, suspension=wanted)
    assert rules.is_off_its_gpus(desired, said, let_go=let_go) is off
    assert not rules.is_off_its_gpus(None, said, let_go=let_go)


def frozen(*orders: m.Order) -> keeper.KeeperState:
    desired = replace(cluster().desired(N1)[0], layout=SHARES[:1])
    state = keeper.KeeperState(node=N1, desired=desired)
    events: list[keeper.Event] = [
        keeper.Began(0.0),
        keeper.Reserved(0.0, True),
        keeper.ReleaseWritten(0.0),
        *(keeper.OrderArrived(1.0, order) for order in orders),
    ]
    for event in events:
        state, _ = keeper.step(state, event)
    return state


def test_a_keeper_says_suspended_when_the_job_stands_still_and_not_before() -> None:
    state = frozen(m.Freeze(suspension=5))
    assert state.status().phase is m.Phase.RUNNING
    state, commands = keeper.step(state, keeper.JobSuspended(2.0, True))
    assert [c.status.let_go for c in commands if isinstance(c, keeper.Report)] == [True]
    status = state.status()
    assert (status.phase, status.suspension, status.let_go) == (m.Phase.SUSPENDED, 5, True)
    state, _ = keeper.step(state, keeper.OrderArrived(3.0, m.Thaw()))
    status = state.status()
    assert (status.phase, status.suspension, status.let_go) == (m.Phase.RUNNING, 0, False)
    state, _ = keeper.step(state, keeper.JobSuspended(4.0, True))  # of before
    assert not state.status().let_go


def test_a_job_that_its_user_froze_is_looked_at_again_when_it_is_to_give_way() -> None:
    state = frozen(m.Freeze())
    assert state.status().phase is m.Phase.SUSPENDED
    state, commands = keeper.step(state, keeper.OrderArrived(2.0, m.Freeze(suspension=5)))
    assert keeper.FreezeJob() in commands
    assert state.status().phase is m.Phase.RUNNING  # not complete yet
    state, _ = keeper.step(state, keeper.JobSuspended(2.0, False))
    status = state.status()
    assert (status.phase, status.suspension, status.let_go) == (m.Phase.SUSPENDED, 5, False)


def holding(*runs: tuple[m.DesiredRun, agent.Held]) -> AgentTurn:
    state = agent.AgentState(
        node=N1,
        inventory=m.Inventory(gpus=(GPU,)),
        boot_id=m.BootId("b"),
        started=True,
        desired=tuple(want for want, _ in runs),
        held={want.key.run_id: held for want, held in runs},
    )
    return AgentTurn(state)


def test_a_node_thaws_nothing_on_gpus_that_are_lent_and_kills_what_must_leave_them() -> None:
    lent = apply_all(
        cluster(SuspendRun(OLD, True, True), LetGo(OLD, N1), LetGo(OLD, N2)), [assign(2, NEW)]
    )
    old, new = lent.desired(N1)
    away = agent.Held(desired=old, phase=m.Phase.SUSPENDED, suspension=old.suspension, let_go=True)
    other = agent.Held(desired=new, phase=m.Phase.RUNNING)
    assert holding((old, away)).veto(new) == ""
    going_on = replace(old, want=m.Want.RUNNING, suspension=0)
    turn = holding((going_on, away), (new, other))
    turn.reconcile(0.0)
    assert agent.OrderKeeper(OLD, m.Thaw()) not in turn.commands
    stopped = replace(old, want=m.Want.STOPPED, stop=m.StopReason.REQUEUE)
    turn = holding((stopped, away), (new, other))
    turn.reconcile(0.0)
    assert agent.OrderKeeper(OLD, m.Kill(m.StopReason.REQUEUE)) in turn.commands
    turn = holding((stopped, away))
    turn.reconcile(0.0)
    assert agent.OrderKeeper(OLD, m.Stop(reason=m.StopReason.REQUEUE)) in turn.commands


def world(lets_go: bool) -> World:
    """Two jobs of one GPU; the first gives way to the second."""
    jobs = [
        (Request(request_id=m.RequestId(f"r{k}")), Behaviour(work_s=30.0, lets_go=lets_go))
        for k in range(2)
    ]
    asked = [Fault(at=12.0, kind="give way", target="1")]
    asked += [Fault(at=at, kind="resume", target="1") for at in (30.0, 60.0)]  # lent at 30
    faults = Faults(faults=tuple(asked))
    return World(nodes=1, gpus=1, jobs=jobs, faults=faults, resumes=False).run_until_done(300.0)


def test_a_job_gives_way_and_goes_on_where_it_was() -> None:
    done = world(lets_go=True)
    first, second = done.database.ledger.jobs.values()
    assert (first.status, second.status) == (JobStatus.COMPLETED, JobStatus.COMPLETED)
    assert (first.runs, second.runs, first.preemptions) == (1, 1, 1)
    thawed = next(time for time, _, text in done.lines if "1.1 thawed" in text)
    ended = next(time for time, _, text in done.lines if "2.1 ends" in text)
    assert thawed > ended


def test_a_job_that_cannot_leave_its_gpus_is_requeued_instead() -> None:
    done = world(lets_go=False)
    first, second = done.database.ledger.jobs.values()
    assert (first.status, second.status) == (JobStatus.COMPLETED, JobStatus.COMPLETED)
    assert (first.runs, first.preemptions, first.failures) == (2, 1, 0)


def test_the_schedules_do_lend_gpus() -> None:
    lines = [line for _, _, line in schedules.play("giving way", 2).lines]
    assert any("LetGo(" in line for line in lines)
