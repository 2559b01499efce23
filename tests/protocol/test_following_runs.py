"""Runs that are made ready beside the present run of their job, and take over or are given up."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.core.errors import InvariantBroken
from dlsched.protocol import agent, keeper, leader
from dlsched.protocol import messages as m
from dlsched.protocol.agent.interface import OrderKeeper
from dlsched.protocol.agent.step import AgentTurn
from dlsched.protocol.ledger import (
    Assign,
    JobStatus,
    Ledger,
    MemberOver,
    RegisterNode,
    ReleaseRun,
    Request,
    Run,
    StopRun,
    Submit,
    Write,
    apply_all,
)

N1, N2 = m.NodeName("n1"), m.NodeName("n2")
A, B, C = (m.GpuId(each) for each in "abc")
JOB, OTHER = m.JobId(1), m.JobId(2)
OLD, NEW, ELSE = m.RunId("old"), m.RunId("new"), m.RunId("else")
WHERE = '["word", [["127.0.0.1", 1, -1]]]'
RESIZE, HANDED, STOPPED = m.StopReason.RESIZE, m.Told.HANDED_OVER, m.Told.STOPPED


def key(job: m.JobId, run: int, run_id: m.RunId) -> m.RunKey:
    return m.RunKey(job, m.RunNumber(run), run_id)


def assign(run_id: m.RunId, run: int, follows: m.RunId | None = None, **gpus: str) -> Assign:
    shares = tuple(
        m.Share(node=m.NodeName(node), gpus=tuple(map(m.GpuId, names)))
        for node, names in gpus.items()
    )
    job = OTHER if run_id == ELSE else JOB
    return Assign(key=key(job, run, run_id), shares=shares, follows=follows)


def over(
    run_id: m.RunId, node: m.NodeName = N1, told: m.Told | None = HANDED, code: int = 143
) -> MemberOver:
    run = {OLD: 1, NEW: 2}[run_id]
    record = m.ExitRecord(
        key=key(JOB, run, run_id), node=node, reason=m.ExitReason.EXITED, code=code,
        stop=RESIZE if told else None, told=told, ran_s=9.0,
    )  # fmt: skip
    return MemberOver(run_id, node, record)


def running(*writes: Write) -> Ledger:
    """Two nodes of three GPUs; a job runs on two of one, and its next run is ready on three."""
    made: list[Write] = [
        RegisterNode(
            node=name,
            boot_id=m.BootId("b"),
            incarnation=m.Incarnation(1),
            inventory=m.Inventory(gpus=(A, B, C)),
        )
        for name in (N1, N2)
    ]
    made += [
        Submit(request=Request(request_id=m.RequestId(f"r{job}"), mode=m.LaunchMode.GPU), job=job)
        for job in (JOB, OTHER)
    ]
    beside = assign(NEW, 2, OLD, n1="bc", n2="a")
    return apply_all(
        Ledger(epoch=m.Epoch(3)), [*made, assign(OLD, 1, n1="ab"), beside, ReleaseRun(NEW), *writes]
    )


def test_the_present_run_goes_on_while_the_next_one_is_made_ready() -> None:
    ledger = running()
    assert ledger.jobs[JOB].status is JobStatus.RUNNING
    assert (ledger.live_run(JOB), ledger.next_run(JOB)) == (ledger.runs[OLD], ledger.runs[NEW])
    assert ledger.is_newest(ledger.runs[OLD])
    assert not ledger.is_newest(ledger.runs[NEW])
    assert [(each.key.run_id, each.follows) for each in ledger.desired(N1)] == [
        (OLD, ""),
        (NEW, OLD),
    ]
    assert ledger.busy(N1) == {A, B, C}
    assert ledger.busy(N2) == {A}


@pytest.mark.parametrize("gpus", [{"n1": "b"}, {"n1": "c"}, {"n2": "a"}])
def test_no_other_job_gets_a_gpu_of_either_run(gpus: dict[str, str]) -> None:
    with pytest.raises(InvariantBroken, match="is not free"):
        apply_all(running(), [assign(ELSE, 1, **gpus)])


def test_no_run_follows_beside_another_one_or_without_a_run_before() -> None:
    for write in (assign(m.RunId("x"), 3, OLD, n2="b"), assign(m.RunId("x"), 3, NEW, n2="b")):
        with pytest.raises(InvariantBroken, match="cannot follow"):
            apply_all(running(), [write])
    taken = running(over(NEW, N1), over(NEW, N2), assign(ELSE, 1, n2="a"))
    with pytest.raises(InvariantBroken, match="is not free"):
        apply_all(taken, [assign(m.RunId("x"), 3, OLD, n2="a")])


def test_it_takes_over_when_every_rank_has_handed_over() -> None:
    asked = running(StopRun(OLD, RESIZE, hand_over=WHERE))
    assert asked.desired(N1)[0].hand_over == WHERE
    assert asked.desired(N1)[1].follows == OLD
    ledger = apply_all(asked, [over(OLD)])
    assert ledger.jobs[JOB].status is JobStatus.RUNNING
    assert ledger.live_run(JOB) == ledger.runs[NEW]
    assert ledger.next_run(JOB) is None
    (wanted,) = ledger.desired(N1)
    assert (wanted.key.run_id, wanted.follows, wanted.want) == (NEW, "", m.Want.RUNNING)
    assert ledger.busy(N1) == {B, C}
    done = apply_all(ledger, [over(NEW, N1, None, 0), over(NEW, N2, None, 0)])
    assert done.jobs[JOB].status is JobStatus.COMPLETED


# how the present run ends, what is said of the next one before that, and what becomes of the job
ENDS: dict[str, tuple[list[Write], JobStatus]] = {
    "it has a checkpoint instead": (
        [StopRun(OLD, RESIZE, hand_over=WHERE), over(OLD, told=STOPPED)],
        JobStatus.PENDING,
    ),
    "a new rank is gone": (
        [StopRun(OLD, RESIZE, hand_over=WHERE), over(NEW, N2, None, 1), over(OLD)],
        JobStatus.PENDING,
    ),
    "its node is lost": (
        [StopRun(OLD, RESIZE, hand_over=WHERE), MemberOver(OLD, N1, presumed="lost")],
        JobStatus.PENDING,
    ),
    "it is done": ([over(OLD, told=m.Told.FINISHED, code=0)], JobStatus.COMPLETED),
    "it fails": ([over(OLD, told=None, code=1)], JobStatus.FAILED),
    "it is cancelled": (
        [StopRun(OLD, RESIZE, hand_over=WHERE), StopRun(OLD, m.StopReason.CANCEL), over(OLD)],
        JobStatus.CANCELLED,
    ),
    "it is preempted": ([StopRun(OLD, m.StopReason.PREEMPT), over(OLD)], JobStatus.PENDING),
}


@pytest.mark.parametrize("case", ENDS)
def test_else_it_is_given_up_and_its_job_ends_as_without_it(case: str) -> None:
    writes, status = ENDS[case]
    ledger = running(*writes)
    assert ledger.jobs[JOB].status is status
    assert ledger.live_run(JOB) is None
    given_up = ledger.next_run(JOB)
    assert given_up is not None
    assert given_up.stop is not None
    assert leader.unplaceable(ledger, JOB)  # nothing starts beside it
    left = [over(NEW, node, None) for node in (N1, N2)]
    clean = apply_all(ledger, [each for each in left if not _is_over(ledger.runs[NEW], each.node)])
    assert clean.jobs[JOB].status is status
    assert clean.busy(N1) | clean.busy(N2) == set()
    assert (not leader.unplaceable(clean, JOB)) == (status is JobStatus.PENDING)


def _is_over(run: Run, node: m.NodeName) -> bool:
    return run.members[node].is_over


def test_the_end_of_the_next_run_alone_changes_nothing_for_its_job() -> None:
    ledger = running(over(NEW, N2, None, 1))
    assert ledger.runs[NEW].stop is m.StopReason.PEER
    ledger = apply_all(ledger, [over(NEW, N1, None, 143)])
    assert ledger.jobs[JOB].status is JobStatus.RUNNING
    assert ledger.live_run(JOB) == ledger.runs[OLD]
    assert ledger.busy(N2) == set()
    done = apply_all(ledger, [over(OLD, told=None, code=0)])  # though a later run is there
    assert done.jobs[JOB].status is JobStatus.COMPLETED


def test_a_late_record_counts_although_a_run_has_followed() -> None:
    lost = running(MemberOver(OLD, N1, presumed="lost"))
    assert lost.jobs[JOB].status is JobStatus.PENDING
    known = apply_all(lost, [over(OLD, told=None, code=0)])
    assert known.jobs[JOB].status is JobStatus.COMPLETED


@given(st.permutations([over(OLD), over(NEW, N1, None, 1), over(NEW, N2, None, 1)]))
def test_in_any_order_of_ends_at_most_one_run_trains(ends: list[MemberOver]) -> None:
    ledger = running(StopRun(OLD, RESIZE, hand_over=WHERE))
    for each in ends:
        ledger = apply_all(ledger, [each])
        alive = [run for run in ledger.runs.values() if not run.is_over]
        assert sum(run.follows is None for run in alive) <= 1
        assert ledger.jobs[JOB].status in (
            JobStatus.STOPPING, JobStatus.PENDING, JobStatus.RUNNING, JobStatus.FAILED,
        )  # fmt: skip
    assert ledger.live_run(JOB) is None


# -- the node --------------------------------------------------------------------------------------


def turn_of(ledger: Ledger, *held: m.DesiredRun) -> AgentTurn:
    state = agent.AgentState(
        node=N1,
        boot_id=m.BootId("b"),
        inventory=m.Inventory(gpus=(A, B, C)),
        desired=ledger.desired(N1),
        held={each.key.run_id: agent.Held(desired=each, phase=m.Phase.RUNNING) for each in held},
    )
    return AgentTurn(state)


def test_a_node_starts_it_beside_the_run_that_it_follows_and_beside_no_other() -> None:
    old, new = running().desired(N1)
    turn = turn_of(running(), old)
    assert turn.veto(new) == ""
    assert turn.veto(replace(new, follows=m.RunId(""))) == "GPU held by run 1.1"
    assert turn.veto(replace(new, gpus=(C,), follows=m.RunId(""))) == (
        "run 1.1 of the same job is here"
    )
    other = replace(new, key=key(OTHER, 1, ELSE), follows=m.RunId(""))
    assert turn.veto(other) == "GPU held by run 1.1"


def test_a_node_tells_its_keeper_until_that_has_taken_over() -> None:
    _, waiting = running().desired(N1)
    ledger = running(StopRun(OLD, RESIZE, hand_over=WHERE), over(OLD))
    turn = turn_of(ledger, waiting)
    turn.reconcile(0.0)
    assert turn.commands == [OrderKeeper(NEW, m.TakeOver())]
    turn = turn_of(ledger, replace(waiting, follows=m.RunId("")))
    turn.reconcile(0.0)
    assert turn.commands == []


def test_a_node_kills_it_when_it_is_given_up() -> None:
    _, waiting = running().desired(N1)
    turn = turn_of(running(StopRun(NEW, m.StopReason.ABORT)), waiting)
    turn.reconcile(0.0)
    assert turn.commands == [OrderKeeper(NEW, m.Kill(m.StopReason.ABORT))]


def test_a_keeper_tells_its_ranks_once() -> None:
    _, desired = running().desired(N1)
    state = keeper.KeeperState(node=N1, desired=desired, stage=keeper.Stage.RUNNING)
    taken, commands = keeper.step(state, keeper.OrderArrived(1.0, m.TakeOver()))
    assert taken.desired.follows == ""
    assert commands == [keeper.TellToTakeOver(), keeper.Report(taken.status())]
    again, commands = keeper.step(taken, keeper.OrderArrived(2.0, m.TakeOver()))
    assert (again, commands) == (taken, [])


def test_a_keeper_passes_on_where_the_next_ranks_wait() -> None:
    desired = running().desired(N1)[0]
    state = keeper.KeeperState(node=N1, desired=desired, stage=keeper.Stage.RUNNING)
    stop = m.Stop(reason=RESIZE, hand_over=WHERE)
    _, commands = keeper.step(state, keeper.OrderArrived(1.0, stop))
    assert keeper.SendSignal(keeper.SIGTERM, None, WHERE) in commands
