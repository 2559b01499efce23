"""A process that cannot be killed is alive: its job starts nowhere and its GPUs stay taken."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlsched.protocol import agent, leader, rules
from dlsched.protocol import messages as m
from dlsched.protocol.ledger import (
    FENCED,
    IS_GONE,
    NONE_LEFT,
    Assign,
    JobStatus,
    Ledger,
    Member,
    MemberOver,
    RegisterNode,
    Request,
    Run,
    RunStatus,
    StopRun,
    Submit,
    apply,
    apply_all,
)
from dlsched.protocol.table import Table

N1, N2 = m.NodeName("n1"), m.NodeName("n2")
JOB, RUN = m.JobId(1), m.RunId("r1")
KEY = m.RunKey(JOB, m.RunNumber(1), RUN)
UNKILLABLE = m.ExitRecord(
    key=KEY, node=N1, reason=m.ExitReason.UNKILLABLE, signal=9, stuck=True, nodes=(N1,)
)
ASKED = [
    ("nothing", None, UNKILLABLE, JobStatus.FAILED),
    ("to give way", m.StopReason.PREEMPT, UNKILLABLE, JobStatus.PENDING),
    ("to move", m.StopReason.MIGRATE, UNKILLABLE, JobStatus.PENDING),
    ("to have another size", m.StopReason.RESIZE, UNKILLABLE, JobStatus.PENDING),
    ("to be queued again", m.StopReason.REQUEUE, UNKILLABLE, JobStatus.PENDING),
    ("to end", m.StopReason.CANCEL, UNKILLABLE, JobStatus.CANCELLED),
    (
        "no more time",
        None,
        replace(UNKILLABLE, stop=m.StopReason.TIME_LIMIT),
        JobStatus.TIMEOUT,
    ),
    (
        "to give way; its script has left, and something that it had started has not",
        m.StopReason.PREEMPT,
        replace(UNKILLABLE, reason=m.ExitReason.EXITED, code=143, signal=0, term_s=1.0),
        JobStatus.PENDING,
    ),
    (
        "to give way, of an agent of an earlier version",
        m.StopReason.PREEMPT,
        replace(UNKILLABLE, stuck=False),
        JobStatus.PENDING,
    ),
]


def inventory(node: m.NodeName, gpus: int = 2) -> m.Inventory:
    return m.Inventory(gpus=tuple(m.GpuId(f"{node}g{k}") for k in range(gpus)))


def stuck(stop: m.StopReason | None, end: m.ExitRecord, gpus: int = 1) -> Ledger:
    """A job on one node of two whose run has ended, and has left a process."""
    book = Ledger(epoch=m.Epoch(1))
    for node in (N1, N2):
        register = RegisterNode(
            node=node,
            boot_id=m.BootId("b"),
            incarnation=m.Incarnation(1),
            inventory=inventory(node),
        )
        book = apply(book, register)
    request = Request(request_id=m.RequestId("q"), gang=(gpus,))
    shares = (m.Share(node=N1, gpus=inventory(N1).gpus[:gpus]),)
    book = apply_all(book, (Submit(request=request, job=JOB), Assign(key=KEY, shares=shares)))
    if stop is not None:
        book, end = apply(book, StopRun(RUN, stop)), replace(end, stop=stop)
    return apply(book, MemberOver(RUN, N1, end))


@pytest.mark.parametrize("gpus", [1, 0])
@pytest.mark.parametrize(
    ("stop", "end", "status"), [c[1:] for c in ASKED], ids=[c[0] for c in ASKED]
)
def test_whatever_is_asked_of_a_job_it_waits_for_its_process(
    stop: m.StopReason | None, end: m.ExitRecord, status: JobStatus, gpus: int
) -> None:
    book = stuck(stop, end, gpus)
    mine = set(inventory(N1).gpus[:gpus])
    assert book.jobs[JOB].status is status, "for its user it has ended as it was asked to"
    assert leader.unplaceable(book, JOB).startswith(
        "Unkillable(n1: " if status is JobStatus.PENDING else "not pending"
    )
    assert book.busy(N1) == mine
    assert (book.runs_on(N1), book.desired(N1)) == ([], ())
    for said in (FENCED, "no record of it is left", "not there"):
        assert apply(book, MemberOver(RUN, N1, presumed=said)).stuck_run(JOB) is not None, said
    for said in NONE_LEFT:
        after = apply(book, MemberOver(RUN, N1, presumed=said))
        assert leader.unplaceable(after, JOB) in ("", "not pending"), said
        assert after.busy(N1) == set(), said
        recorded = book.runs[RUN].members[N1].exit
        assert after.runs[RUN].members[N1].exit == recorded, "a recorded exit is never replaced"
        assert after.jobs == book.jobs


def test_an_index_that_is_made_anew_has_stuck_runs_too() -> None:
    book = stuck(m.StopReason.PREEMPT, UNKILLABLE)
    anew = Ledger(jobs=dict(book.jobs), runs=dict(book.runs), nodes=dict(book.nodes))
    assert anew.held_by[N1] == book.held_by[N1] == {RUN}
    assert anew.stuck_runs_on(N1) == book.stuck_runs_on(N1)


# -- what a leader takes for its end ---------------------------------------------------------------


def leading(book: Ledger) -> leader.LeaderState:
    state = leader.LeaderState(name="d1")
    return leader.step(state, leader.Elected(0.0, 0.0, book))[0]


def sync(state: leader.LeaderState, sequence: int = 1, **changes: object) -> m.Sync:
    """What the node says that had the run."""
    term = m.Term(state.epoch, state.committed.nodes[N1].revision)
    found = m.Sync(
        node=N1,
        boot_id=m.BootId("b"),
        incarnation=m.Incarnation(1),
        sequence=sequence,
        last=term,
        applied=term,
        held_digest=m.Digest("h"),
        held=(),
    )
    return replace(found, **changes)  # type: ignore[arg-type]


HELD = m.HeldRun(key=KEY, phase=m.Phase.STOPPING, gpus=(m.GpuId("n1g0"),), nodes=(N1,))


def settled(state: leader.LeaderState, *events: leader.Event) -> leader.LeaderState:
    """The state when all that some events want durable is so."""
    for event in events:
        state, _ = leader.step(state, event)
        while state.in_flight is not None:
            state, _ = leader.step(state, leader.Persisted(event.now, state.in_flight.number))
    return state


def boot(state: leader.LeaderState) -> list[leader.Event]:
    other = sync(
        state, boot_id=m.BootId("c"), incarnation=m.Incarnation(2), inventory=inventory(N1)
    )
    return [leader.SyncArrived(100.0, other)]


SEEN = {
    "it is seen gone": lambda state: [leader.SyncArrived(2.0, sync(state, 2))],
    "its node has booted": boot,
    "its node is confirmed down": lambda state: [leader.DownConfirmed(2.0, N1)],
    "an operator says so": lambda state: [leader.OverConfirmed(2.0, frozenset({(N1, RUN)}))],
}


@pytest.mark.parametrize("seen", sorted(SEEN))
def test_a_leader_forgets_a_stuck_process_when(seen: str) -> None:
    state = leading(stuck(m.StopReason.MIGRATE, UNKILLABLE))
    state = settled(state, leader.SyncArrived(1.0, sync(state, held=(HELD,))))
    assert state.committed.stuck_run(JOB) is not None
    assert state.committed.busy(N1) == {"n1g0"}
    state = settled(state, *SEEN[seen](state))
    assert state.committed.stuck_run(JOB) is None
    assert leader.unplaceable(state.committed, JOB) == ""


def test_an_end_without_what_its_node_holds_leaves_no_moment_in_which_the_job_may_start() -> None:
    """A sync may leave out what the node holds, and is asked for it: the end alone says it."""
    before = stuck(m.StopReason.MIGRATE, UNKILLABLE)
    open_ = replace(before.runs[RUN].members[N1], exit=None)
    run = replace(before.runs[RUN], members={N1: open_}, status=RunStatus.RELEASED)
    state = leading(Ledger(epoch=m.Epoch(1), jobs=before.jobs, runs={RUN: run}, nodes=before.nodes))
    jobs = having(state.reserved, JobStatus.STOPPING)
    state = replace(state, reserved=jobs, committed=jobs)
    end = replace(UNKILLABLE, stop=m.StopReason.MIGRATE)
    told = sync(state, held=None, ended=(end,))
    state = settled(state, leader.SyncArrived(1.0, told))
    assert state.committed.jobs[JOB].status is JobStatus.PENDING
    place = leader.PlaceAsked(1.0, JOB, m.RunId("r2"), (m.Share(node=N2, gpus=(m.GpuId("n2g0"),)),))
    state, commands = leader.step(replace(state, last_syncs={}), place)
    assert [c.reason for c in commands if isinstance(c, leader.PlacementRefused)]
    assert state.reserved.jobs[JOB].status is JobStatus.PENDING


def having(book: Ledger, status: JobStatus) -> Ledger:
    return replace(book, jobs=Table({JOB: replace(book.jobs[JOB], status=status)}))


def test_an_ended_job_stays_in_memory_with_its_stuck_process() -> None:
    state = leading(stuck(m.StopReason.CANCEL, UNKILLABLE))
    after, _ = leader.step(state, leader.ForgetAsked(3.0, (JOB,)))
    assert after.committed.stuck_run(JOB) is not None
    state = settled(state, leader.OverConfirmed(4.0, frozenset({(N1, RUN)})))
    after, _ = leader.step(state, leader.ForgetAsked(5.0, (JOB,)))
    assert JOB not in after.committed.jobs


def test_a_job_that_starts_again_and_is_cancelled_is_not_forgotten_before_both_are_durable() -> (
    None
):
    state = leading(
        apply(stuck(m.StopReason.CANCEL, UNKILLABLE), MemberOver(RUN, N1, None, IS_GONE))
    )
    known = (state.committed.jobs[JOB], state.committed.runs[RUN])
    for asked in (leader.RequeueAsked(1.0, 1, JOB, known), leader.CancelAsked(1.0, 2, JOB)):
        state, _ = leader.step(state, asked)
    assert state.reserved.jobs[JOB].status is state.committed.jobs[JOB].status
    assert state.in_flight is not None
    state, _ = leader.step(state, leader.ForgetAsked(1.5, (JOB,)))
    while state.in_flight is not None:
        state, _ = leader.step(state, leader.Persisted(2.0, state.in_flight.number))
    assert state.committed.jobs[JOB].status is JobStatus.CANCELLED
    state, _ = leader.step(state, leader.ForgetAsked(3.0, (JOB,)))
    assert JOB not in state.reserved.jobs


def test_what_a_node_holds_again_of_a_run_that_was_given_up_closes_its_gpus() -> None:
    book = stuck(None, UNKILLABLE)
    member = replace(book.runs[RUN].members[N1], exit=None, presumed=FENCED)
    run = replace(book.runs[RUN], members={N1: member})
    state = leading(Ledger(epoch=m.Epoch(1), jobs=book.jobs, runs={RUN: run}, nodes=book.nodes))
    assert state.committed.busy(N1) == set()
    held = replace(HELD, phase=m.Phase.FENCED)
    state = settled(state, leader.SyncArrived(1.0, sync(state, held=(held,))))
    assert state.committed.busy(N1) == {"n1g0"}
    state = settled(state, leader.SyncArrived(2.0, sync(state, 2)))
    assert state.committed.busy(N1) == set()


def test_a_plan_that_began_before_its_gpus_were_closed_is_looked_at_again() -> None:
    """A round decides for a while, and a sync may come in that time."""
    other = apply(stuck(m.StopReason.CANCEL, UNKILLABLE), MemberOver(RUN, N1, presumed=IS_GONE))
    request = Request(request_id=m.RequestId("other"))
    state = leading(apply(other, Submit(request=request, job=m.JobId(2))))
    state = settled(state, leader.SyncArrived(1.0, sync(state)))
    gpu = m.GpuId("n1g1")
    plan = leader.PlaceAsked(1.5, m.JobId(2), m.RunId("r2"), (m.Share(node=N1, gpus=(gpu,)),))
    closed = sync(state, 2, health=m.Health(quarantined=(gpu,)))
    state, _ = leader.step(state, leader.SyncArrived(1.4, closed))  # not even durable yet
    heard = {**state.last_syncs, N2: state.last_syncs[N1]}
    _, commands = leader.step(replace(state, last_syncs=heard), leader.Together(1.5, (plan,)))
    assert [c.reason for c in commands if isinstance(c, leader.PlacementRefused)] == ["n1 is busy"]


# -- what an agent knows ---------------------------------------------------------------------------

WANTED = m.DesiredRun(
    key=KEY,
    want=m.Want.RUNNING,
    epoch=m.Epoch(1),
    boot_id=m.BootId("b"),
    gpus=(m.GpuId("n1g0"),),
    layout=(m.Share(node=N1, gpus=(m.GpuId("n1g0"),)),),
)


def on_node(record: agent.RunRecord | None, *keepers: m.KeeperStatus) -> agent.AgentState:
    """An agent that has just started."""
    state, _ = agent.step(
        agent.AgentState(node=N1, inventory=inventory(N1)),
        agent.Started(
            now=0.0,
            boot_id=m.BootId("b"),
            start="s",
            record=agent.AgentRecord(),
            runs=() if record is None else (record,),
            keepers=keepers,
        ),
    )
    return agent.step(state, agent.Persisted(0.0, state.writing or agent.AgentRecord()))[0]


def replied(state: agent.AgentState, **changes: object) -> tuple[agent.AgentState, list]:
    """The agent after a reply to its newest sync, and its commands."""
    answer = m.Reply(
        node=N1,
        incarnation=state.record.incarnation,
        sequence=state.sequence,
        term=state.record.term,
        desired_digest=m.Digest(""),
        desired=(),
    )
    return agent.step(state, agent.ReplyArrived(0.1, replace(answer, **changes)))  # type: ignore[arg-type]


RECORD = agent.RunRecord(desired=WANTED, boot_id=m.BootId("b"), released=True, exit=UNKILLABLE)
STATUS = m.KeeperStatus(desired=WANTED, phase=m.Phase.STOPPING, exit=UNKILLABLE, quarantined=True)


@pytest.mark.parametrize("keeper", [True, False], ids=["with its keeper", "without its keeper"])
def test_an_agent_keeps_the_record_of_a_process_that_cannot_be_killed(keeper: bool) -> None:
    """So its next start knows of it too, whether the keeper lives or not."""
    state = on_node(RECORD, *([STATUS] if keeper else []))
    assert state.quarantined() == ("n1g0",)
    state, commands = replied(state, acknowledged=(RUN,))
    assert not [c for c in commands if isinstance(c, agent.DropRecord)]
    assert [held.key for held in state.held_runs()] == [KEY]
    if keeper:
        gone: agent.Event = agent.KeeperReported(9.0, replace(STATUS, quarantined=False))
    else:
        gone = agent.LeftoversGone(9.0, RUN, RECORD)
    state, _ = agent.step(state, gone)
    assert (state.quarantined(), state.held_runs()) == ((), ())
    state, commands = replied(agent.step(state, agent.Tick(9.5))[0], acknowledged=(RUN,))
    assert [c.run_id for c in commands if isinstance(c, agent.DropRecord)] == [RUN]


def test_a_record_of_an_earlier_boot_holds_nothing() -> None:
    state = on_node(replace(RECORD, boot_id=m.BootId("a")))
    assert (state.quarantined(), list(state.ended)) == ((), [RUN])


def test_a_node_that_cannot_fence_waits_for_an_operator_there_too() -> None:
    """It cannot see whether the process is gone whose keeper has died."""
    state = on_node(None, STATUS)
    state = replace(state, inventory=replace(state.inventory, can_fence=False))
    state, _ = agent.step(state, agent.KeeperGone(1.0, RUN))
    state, _ = replied(
        agent.step(state, agent.LeftoversGone(2.0, RUN, RECORD))[0], acknowledged=(RUN,)
    )
    [held] = state.held_runs()
    assert (held.in_doubt, state.quarantined()) == (True, ("n1g0",))
    state, commands = replied(agent.step(state, agent.Tick(3.0))[0], over=(RUN,))
    assert agent.WriteEnd(UNKILLABLE) in commands
    state, _ = agent.step(state, agent.EndWritten(3.0, UNKILLABLE))
    assert (state.quarantined(), state.held_runs()) == ((), ())


def test_a_node_starts_a_job_again_beside_its_stuck_process_when_an_operator_says_so() -> None:
    """On other GPUs: those of the process stay taken."""
    state, _ = replied(on_node(None, STATUS), acknowledged=(RUN,))
    state, _ = agent.step(state, agent.Tick(0.1))
    next_run = m.RunKey(JOB, m.RunNumber(2), m.RunId("r2"))
    for gpu, over, started in [
        ("n1g1", (), False),
        ("n1g1", (RUN,), True),
        ("n1g0", (RUN,), False),
    ]:
        want = replace(WANTED, key=next_run, gpus=(m.GpuId(gpu),))
        _, commands = replied(state, desired=(want,), over=over)
        assert any(isinstance(c, agent.Spawn) for c in commands) is started, (gpu, over)


# -- a lease fences only what obeys ----------------------------------------------------------------

STOPPED = replace(HELD, phase=m.Phase.STOPPING)
RUNS = replace(HELD, phase=m.Phase.RUNNING)
FENCES: list[tuple[str, m.StopReason | None, frozenset[m.RunId] | None, m.HeldRun, bool]] = [
    ("it ran", None, frozenset(), RUNS, True),
    ("its node was told to end it", m.StopReason.PREEMPT, frozenset({RUN}), RUNS, False),
    ("it was to end, and its node has not heard that", m.StopReason.PEER, frozenset(), RUNS, True),
    ("an earlier leader may have told its node", m.StopReason.CANCEL, None, RUNS, False),
    ("it was ending at its limit", None, frozenset(), STOPPED, False),
]


@pytest.mark.parametrize(
    ("stop", "told", "held", "may"), [c[1:] for c in FENCES], ids=[c[0] for c in FENCES]
)
def test_which_runs_of_a_silent_node_are_over_with_its_lease(
    stop: m.StopReason | None, told: frozenset[m.RunId] | None, held: m.HeldRun, may: bool
) -> None:
    member = Member(node=N1, gpus=(), boot_id=m.BootId("b"), since=m.Term())
    run = Run(
        key=KEY,
        status=RunStatus.RELEASED,
        members={N1: member},
        epoch=m.Epoch(1),
        stop=stop,
        released=True,
    )
    assert rules.may_be_fenced(run, told, [held]) is may
    prepared = replace(run, status=RunStatus.PREPARING, released=False)
    assert rules.may_be_fenced(prepared, told, [held]), "it has no process"
