"""Single steps of each party: tables of what an event means in a state."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlsched.core.errors import BadInput, InvariantBroken
from dlsched.protocol import agent, keeper, leader, ledger, rules
from dlsched.protocol import messages as m
from dlsched.protocol.keeper import Stage
from dlsched.protocol.ledger import Cause, JobStatus, applying
from dlsched.protocol.timing import STALE_S, Timing

N1 = m.NodeName("n1")
GPU = m.GpuId("g0")
KEY = m.RunKey(m.JobId(1), m.RunNumber(1), m.RunId("r1"))
RUN = m.DesiredRun(
    key=KEY,
    want=m.Want.RUNNING,
    epoch=m.Epoch(1),
    boot_id=m.BootId("b1"),
    gpus=(GPU,),
    layout=(m.Share(node=N1, gpus=(GPU,)),),
)


def drive(state: keeper.KeeperState, *events: keeper.Event) -> tuple[keeper.KeeperState, list]:
    commands: list = []
    for event in events:
        state, more = keeper.step(state, event)
        commands += more
    return state, commands


def running(**changes: object) -> keeper.KeeperState:
    state = keeper.KeeperState(node=N1, desired=replace(RUN, **changes))  # type: ignore[arg-type]
    state, _ = drive(
        state, keeper.Began(0.0, 100.0), keeper.Reserved(0.0, True), keeper.ReleaseWritten(0.0)
    )
    assert state.stage is Stage.RUNNING
    return state


def test_other_processors_or_memory_are_applied_while_the_job_runs_and_only_then_once() -> None:
    state = running(limits=m.Limits(time_s=100.0, cpus=2))
    fewer = m.Adjust(limits=m.Limits(time_s=100.0, cpus=1), grace_s=RUN.grace_s)
    state, commands = drive(state, keeper.OrderArrived(1.0, fewer), keeper.OrderArrived(2.0, fewer))
    applied = [each for each in commands if isinstance(each, keeper.ApplyLimits)]
    assert applied == [keeper.ApplyLimits(fewer.limits)]
    longer = m.Adjust(limits=replace(fewer.limits, time_s=200.0), grace_s=RUN.grace_s)
    _, commands = drive(state, keeper.OrderArrived(3.0, longer))
    assert not any(isinstance(each, keeper.ApplyLimits) for each in commands)


STOPS = [
    ("running: TERM first", [], m.Stop(reason=m.StopReason.CANCEL), Stage.STOPPING, [15]),
    ("over: KILL at once", [], m.Stop(reason=m.StopReason.OVER), Stage.KILLING, [9]),
    ("suspended, cancel", [m.Freeze()], m.Stop(reason=m.StopReason.CANCEL), Stage.KILLING, [9]),
    ("suspended, preempt", [m.Freeze()], m.Stop(reason=m.StopReason.PREEMPT), Stage.STOPPING, [15]),
    ("twice", [m.Stop(reason=m.StopReason.CANCEL)], m.Stop(reason=m.StopReason.CANCEL),
     Stage.STOPPING, []),
    ("signal only", [], m.Signal(10), Stage.RUNNING, [10]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("before", "order", "stage", "signals"), [case[1:] for case in STOPS], ids=[c[0] for c in STOPS]
)
def test_what_an_order_does_to_a_running_job(
    before: list, order: m.Order, stage: Stage, signals: list[int]
) -> None:
    state, _ = drive(running(), *(keeper.OrderArrived(1.0, o) for o in before))
    state, commands = drive(state, keeper.OrderArrived(2.0, order))
    assert state.stage is stage
    assert [c.number for c in commands if isinstance(c, keeper.SendSignal)] == signals


def test_other_limits_count_from_here_on_and_touch_nothing_else() -> None:
    state = running(limits=m.Limits(time_s=100.0))
    assert state.deadline() == 100.0
    longer = m.Adjust(limits=m.Limits(time_s=250.0), grace_s=5.0)
    state, commands = drive(state, keeper.OrderArrived(90.0, longer))
    assert [type(command) for command in commands] == [keeper.Report]
    assert state.deadline() == 250.0
    state, commands = drive(state, keeper.OrderArrived(95.0, longer), keeper.DeadlinePassed(101.0))
    assert not commands  # repeated, and the old limit has passed
    shorter = replace(longer, limits=m.Limits(time_s=50.0))
    state, commands = drive(
        state, keeper.OrderArrived(110.0, shorter), keeper.DeadlinePassed(110.0)
    )
    assert keeper.SendSignal(15, None) in commands
    assert (state.stop, state.kill_at) == (m.StopReason.TIME_LIMIT, 115.0)


@pytest.mark.parametrize(("grace_s", "bound"), [(60.0, 10.0), (3.0, 3.0)])
def test_the_peer_of_a_failed_rank_gets_term_at_once_and_kill_soon(
    grace_s: float, bound: float
) -> None:
    stop = m.Stop(reason=m.StopReason.PEER)
    state, commands = drive(running(grace_s=grace_s), keeper.OrderArrived(1.0, stop))
    assert keeper.SendSignal(15, None) in commands
    assert state.deadline() == 1.0 + bound == 1.0 + keeper.grace_of_peers_s(grace_s)
    state, commands = drive(state, keeper.DeadlinePassed(1.0 + bound))
    assert keeper.SendSignal(9) in commands


def test_a_stop_that_is_ignored_becomes_a_kill_and_then_a_quarantine() -> None:
    state, _ = drive(
        running(grace_s=20.0), keeper.OrderArrived(1.0, m.Stop(reason=m.StopReason.CANCEL))
    )
    assert state.deadline() == 21.0
    state, commands = drive(state, keeper.DeadlinePassed(21.0))
    assert keeper.SendSignal(9) in commands
    assert state.deadline() == 81.0
    state, commands = drive(state, keeper.DeadlinePassed(81.0), keeper.ExitWritten(81.0))
    assert state.exit is not None
    assert (state.exit.reason, state.quarantined) == (m.ExitReason.UNKILLABLE, True)
    state, commands = drive(state, keeper.OrderArrived(82.0, m.Forget()))
    assert state.stage is Stage.ENDED  # it watches the stuck process until it is gone
    state, commands = drive(state, keeper.JobExited(200.0, 0, 9), keeper.JobExited(200.0, 0, 9))
    assert commands[-1] == keeper.Leave()


def test_an_end_is_told_only_when_it_is_durable() -> None:
    state, commands = drive(running(), keeper.JobExited(5.0, 0))
    assert [type(c) for c in commands] == [keeper.WriteExit]
    assert state.status().exit is None
    state, _ = drive(state, keeper.ExitWritten(5.1))
    assert state.status().exit is not None


def test_a_prepared_keeper_gives_up_after_its_own_timer() -> None:
    gang = replace(RUN, want=m.Want.PREPARED)
    state = keeper.KeeperState(node=N1, desired=gang)
    state, _ = drive(state, keeper.Began(0.0), keeper.Reserved(0.0, True))
    assert state.deadline() == 30.0
    state, _ = drive(state, keeper.DeadlinePassed(30.0), keeper.ExitWritten(30.0))
    assert state.exit is not None
    assert state.exit.reason is m.ExitReason.NOT_STARTED
    _, commands = drive(state, keeper.OrderArrived(30.1, m.Release()))
    assert keeper.Execute() not in commands


def test_a_fenced_job_freezes_at_the_end_of_its_lease_and_only_a_leader_thaws_it() -> None:
    state = running(fence=m.Fence.LEASE)
    assert state.deadline() == 100.0
    state, commands = drive(state, keeper.DeadlinePassed(100.0))
    assert keeper.FreezeJob() in commands
    for event in (
        keeper.LeaseChanged(101.0, 130.0, True, False),
        keeper.OrderArrived(102.0, m.Thaw()),
    ):
        state, commands = drive(state, event)
        assert keeper.ThawJob() not in commands
    _, commands = drive(state, keeper.LeaseChanged(103.0, 130.0, True, True))
    assert keeper.ThawJob() in commands
    _, commands = drive(state, keeper.OrderArrived(103.0, m.Stop(reason=m.StopReason.PREEMPT)))
    assert keeper.SendSignal(9) in commands  # never thawed to leave in good order


def test_a_job_that_is_leaving_is_fenced_too() -> None:
    state = running(fence=m.Fence.LEASE, grace_s=600.0)
    state, _ = drive(state, keeper.OrderArrived(90.0, m.Stop(reason=m.StopReason.PREEMPT)))
    _, commands = drive(state, keeper.DeadlinePassed(100.0))
    assert keeper.FreezeJob() in commands


def test_a_lease_that_does_not_list_the_run_freezes_it_at_once() -> None:
    _, commands = drive(running(fence=m.Fence.LEASE), keeper.LeaseChanged(50.0, 90.0, False, True))
    assert keeper.FreezeJob() in commands


def test_an_undefined_transition_is_an_error_with_a_story() -> None:
    with pytest.raises(InvariantBroken, match=r"keeper of 1\.1 is running"):
        keeper.step(running(), keeper.ReleaseWritten(1.0))
    book = ledger.apply(ledger.Ledger(), ledger.Submit(request=_request(), job=m.JobId(1)))
    with pytest.raises(InvariantBroken, match="job 1 is pending and cannot be released"):
        applying._move(book, m.JobId(1), Cause.RELEASED)


@pytest.mark.parametrize("status", [each for each in JobStatus if each.is_terminal])
def test_only_its_user_leads_a_job_out_of_a_terminal_status(status: JobStatus) -> None:
    found = [cause for before, cause in ledger.TRANSITIONS if before is status]
    assert found == [Cause.RESTARTED]


def _request(**changes: object) -> ledger.Request:
    return ledger.Request(request_id=m.RequestId("q"), **changes)  # type: ignore[arg-type]


EXIT = m.ExitRecord(key=KEY, node=N1, reason=m.ExitReason.EXITED)
KILLED = replace(EXIT, reason=m.ExitReason.SIGNALLED, signal=9)
PREEMPT, CANCEL = m.StopReason.PREEMPT, m.StopReason.CANCEL
NODE_LOST = m.ExitReason.NODE_LOST
VERDICTS = [
    ("0 is success", EXIT, None, Cause.COMPLETED),
    ("0 under a cancel", EXIT, CANCEL, Cause.COMPLETED),
    ("3 is failure", replace(EXIT, code=3), None, Cause.FAILED),
    ("143 alone is failure", replace(EXIT, code=143), None, Cause.FAILED),
    ("143 under a stop", replace(EXIT, code=143, stop=PREEMPT), PREEMPT, Cause.REQUEUED),
    ("own signal", KILLED, None, Cause.FAILED),
    ("our signal", replace(KILLED, stop=PREEMPT), PREEMPT, Cause.REQUEUED),
    ("cancelled", replace(EXIT, code=143, stop=CANCEL), CANCEL, Cause.CANCELLED),
    ("time limit", replace(EXIT, reason=m.ExitReason.TIME_LIMIT), None, Cause.TIMED_OUT),
    ("keeper lost", replace(EXIT, reason=m.ExitReason.KEEPER_LOST), None, Cause.REQUEUED),
    ("node lost", replace(EXIT, reason=m.ExitReason.NODE_LOST), None, Cause.REQUEUED),
    ("not started", replace(EXIT, reason=m.ExitReason.NOT_STARTED), None, Cause.REQUEUED),
    ("presumed", None, None, Cause.REQUEUED),
]


@pytest.mark.parametrize(
    ("record", "stop", "cause"), [case[1:] for case in VERDICTS], ids=[c[0] for c in VERDICTS]
)
def test_what_an_end_means_for_the_job(
    record: m.ExitRecord | None, stop: m.StopReason | None, cause: Cause
) -> None:
    member = ledger.Member(
        node=N1, gpus=(GPU,), boot_id=m.BootId("b1"), since=m.Term(), exit=record, presumed="gone"
    )
    run = ledger.Run(
        key=KEY,
        status=ledger.RunStatus.OVER,
        members={N1: member},
        epoch=m.Epoch(1),
        stop=stop,
    )
    assert ledger.judge(run, ledger.Job(job=KEY.job, request=_request()))[0] is cause


SICK = f"{ledger.GPU_UNHEALTHY}g1"
ENDS = [  # of a job that must not begin anew
    ("preempted", replace(EXIT, code=143, stop=PREEMPT), "", PREEMPT, "Preempted"),
    ("node gone", None, "confirmed down", None, "NodeFail(n1: lost confirmed down)"),
    ("node lost", replace(EXIT, reason=NODE_LOST), "", None, "NodeFail(n1: node-lost)"),
    ("gone while it was taken back", None, "rebooted", PREEMPT, "NodeFail(n1: lost rebooted)"),
    ("its GPU", replace(EXIT, code=1), SICK, None, "GpuFail(n1: unhealthy g1)"),
    ("its owner asked", None, "gone", m.StopReason.REQUEUE, ""),
    ("never started", replace(EXIT, reason=m.ExitReason.NOT_STARTED), "", None, ""),
    ("aborted", None, "gone", m.StopReason.ABORT, ""),
]  # fmt: skip


@pytest.mark.parametrize(
    ("record", "presumed", "stop", "reason"), [case[1:] for case in ENDS], ids=[c[0] for c in ENDS]
)
def test_a_job_that_must_not_begin_anew_ends_with_its_run(
    record: m.ExitRecord | None, presumed: str, stop: m.StopReason | None, reason: str
) -> None:
    member = ledger.Member(
        node=N1, gpus=(GPU,), boot_id=m.BootId("b1"), since=m.Term(), exit=record, presumed=presumed
    )
    run = ledger.Run(
        key=KEY, status=ledger.RunStatus.OVER, members={N1: member}, epoch=m.Epoch(1), stop=stop,
        released=True,
    )  # fmt: skip
    cause, why, _ = ledger.judge(run, ledger.Job(job=KEY.job, request=_request(requeue=False)))
    assert (cause is Cause.LOST, why if reason else "") == (bool(reason), reason)
    cause, _, _ = ledger.judge(run, ledger.Job(job=KEY.job, request=_request(retries=3)))
    assert cause is Cause.REQUEUED


LOST = [  # seconds that each run had executed, retries after faults of GPUs, and the cause at last
    ("within its bound", (60.0, 60.0), 2, Cause.REQUEUED),
    ("one more", (60.0, 60.0, 60.0), 2, Cause.LOST),
    ("none is allowed", (60.0,), 0, Cause.LOST),
    ("no bound", (60.0,) * 9, None, Cause.REQUEUED),
    ("a long run begins the count anew", (60.0, 60.0, 90_000.0, 60.0), 2, Cause.REQUEUED),
]


@pytest.mark.parametrize(
    ("ran", "retries", "cause"), [case[1:] for case in LOST], ids=[c[0] for c in LOST]
)
def test_a_job_goes_on_after_a_bounded_number_of_faults_of_gpus_in_a_row(
    ran: tuple[float, ...], retries: int | None, cause: Cause
) -> None:
    job = ledger.Job(job=KEY.job, request=_request(gpu_retries=retries))
    for ran_s in ran:
        member = ledger.Member(
            node=N1, gpus=(GPU,), boot_id=m.BootId("b1"), since=m.Term(), presumed=SICK,
            exit=replace(EXIT, code=1, ran_s=ran_s),
        )  # fmt: skip
        run = ledger.Run(
            key=KEY, status=ledger.RunStatus.OVER, members={N1: member}, epoch=m.Epoch(1),
            released=True,
        )  # fmt: skip
        found = ledger.judge(run, job)[0]
        job = replace(job, gpu_failures=ledger.gpu_failures_after(run, job))
    assert (found is cause, ledger.has_lost_hardware(run)) == (True, True)
    by_owner = replace(run, stop=m.StopReason.REQUEUE)
    assert not ledger.has_lost_hardware(by_owner)
    assert ledger.gpu_failures_after(by_owner, job) == job.gpu_failures
    assert ledger.judge(by_owner, job)[0] is Cause.REQUEUED


def registered() -> tuple[agent.AgentState, int]:
    """An agent that waits for the reply to its last sync; and that sync's sequence."""
    state = agent.AgentState(node=N1, inventory=m.Inventory(gpus=(GPU,)))
    record = agent.AgentRecord(term=m.Term(m.Epoch(4), m.Revision(7)))
    begun = agent.Started(
        now=0.0, boot_id=m.BootId("b1"), start="s1", record=record, runs=(), keepers=()
    )
    state, commands = agent.step(state, begun)
    counted = replace(record, incarnation=m.Incarnation(1), starts=("s1",))
    assert commands == [agent.Persist(counted)]
    state, _ = agent.step(state, agent.Persisted(0.0, counted))
    return state, state.sequence


def reply(sequence: int, term: m.Term, **changes: object) -> m.Reply:
    made = m.Reply(
        node=N1,
        incarnation=m.Incarnation(1),
        sequence=sequence,
        term=term,
        desired_digest=m.Digest("d"),
        desired=(RUN,),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


REPLIES = [
    ("equal term", m.Term(m.Epoch(4), m.Revision(7)), 1.0, {}, agent.Spawn),
    ("newer term is made durable first", m.Term(m.Epoch(5), m.Revision(1)), 1.0, {}, agent.Persist),
    ("older epoch", m.Term(m.Epoch(3), m.Revision(99)), 1.0, {}, agent.LogLine),
    ("older revision", m.Term(m.Epoch(4), m.Revision(6)), 1.0, {}, agent.LogLine),
    ("too old", m.Term(m.Epoch(4), m.Revision(7)), 5.1, {}, agent.LogLine),
    ("to an earlier agent", m.Term(m.Epoch(9), m.Revision(9)), 1.0, {"incarnation": 0}, None),
    ("register anew", m.Term(), 1.0, {"register": True, "want_held": True}, agent.SendSync),
]  # fmt: skip


@pytest.mark.parametrize(
    ("term", "now", "changes", "first"), [case[1:] for case in REPLIES], ids=[c[0] for c in REPLIES]
)
def test_which_replies_an_agent_uses(
    term: m.Term, now: float, changes: dict, first: type | None
) -> None:
    state, sequence = registered()
    state, commands = agent.step(state, agent.ReplyArrived(now, reply(sequence, term, **changes)))
    assert (type(commands[0]) if commands else None) is first
    assert bool(state.held) == (first is agent.Spawn)


VETOES = [
    ("another boot", {"boot_id": m.BootId("b0")}, "boot"),
    ("no such GPU", {"gpus": (m.GpuId("x"),)}, "GPU"),
    ("stopped already", {"want": m.Want.STOPPED}, "stopped"),
]


@pytest.mark.parametrize(("changes", "why"), [c[1:] for c in VETOES], ids=[c[0] for c in VETOES])
def test_what_an_agent_will_not_start(changes: dict, why: str) -> None:
    state, sequence = registered()
    asked = reply(sequence, state.record.term, desired=(replace(RUN, **changes),))
    state, commands = agent.step(state, agent.ReplyArrived(1.0, asked))
    assert why in state.ended[KEY.run_id].detail
    assert not any(isinstance(command, agent.Spawn) for command in commands)


EXTENSIONS = [
    ("most are there and unrenewed", [20.0, 20.0, 20.0], 5, 90.0, True),
    ("half is not most", [20.0, 20.0], 4, 90.0, False),
    ("one was renewed", [20.0, 20.0, 3.0], 5, 90.0, False),
    ("the lease has ended", [20.0, 20.0, 20.0], 5, 40.0, False),
    ("no witness", [], 0, 90.0, False),
]


@pytest.mark.parametrize(
    ("ages", "witnesses", "until", "may"),
    [c[1:] for c in EXTENSIONS],
    ids=[c[0] for c in EXTENSIONS],
)
def test_when_a_node_may_extend_its_own_lease(
    ages: list[float], witnesses: int, until: float, may: bool
) -> None:
    assert rules.may_extend(ages, witnesses, until, 50.0, Timing()) is may


def test_a_node_has_no_earlier_witnesses_once_every_reply_with_them_is_too_old() -> None:
    names = (m.NodeName("n1"), m.NodeName("n2"))
    sync = m.Sync(
        node=names[0], boot_id=m.BootId("b1"), incarnation=m.Incarnation(1), sequence=1,
        last=m.Term(), applied=m.Term(m.Epoch(3)), held_digest=m.Digest(""), held=(),
        witnesses=names,
    )  # fmt: skip

    def certain(sync: m.Sync, for_s: float) -> bool:
        return rules.has_no_earlier_witnesses(sync, names, for_s, m.Epoch(3), Timing())

    assert certain(sync, 11.0)
    assert not certain(sync, 9.0)
    assert not certain(replace(sync, witnesses=names[:1]), 11.0)
    assert not certain(replace(sync, applied=m.Term(m.Epoch(2))), 11.0)


def test_runs_that_were_started_without_a_fence_stay_without_one() -> None:
    name = m.NodeName("n1")

    def register(known: ledger.Ledger, boot: str, can_fence: bool) -> ledger.Ledger:
        inventory = m.Inventory(gpus=(m.GpuId("g0"),), can_fence=can_fence)
        return ledger.apply(
            known,
            ledger.RegisterNode(
                node=name, boot_id=m.BootId(boot), incarnation=m.Incarnation(1), inventory=inventory
            ),
        )

    known = register(ledger.Ledger(), "b1", False)
    assert not known.nodes[name].can_fence
    assert register(known, "b1", True).nodes[name].can_fence
    submit = ledger.Submit(request=ledger.Request(request_id=m.RequestId("r")), job=m.JobId(1))
    key = m.RunKey(m.JobId(1), m.RunNumber(1), m.RunId("a"))
    share = m.Share(node=name, gpus=(m.GpuId("g0"),))
    held = known
    for write in (submit, ledger.Assign(key=key, shares=(share,))):
        held = ledger.apply(held, write)
    assert not register(held, "b1", True).nodes[name].can_fence
    assert register(held, "b2", True).nodes[name].can_fence
    assert not register(register(known, "b1", True), "b1", False).nodes[name].can_fence


@pytest.mark.parametrize("can_fence", [True, False])
def test_a_run_on_a_node_that_cannot_fence_is_never_frozen(can_fence: bool) -> None:
    asked = ledger.Request(request_id=m.RequestId("r"), fence=m.Fence.LEASE)
    inventory = m.Inventory(gpus=(GPU,), can_fence=can_fence)
    key = m.RunKey(m.JobId(1), m.RunNumber(1), m.RunId("a"))
    known = ledger.Ledger()
    for write in (
        ledger.RegisterNode(
            node=N1, boot_id=m.BootId("b"), incarnation=m.Incarnation(1), inventory=inventory
        ),
        ledger.Submit(request=asked, job=m.JobId(1)),
        ledger.Assign(key=key, shares=(m.Share(node=N1, gpus=(GPU,)),)),
    ):
        known = ledger.apply(known, write)
    [run] = known.desired(N1)
    assert run.fence is (m.Fence.LEASE if can_fence else m.Fence.HOLD)


def test_timing_that_would_let_two_runs_live_is_refused() -> None:
    Timing().check()
    # with the last, a paused leader could renew beside the next one
    for wrong in (
        Timing(margin_s=10.0), Timing(reply_age_s=20.0), Timing(beat_s=8.0), Timing(confirmed_s=6.0)
    ):  # fmt: skip
        with pytest.raises(BadInput):
            wrong.check()


def test_a_standby_leads_within_ten_seconds_of_the_last_beat() -> None:
    asks_every_s = Timing().tick_s
    assert STALE_S + 2 * asks_every_s < 10
    assert Timing().confirmed_s > 2 * asks_every_s  # one lost beat ends no renewals


def test_a_paused_leader_starts_its_windows_anew() -> None:
    state = leader.LeaderState(name="d")
    state, _ = leader.step(state, leader.Elected(0.0, 0.0, ledger.Ledger(epoch=m.Epoch(1))))
    state, _ = leader.step(state, leader.Tick(5.0))
    assert state.window_from == 0.0
    state, _ = leader.step(state, leader.Tick(20.0))
    assert state.window_from == 20.0


def test_the_same_request_is_the_same_job_and_another_content_a_conflict() -> None:
    state = leader.LeaderState(name="d")
    state, _ = leader.step(state, leader.Elected(0.0, 0.0, ledger.Ledger(epoch=m.Epoch(1))))
    state, commands = leader.step(state, leader.SubmitAsked(1.0, 1, _request()))
    assert not any(isinstance(command, leader.Answer) for command in commands)
    state, _ = leader.step(state, leader.SubmitAsked(1.0, 2, _request()))
    state, commands = leader.step(state, leader.SubmitAsked(1.0, 3, _request(user="", retries=1)))
    assert commands[0].refused.startswith("Conflict")  # type: ignore[union-attr]
    answers = []
    for number in (1, 2):
        state, commands = leader.step(state, leader.Persisted(1.1, number))
        answers += [c for c in commands if isinstance(c, leader.Answer)]
    assert answers == [leader.Answer(1, job=m.JobId(1)), leader.Answer(2, job=m.JobId(1))]


def leading(nodes: int = 1, gpus: int = 4) -> leader.LeaderState:
    """A leader that has heard its nodes."""
    state = leader.LeaderState(name="d1")
    state, _ = leader.step(state, leader.Elected(0.0, 0.0, ledger.Ledger(epoch=m.Epoch(1))))
    for number in range(1, nodes + 1):
        name = m.NodeName(f"n{number}")
        sync = m.Sync(
            node=name, boot_id=m.BootId("b"), incarnation=m.Incarnation(1), sequence=0,
            last=m.Term(), applied=m.Term(), held_digest=m.Digest("h"), held=(),
            inventory=m.Inventory(gpus=tuple(m.GpuId(f"{name}g{k}") for k in range(gpus))),
        )  # fmt: skip
        state, _ = settled(state, leader.SyncArrived(1.0, sync))
        state, _ = settled(state, leader.SyncArrived(1.5, replace(sync, sequence=1)))
    return state


def settled(
    state: leader.LeaderState, event: leader.Event
) -> tuple[leader.LeaderState, list[leader.Command]]:
    """The state when all that an event wants durable is so; every command on the way."""
    state, commands = leader.step(state, event)
    done = list(commands)
    while state.in_flight is not None:
        state, commands = leader.step(state, leader.Persisted(2.0, state.in_flight.number))
        done += commands
    return state, done


def transactions(commands: list[leader.Command]) -> list[leader.Persist]:
    return [command for command in commands if isinstance(command, leader.Persist)]


def asked(*names: str, user: str = "ann", retries: int = 0) -> tuple[ledger.Request, ...]:
    return tuple(
        ledger.Request(request_id=m.RequestId(name), user=user, retries=retries) for name in names
    )


def test_a_batch_is_one_transaction_and_the_same_batch_again_is_the_same_jobs() -> None:
    state = leading()
    event = leader.BatchAsked(2.0, 7, asked("a", "b", "c"), m.JobId(1), rows=("row",))
    state, commands = settled(state, event)
    [transaction] = transactions(commands)
    assert transaction.writes[-1] == ledger.Attach("row")
    assert leader.Answer(7, job=m.JobId(1)) in commands
    again, commands = settled(state, replace(event, token=8, first=None))
    assert leader.Answer(8, job=m.JobId(1)) in commands
    assert again.committed.jobs == state.committed.jobs


def test_a_batch_whose_submissions_are_made_before_is_the_same() -> None:
    event = leader.BatchAsked(2.0, 7, asked("a", "b"), m.JobId(1), rows=("row",))
    made = tuple(ledger.submissions(event.requests, m.JobId(1)))
    plain, at_hand = (settled(leading(), each) for each in (event, replace(event, made=made)))
    assert at_hand == plain
    late, commands = settled(plain[0], replace(event, requests=asked("c", "d"), made=made))
    assert commands == [leader.Answer(7, unknown=True)]  # other ids are next by now
    assert late.reserved == plain[0].reserved


def test_a_batch_with_one_known_id_of_other_content_makes_nothing() -> None:
    state, _ = settled(leading(), leader.BatchAsked(2.0, 1, asked("a")))
    for batch in (asked("b", "a"), asked("a", retries=3)):
        after, commands = settled(state, leader.BatchAsked(2.0, 2, batch))
        assert [c.refused[:8] for c in commands if isinstance(c, leader.Answer)] == ["Conflict"]
        assert after.committed.jobs == state.committed.jobs


def place(job: int, *gpus: str, now: float = 2.0) -> leader.PlaceAsked:
    shares = (m.Share(node=N1, gpus=tuple(map(m.GpuId, gpus))),)
    return leader.PlaceAsked(now, m.JobId(job), m.RunId(f"run-{job}"), shares)


def test_a_round_is_one_transaction_and_what_cannot_be_is_refused_by_itself() -> None:
    state, _ = settled(leading(), leader.BatchAsked(2.0, 1, asked("a", "b", "c")))
    wishes = (place(1, "n1g0"), place(2, "n1g0"), place(3, "n1g1"))
    rows = leader.AttachAsked(2.0, ("round",), 9)
    state, commands = settled(state, leader.Together(2.0, (*wishes, rows)))
    assert len(transactions(commands)) == 1
    assert leader.PlacementRefused(m.JobId(2), "n1 is busy") in commands
    assert leader.Answer(9) in commands
    statuses = [row.status for row in state.committed.jobs.values()]
    assert statuses == [JobStatus.RUNNING, JobStatus.PENDING, JobStatus.RUNNING]


def ended(state: leader.LeaderState, record: m.ExitRecord, sequence: int) -> m.Sync:
    return m.Sync(
        node=N1, boot_id=m.BootId("b"), incarnation=m.Incarnation(1), sequence=sequence,
        last=m.Term(state.epoch, state.committed.nodes[N1].revision),
        applied=m.Term(state.epoch, state.committed.nodes[N1].revision),
        held_digest=m.Digest("h"), held=(), ended=(record,),
    )  # fmt: skip


def test_a_requeued_job_is_pending_again_and_not_charged() -> None:
    state, _ = settled(leading(), leader.BatchAsked(2.0, 1, asked("a")))
    state, _ = settled(state, place(1, "n1g0"))
    state, commands = settled(state, leader.RequeueAsked(2.0, 5, m.JobId(1)))
    assert leader.Answer(5, job=m.JobId(1)) in commands
    key = m.RunKey(m.JobId(1), m.RunNumber(1), m.RunId("run-1"))
    record = m.ExitRecord(
        key=key, node=N1, reason=m.ExitReason.EXITED, code=3, stop=m.StopReason.REQUEUE
    )
    state, _ = settled(state, leader.SyncArrived(2.5, ended(state, record, 5)))
    row = state.committed.jobs[m.JobId(1)]
    assert (row.status, row.failures, row.preemptions) == (JobStatus.PENDING, 0, 0)


def test_a_job_is_queued_again_at_its_time_limit_so_often_and_no_more() -> None:
    (request,) = asked("a")
    batch = leader.BatchAsked(2.0, 1, (replace(request, timeouts=1),))
    state, _ = settled(leading(), batch)
    found = []
    for run in (1, 2):
        state, _ = settled(state, replace(place(1, "n1g0"), run_id=m.RunId(f"run-{run}")))
        record = m.ExitRecord(
            key=m.RunKey(m.JobId(1), m.RunNumber(run), m.RunId(f"run-{run}")),
            node=N1,
            reason=m.ExitReason.TIME_LIMIT,
            stop=m.StopReason.TIME_LIMIT,
        )
        state, _ = settled(state, leader.SyncArrived(2.5, ended(state, record, 4 + run)))
        row = state.committed.jobs[m.JobId(1)]
        found.append((row.status, row.timeouts, row.failures, row.preemptions, row.reason))
    assert found == [
        (JobStatus.PENDING, 1, 0, 0, "TimeLimit(1 of 1)"),
        (JobStatus.TIMEOUT, 1, 0, 0, ""),
    ]


def test_a_forgotten_run_that_a_node_still_holds_is_told_over_and_not_adopted() -> None:
    state, _ = settled(leading(), leader.BatchAsked(2.0, 1, asked("a")))
    state, _ = settled(state, place(1, "n1g0"))
    [run] = state.committed.runs.values()
    record = m.ExitRecord(key=run.key, node=N1, reason=m.ExitReason.EXITED)
    state, _ = settled(state, leader.SyncArrived(2.5, ended(state, record, 5)))
    rows = (state.committed.jobs[m.JobId(1)], state.committed.runs[run.key.run_id])
    state, _ = leader.step(state, leader.ForgetAsked(3.0, (m.JobId(1),)))
    assert not state.committed.jobs
    assert not state.reserved.runs
    held = m.HeldRun(key=run.key, phase=m.Phase.RUNNING, gpus=(GPU,), nodes=(N1,))
    late = replace(ended(state, record, 6), held=(held,), ended=(), held_digest=m.Digest("x"))
    state, commands = settled(state, leader.SyncArrived(3.5, late, (rows,)))
    [reply] = [c.reply for c in commands if isinstance(c, leader.SendReply)]
    assert reply.over == (run.key.run_id,)
    assert not state.committed.orphans


def test_a_cancel_of_an_ended_job_whose_next_run_is_still_ending_changes_nothing() -> None:
    """A late record has ended the job while the run after it was being prepared."""
    state, _ = settled(leading(), leader.BatchAsked(2.0, 1, asked("a")))
    state, _ = settled(state, place(1, "n1g0"))
    failed = replace(state.committed.jobs[m.JobId(1)], status=JobStatus.FAILED)
    known = replace(state.committed, jobs={m.JobId(1): failed})
    state = replace(state, committed=known, reserved=known)
    assert known.live_run(m.JobId(1)) is not None
    after, commands = settled(state, leader.CancelAsked(3.0, 7, m.JobId(1)))
    assert leader.Answer(7, job=m.JobId(1)) in commands
    assert after.committed == known


def test_a_run_in_doubt_is_over_only_on_the_nodes_that_an_operator_could_know_of() -> None:
    state, _ = settled(leading(), leader.BatchAsked(2.0, 1, asked("a")))
    state, _ = settled(state, place(1, "n1g0"))
    [run] = state.committed.runs.values()
    held = m.HeldRun(key=run.key, phase=m.Phase.STOPPING, gpus=(GPU,), nodes=(N1,))

    def sync(
        state: leader.LeaderState, number: int, *, in_doubt: bool
    ) -> tuple[leader.LeaderState, m.Reply]:
        told = replace(held, in_doubt=in_doubt)
        digest = m.Digest(f"x{number}")
        alive = replace(ended(state, EXIT, number), held=(told,), ended=(), held_digest=digest)
        state, commands = settled(state, leader.SyncArrived(2.0 + number, alive))
        return state, next(c.reply for c in commands if isinstance(c, leader.SendReply))

    over = leader.OverConfirmed(3.0, frozenset({(N1, run.key.run_id)}))
    state, _ = sync(state, 5, in_doubt=False)
    assert state.unsettled(m.JobId(1)) == []
    state, _ = settled(state, over)  # of nothing that its node has told
    state, reply = sync(state, 6, in_doubt=True)
    assert not reply.over
    assert frozenset(state.unsettled(m.JobId(1))) == over.places
    state, _ = settled(
        state, leader.OverConfirmed(3.0, frozenset({(m.NodeName("n9"), run.key.run_id)}))
    )
    state, reply = sync(state, 7, in_doubt=True)
    assert not reply.over  # another place was confirmed
    state, _ = settled(state, over)
    state, reply = sync(state, 8, in_doubt=True)
    assert reply.over == (run.key.run_id,)
    assert not state.committed.runs[run.key.run_id].is_over  # until its node reports the end


def test_an_orphan_is_killed_only_when_an_operator_ends_it() -> None:
    key = m.RunKey(m.JobId(99), m.RunNumber(3), m.RunId("unknown"))
    held = m.HeldRun(key=key, phase=m.Phase.RUNNING, gpus=(GPU,), nodes=(N1,))

    def sync(state: leader.LeaderState, number: int) -> tuple[leader.LeaderState, m.Reply]:
        alive = replace(
            ended(state, EXIT, number), held=(held,), ended=(), held_digest=m.Digest("x")
        )
        state, commands = settled(state, leader.SyncArrived(2.0 + number, alive))
        return state, next(c.reply for c in commands if isinstance(c, leader.SendReply))

    state, _ = sync(leading(), 5)
    assert set(state.committed.orphans) == {(N1, key.run_id)}
    state, _ = settled(state, leader.EndOrphans(8.0, frozenset({m.RunId("another")})))
    state, reply = sync(state, 6)
    assert not reply.over
    state, _ = settled(state, leader.EndOrphans(8.5, frozenset({key.run_id})))
    state, reply = sync(state, 7)
    assert reply.over == (key.run_id,)


def test_a_live_job_is_not_forgotten() -> None:
    state, _ = settled(leading(), leader.BatchAsked(2.0, 1, asked("a", "b")))
    state, _ = settled(state, place(1, "n1g0"))
    after, _ = leader.step(state, leader.ForgetAsked(3.0, (m.JobId(1), m.JobId(2), m.JobId(3))))
    assert after.committed == state.committed


def test_other_terms_reach_the_node_and_the_request_stays_what_it_was() -> None:
    state, _ = settled(leading(), leader.BatchAsked(2.0, 1, asked("a")))
    state, _ = settled(state, place(1, "n1g0"))
    before = state.committed.nodes[N1].revision
    terms = ledger.Terms(limits=m.Limits(time_s=60.0), grace_s=9.0, retries=2)
    wish = leader.TermsAsked(2.0, m.JobId(1), terms)
    state, commands = settled(state, leader.Together(2.0, (wish, leader.AttachAsked(2.0, (), 4))))
    assert leader.Answer(4) in commands
    assert [c.nudge.node for c in commands if isinstance(c, leader.SendNudge)] == [N1]
    assert state.committed.nodes[N1].revision == before + 1
    [want] = state.committed.desired(N1)
    assert (want.limits.time_s, want.grace_s) == (60.0, 9.0)
    _, commands = settled(state, leader.BatchAsked(2.0, 5, asked("a")))
    assert leader.Answer(5, job=m.JobId(1)) in commands  # the same request as ever
    _, commands = settled(state, wish)
    assert not transactions(commands)


def syncs(commands: list) -> list[m.Sync]:
    return [each.sync for each in commands if isinstance(each, agent.SendSync)]


def in_use(gpus: int = 4, **changes: object) -> agent.AgentState:
    """An agent that holds a run on each GPU, and has rested after the reply to its last sync."""
    runs = tuple(
        replace(
            RUN,
            key=m.RunKey(m.JobId(k), m.RunNumber(1), m.RunId(f"r{k}")),
            gpus=(m.GpuId(f"g{k}"),),
            **changes,  # type: ignore[arg-type]
        )
        for k in range(gpus)
    )
    state, sequence = registered()
    known = replace(state.inventory, gpus=tuple(run.gpus[0] for run in runs))
    state = replace(state, inventory=known)
    told = reply(sequence, state.record.term, desired=runs)
    state, _ = agent.step(state, agent.ReplyArrived(0.02, told))
    assert len(state.held) == gpus
    return state


def report(run: int, state: agent.AgentState, phase: m.Phase) -> m.KeeperStatus:
    desired = state.held[m.RunId(f"r{run}")].desired
    end = replace(EXIT, key=desired.key) if phase is m.Phase.STOPPING else None
    return m.KeeperStatus(desired=desired, phase=phase, exit=end)


def test_news_goes_at_once_after_a_quiet_time_and_together_while_the_agent_rests() -> None:
    state = in_use()
    state, commands = agent.step(
        state, agent.KeeperReported(5.0, report(0, state, m.Phase.STOPPING))
    )
    [first] = syncs(commands)
    answer = reply(first.sequence, state.record.term, desired=None)
    state, _ = agent.step(state, agent.ReplyArrived(5.02, answer))
    planned = []
    for run in (1, 2, 3):
        event = agent.KeeperReported(5.02 + run / 100, report(run, state, m.Phase.STOPPING))
        state, commands = agent.step(state, event)
        planned += commands
    assert planned == [agent.SyncLater(pytest.approx(5.08))]  # three times what the reply took
    state, commands = agent.step(state, agent.SyncDue(5.08))
    [second] = syncs(commands)
    assert len(second.ended) == 4
    _, commands = agent.step(state, agent.SyncDue(5.09))
    assert not commands


def test_an_agent_rests_a_tenth_of_a_second_at_most_and_does_not_wait_for_a_lost_reply() -> None:
    state = in_use()
    state, _ = agent.step(state, agent.KeeperReported(5.0, report(0, state, m.Phase.STOPPING)))
    event = agent.KeeperReported(5.1, report(1, state, m.Phase.STOPPING))
    state, commands = agent.step(state, event)
    assert commands == [agent.SyncLater(5.5)]
    late = reply(state.sequence, state.record.term, desired=None)
    _, commands = agent.step(state, agent.ReplyArrived(5.3, late))
    assert agent.SyncLater(pytest.approx(5.4)) in commands
    _, commands = agent.step(state, agent.SyncDue(5.5))
    assert len(syncs(commands)) == 1


def test_a_nudge_is_followed_at_once_unless_a_reply_is_under_way() -> None:
    state = in_use()
    nudge = m.Nudge(node=N1, term=m.Term(m.Epoch(4), m.Revision(9)))
    state, commands = agent.step(state, agent.Nudged(0.03, nudge))
    assert len(syncs(commands)) == 1
    state, commands = agent.step(state, agent.Nudged(0.04, nudge))
    assert commands == [agent.SyncLater(pytest.approx(0.53))]


def test_a_member_that_is_prepared_is_told_at_once_because_its_gang_waits() -> None:
    state = in_use(want=m.Want.PREPARED)
    for run in (0, 1):
        event = agent.KeeperReported(5.0, report(run, state, m.Phase.PREPARED))
        state, commands = agent.step(state, event)
        assert len(syncs(commands)) == 1


def test_the_reply_to_a_sync_with_an_end_waits_for_its_commit_and_no_nudge_follows() -> None:
    state, _ = settled(leading(2), leader.BatchAsked(2.0, 1, asked("a")))
    state, _ = settled(state, place(1, "n1g0"))
    [run] = state.committed.runs.values()
    record = m.ExitRecord(key=run.key, node=N1, reason=m.ExitReason.EXITED)
    state, commands = leader.step(state, leader.SyncArrived(2.5, ended(state, record, 5)))
    [transaction] = transactions(commands)
    assert len(commands) == 1
    slow, commands = leader.step(state, leader.Tick(3.5))  # replies as far as it is committed
    [early] = [c.reply for c in commands if isinstance(c, leader.SendReply)]
    assert not early.acknowledged
    _, commands = leader.step(slow, leader.Persisted(4.0, transaction.number))
    assert [c.nudge.node for c in commands if isinstance(c, leader.SendNudge)] == [N1]
    _, commands = leader.step(state, leader.Persisted(2.6, transaction.number))
    [told] = [c.reply for c in commands if isinstance(c, leader.SendReply)]
    assert told.acknowledged == (run.key.run_id,)
    assert not [c for c in commands if isinstance(c, leader.SendNudge)]


def test_a_newer_sync_gets_the_reply_and_the_one_before_gets_its_own_first() -> None:
    state, _ = settled(leading(), leader.BatchAsked(2.0, 1, asked("a")))
    state, _ = settled(state, place(1, "n1g0"))
    [run] = state.committed.runs.values()
    record = m.ExitRecord(key=run.key, node=N1, reason=m.ExitReason.EXITED)
    state, _ = leader.step(state, leader.SyncArrived(2.5, ended(state, record, 5)))
    _, commands = settled(state, leader.SyncArrived(2.6, ended(state, record, 6)))
    replies = [c.reply for c in commands if isinstance(c, leader.SendReply)]
    assert [each.sequence for each in replies] == [5, 6]
    assert [each.acknowledged for each in replies] == [(), (run.key.run_id,)]


def test_an_agent_tells_a_keeper_of_other_limits_until_it_has_them() -> None:
    state, sequence = registered()
    term = state.record.term
    state, commands = agent.step(
        state, agent.ReplyArrived(1.0, reply(sequence, term, desired=(RUN,)))
    )
    status = m.KeeperStatus(desired=RUN, phase=m.Phase.RUNNING)
    state, _ = agent.step(state, agent.KeeperReported(1.1, status))
    longer = replace(RUN, limits=m.Limits(time_s=900.0))
    adjust = m.Adjust(limits=longer.limits, grace_s=longer.grace_s)
    for now in (2.0, 3.0):
        asked_ = reply(state.sequence, term, desired=(longer,))
        state, commands = agent.step(state, agent.ReplyArrived(now, asked_))
        assert agent.OrderKeeper(KEY.run_id, adjust) in commands
        assert not any(isinstance(command, agent.Spawn) for command in commands)
        state, _ = agent.step(state, agent.Tick(now + 0.5))
    state, _ = agent.step(state, agent.KeeperReported(3.6, replace(status, desired=longer)))
    asked_ = reply(state.sequence, term, desired=(longer,))
    state, commands = agent.step(state, agent.ReplyArrived(4.0, asked_))
    assert agent.OrderKeeper(KEY.run_id, adjust) not in commands


@pytest.mark.parametrize(("code", "status"), [(143, "CANCELLED"), (0, "COMPLETED")])
def test_a_run_that_is_cancelled_for_a_reason_ends_its_job_with_it(code: int, status: str) -> None:
    state, _ = settled(leading(), leader.BatchAsked(2.0, 1, asked("a")))
    state, _ = settled(state, place(1, "n1g0"))
    state, _ = settled(state, leader.CancelAsked(2.0, -1, m.JobId(1), "Deadline"))
    [run] = state.committed.runs.values()
    record = m.ExitRecord(
        key=run.key, node=N1, reason=m.ExitReason.EXITED, code=code, stop=m.StopReason.CANCEL
    )
    state, _ = settled(state, leader.SyncArrived(2.5, ended(state, record, 5)))
    row = state.committed.jobs[m.JobId(1)]
    assert row.status.name == status
    assert row.reason == ("Deadline" if code else "")


def test_a_failure_on_an_unhealthy_gpu_is_not_the_jobs_own() -> None:
    state, _ = settled(leading(), leader.BatchAsked(2.0, 1, asked("a")))
    state, _ = settled(state, place(1, "n1g0"))
    [run] = state.committed.runs.values()
    record = m.ExitRecord(key=run.key, node=N1, reason=m.ExitReason.SIGNALLED, signal=6)
    sync = ended(state, record, 5)
    sick = replace(sync, health=m.Health(unhealthy=(m.GpuId("n1g0"),)))
    after, _ = settled(state, leader.SyncArrived(2.5, sick))
    row = after.committed.jobs[m.JobId(1)]
    assert (row.status, row.failures) == (JobStatus.PENDING, 0)
    assert row.reason == "n1: unhealthy n1g0"
    other = replace(sync, health=m.Health(unhealthy=(m.GpuId("n1g1"),)))
    after, _ = settled(state, leader.SyncArrived(2.5, other))
    assert after.committed.jobs[m.JobId(1)].status is JobStatus.FAILED
