"""In any state, under any policy, a decision passes the check and is the same each time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlsched.core.cluster.occupancy import Placement
from dlsched.core.errors import BadInput, PolicyFailed
from dlsched.daemon.round.codec import decode, encode
from dlsched.daemon.round.decide import decide
from dlsched.daemon.round.plan import carry_out, due, refuse_offences, verify
from dlsched.daemon.round.policy_state import PolicyState
from dlsched.daemon.round.snapshot import LiveSnapshot
from dlsched.daemon.round.snapshot_builder import take_snapshot
from dlsched.daemon.round.worker import PolicyWorker
from dlsched.db.records import Drained
from dlsched.policies.registry import names
from dlsched.protocol.ledger import Attach, Quarantine
from dlsched.protocol.messages import NodeName, StopReason, SuspendLevel

POLICIES = [*names("scheduling"), "testing-always-preempt", "testing-thrash", "testing-random",
            "testing-never", "testing-resize"]  # fmt: skip
SHAPELESS = {"testing-thrash", "testing-random"}  # they choose GPUs themselves, and know no shapes
FEW = ("what-if.scheduling=las,srtf", "what-if.admission=accept-all")
jobs_of = st.lists(
    st.fixed_dictionaries(
        {
            "gpus": st.integers(1, 6),
            "gang": st.sampled_from([None, None, (2, 2), (3, 1), (4,)]),
            "exclusive": st.sampled_from([False, False, False, True]),
            "expected_s": st.sampled_from([None, 30.0, 100.0, 500.0]),
            "time_limit_s": st.sampled_from([None, 200.0]),
            "priority": st.sampled_from([None, 1.0, 5.0]),
            "not_nodes": st.sampled_from([(), (), ("n1",)]),
            "user": st.sampled_from(["ann", "bob"]),
        }
    ),
    min_size=1,
    max_size=14,
)
what_happens = st.lists(
    st.sampled_from(["full", "fill", "end", "drain", "break", "killed", "leave"]),
    min_size=2,
    max_size=9,
)


def live_through(live: Any, policy: str, jobs: Any, events: Any, placement: str) -> None:
    options = FEW if policy == "what-if" else ()
    if policy == "what-if":  # each of its decisions is two runs to the end
        jobs = [{**job, "expected_s": job["expected_s"] or 70.0} for job in jobs[:6]]
    lab = live.LiveLab(
        (4, 4, 4), parts={"scheduling": policy, "placement": placement}, options=options
    )
    plain = {"gang": None, "exclusive": False} if policy in SHAPELESS else {}
    for position, job in enumerate(jobs):
        lab.submit(float(position), **{**job, **plain})
    now = 20.0
    for event in ["full", *events, "full"]:
        now += 31.0
        running = sorted(lab.running())
        if event == "end" and running:
            lab.end(now, running[0])
        elif event == "drain":
            row = Drained(node=NodeName("n2"), drained=True, reason="x", actor="root", at=0.0)
            lab.write(now, Attach(row))
        elif event == "break":
            lab.write(now, Quarantine(NodeName("n3"), ("GPU-n3-1",)))
        elif event == "killed":
            lab.restart(now)
        elif event in ("full", "fill", "leave"):
            check_round(live, lab, now, "full" if event == "leave" else event, event != "leave")


def check_round(live: Any, lab: Any, now: float, mode: str, at_once: bool) -> None:
    snapshot = take_snapshot(lab.state, mode, now)
    decided = decide(snapshot)
    again = decide(LiveSnapshot.from_bytes(snapshot.to_bytes()))
    assert again.to_bytes() == decided.to_bytes()
    before = set(lab.running())
    problems = verify(decided, lab.live)
    assert not problems, [str(problem) for problem in problems]
    lab.carry(now, carry_out(decided, lab.state), at_once=at_once)
    assert not live.held_twice(lab.running().values())
    if mode == "fill":
        assert not decided.suspended
        assert before <= set(lab.running())
    told = decided.reason_texts()
    for job, row in lab.ledger.jobs.items():
        if not row.status.is_terminal and job in lab.running():
            spec = lab.live.requests.specs.get(job).body
            want = spec.gpus if spec.gang is None else sum(spec.gang)
            assert lab.gpus_of(job) == want or spec.exclusive
        elif not row.status.is_terminal:
            assert told.get(job) or lab.live.reason(job)
    assert set(decided.positions()) >= set(told)


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=4)
@given(
    jobs=jobs_of, events=what_happens, placement=st.sampled_from(["", "consolidated", "worst-fit"])
)
def test_any_live_state_under_any_policy_gives_a_valid_plan(
    live: Any, policy: str, jobs: Any, events: Any, placement: str
) -> None:
    live_through(live, policy, jobs, events, placement)


def some_lab(live: Any, policy: str = "las") -> Any:
    lab = live.LiveLab((4, 4), parts={"scheduling": policy})
    for gpus in (4, 2, 4, 1):
        lab.submit(0.0, gpus, time_limit_s=100.0, extra={"tag": "a", "speed": "2.5"}, model="bert")
    lab.round(1.0)
    for gpus in (3, 1):
        lab.submit(2.0, gpus)
    return lab


def test_a_saved_snapshot_is_decided_equally_offline(live: Any) -> None:
    lab = some_lab(live)
    snapshot = take_snapshot(lab.state, "full", 61.0)
    saved = LiveSnapshot.from_bytes(snapshot.to_bytes())
    assert decide(saved).to_bytes() == decide(snapshot).to_bytes()
    other = decide(saved.under(saved.settings.with_policy({"scheduling": "fifo"}, ())))
    assert other.policy == "fifo"
    assert not other.suspended
    for data in (b"", b"nonsense", encode({"format": 7}), encode({"format": 1})):
        with pytest.raises(BadInput):
            LiveSnapshot.from_bytes(data)


def test_a_part_whose_state_another_release_has_kept_begins_anew(
    live: Any, caplog: pytest.LogCaptureFixture
) -> None:
    lab = some_lab(live, "conservative")
    snapshot = take_snapshot(lab.state, "full", 61.0)
    state = PolicyState.from_bytes(snapshot.state)
    assert state.parts["scheduling"]["planned"]
    old = {**state.parts, "scheduling": {"planned": [[0, 1, 2.0, 3.0]], "plans": {}}}
    without = {stage: kept for stage, kept in state.parts.items() if stage != "scheduling"}
    decided, anew = (
        decide(replace(snapshot, state=replace(state, parts=parts).to_bytes()))
        for parts in (old, without)
    )
    assert decided.to_bytes() == anew.to_bytes()
    [line] = [each.getMessage() for each in caplog.records]
    assert line.startswith("scheduling conservative begins anew: its state has another form")


def test_any_policy_state_is_equal_after_encoding_and_decoding() -> None:
    import numpy as np  # noqa: PLC0415

    value = {
        "a": np.arange(3),
        "t": (1, "ü\n", None, float("inf"), -0.0),
        "m": {3: [True], "x": b"\x00\xff"},
        "big": 2**100,
        "o": np.array(["x", ""], np.object_),
        "empty": np.zeros((0, 2)),
    }
    back = decode(encode(value))
    assert encode(back) == encode(value)
    assert back["m"][3] == [True]
    assert back["t"] == value["t"]
    assert back["a"].tolist() == [0, 1, 2]


def test_a_fill_leaves_the_claims_of_a_large_gang(live: Any) -> None:
    lab = live.LiveLab((4,), parts={"scheduling": "las"})
    small = [lab.submit(0.0, 1) for _ in range(4)]
    lab.round(1.0)
    big = lab.submit(100.0, 4)
    lab.round(120.0, at_once=False)  # all four are asked to leave
    assert set(lab.live.claims) == {big}
    late = lab.submit(121.0, 1)
    for job in small[:3]:
        lab.end(122.0, job, code=143)
        lab.round(122.0, "fill")
        lab.start_due(122.0)
    assert late not in lab.running()
    assert lab.live.reason(big) == "Resources: a GPU of n1 is still held"
    lab.end(123.0, small[3], code=143)
    assert lab.start_due(123.0) == [big]


def test_claims_survive_a_restart(live: Any) -> None:
    lab = live.LiveLab((4,), parts={"scheduling": "las"})
    small = lab.submit(0.0, 4)
    lab.round(1.0)
    big = lab.submit(100.0, 4)
    lab.round(120.0, at_once=False)
    lab.restart(125.0)
    assert set(lab.live.claims) == {big}
    lab.end(126.0, small, code=143)
    assert lab.start_due(126.0) == [big]
    lab.restart(127.0)
    assert not lab.live.claims


def suspending(live: Any, nodes: tuple[int, ...] = (2, 2)) -> Any:
    return live.LiveLab(nodes, parts={"scheduling": "las"}, preempt_mode="suspend")


def test_a_suspended_job_gives_its_gpus_up_when_it_has_left_them(
    live: Any,
) -> None:
    lab = suspending(live, (2,))
    old = lab.submit(0.0, 2)
    lab.round(1.0)
    young = lab.submit(50.0, 2)
    plan = carry_out(lab.decide(61.0), lab.state)
    assert plan.suspends == (old,)
    assert (plan.stops, plan.starts) == ((), ())
    lab.suspend(61.0, old, suspended=True, gives_way=True)
    assert not due(lab.live).starts  # not before every node has said that it is off them
    assert "still held" in lab.live.reason(young)
    lab.let_go(62.0, old)
    assert lab.start_due(62.0) == [young]
    assert set(lab.running()) == {young}
    lab.end(63.0, young)
    lab.carry(64.0, carry_out(lab.decide(64.0, "fill"), lab.state))
    assert set(lab.running()) == {old}
    assert lab.ledger.jobs[old].runs == 1


def test_a_suspended_job_resumes_only_where_it_is(live: Any) -> None:
    lab = suspending(live, (2, 2))
    old = lab.submit(0.0, 2)
    other = lab.submit(0.5, 2)
    lab.round(1.0)
    home = lab.running()[old]
    lab.suspend(10.0, old, suspended=True, gives_way=True)
    lab.let_go(10.0, old)
    newer = lab.submit(11.0, 2)
    lab.assign(11.0, newer, home)
    lab.end(12.0, other)
    lab.restart(13.0)
    decided = lab.round(14.0, "fill")  # the other node is free, and useless for it
    assert old not in decided.launched
    assert set(lab.running()) == {newer}
    assert "its own GPUs are not free" in lab.live.reason(old)
    stray = replace(
        decided, launched={old: Placement((1 - lab.live.claims.home(old).nodes[0],), (3,))}
    )
    assert [problem.is_offence for problem in verify(stray, lab.live)] == [False]
    lab.end(15.0, newer)
    lab.round(16.0, "fill")
    assert lab.running()[old] == home


def test_a_suspended_job_resumes_in_its_turn_under_a_time_sharing_policy(live: Any) -> None:
    lab = suspending(live, (2,))
    jobs = [lab.submit(0.0, 2), lab.submit(1.0, 2)]
    holders = []
    for number in range(6):
        lab.round(10.0 + 60.0 * number)
        holders.append(next(iter(lab.running())))
    assert set(holders) == set(jobs)
    assert [lab.ledger.jobs[job].runs for job in jobs] == [1, 1]


def test_gangs_on_several_nodes_and_cooperative_jobs_are_requeued(live: Any) -> None:
    lab = suspending(live)
    gang = lab.submit(0.0, 4, gang=(2, 2))
    pinned = lab.submit(0.0, 4, gang=(2, 2), requeue=False)
    lab.round(1.0)
    assert set(lab.running()) == {gang}
    assert lab.state.preempt_mode(gang) == "requeue"
    lab.end(2.0, gang)
    lab.round(3.0)
    assert lab.state.preempt_mode(pinned) == "suspend"  # it would be lost else
    lab.end(4.0, pinned)
    saves = lab.submit(5.0, 2, suspend_level=SuspendLevel.COOPERATIVE)
    lab.round(6.0)
    assert lab.state.preempt_mode(saves) == "requeue"


@pytest.mark.parametrize("mode", ["requeue", "suspend"])
def test_no_requeue_does_not_protect_from_preemption(live: Any, mode: Any) -> None:
    """Where jobs give way by a requeue it ends, as in Slurm; where they are suspended, it is."""
    lab = live.LiveLab((2,), parts={"scheduling": "las"}, preempt_mode=mode)
    old = lab.submit(0.0, 2, requeue=False)
    lab.round(1.0)
    lab.submit(50.0, 2)
    plan = carry_out(lab.decide(61.0), lab.state)
    assert plan.stops == (((old, StopReason.PREEMPT),) if mode == "requeue" else ())
    assert plan.suspends == (() if mode == "requeue" else (old,))


def test_a_run_that_its_user_suspended_keeps_its_gpus(
    live: Any,
) -> None:
    lab = suspending(live, (2,))
    still = lab.submit(0.0, 1)
    lab.round(1.0)
    lab.suspend(2.0, still, suspended=True)
    others = [lab.submit(3.0, 1) for _ in range(2)]
    lab.round(61.0)
    assert set(lab.running()) == {others[0]}
    lab.suspend(70.0, still, suspended=False)
    assert set(lab.running()) == {still, others[0]}


def test_a_job_is_not_preempted_before_its_minimum_time(live: Any) -> None:
    lab = live.LiveLab((4,), parts={"scheduling": "srtf"}, min_run_s=100.0)
    long = lab.submit(0.0, 4, time_limit_s=9000.0)
    lab.round(1.0)
    short = lab.submit(30.0, 4, time_limit_s=5.0)
    assert lab.round(60.0).wake_at == 101.0
    assert set(lab.running()) == {long}
    lab.round(120.0)
    assert set(lab.running()) == {short}


def test_stale_rows_of_a_decision_are_left_out(live: Any) -> None:
    lab = live.LiveLab((2, 2))
    jobs = [lab.submit(0.0, 2) for _ in range(2)]
    decided = lab.decide(1.0)
    lab.cancel(2.0, jobs[0])
    row = Drained(node=NodeName("n2"), drained=True, reason="x", actor="root", at=0.0)
    lab.write(2.0, Attach(row))
    problems = verify(decided, lab.live)
    assert sorted(map(str, problems)) == [
        f"job {jobs[0]}: it has ended meanwhile",
        f"job {jobs[1]}: n2 is out of service now",
    ]
    refuse_offences(decided, problems)
    assert carry_out(decided, lab.state, problems).is_empty


@pytest.mark.parametrize(
    ("launched", "suspended", "text"),
    [
        ({99: ((0,), (1,))}, (), "job 99: there is no such job"),
        ({1: ((0,), (1,))}, (), "job 1: it was given 1 GPU of a gang of 2"),
        ({1: ((0,), (-4,))}, (), "job 1: n1 has no such GPUs"),
        ({1: ((0,), (3 << 4,))}, (), "job 1: n1 has no such GPUs"),
        ({1: ((7,), (3,))}, (), "job 1: there is no node 7"),
        ({1: ((0, 0), (1, 2))}, (), "job 1: its placement names a node twice, or none"),
        ({1: ((), ())}, (), "job 1: its placement names a node twice, or none"),
        ({1: ((0,), (3,)), 2: ((0,), (6,))}, (), "job 2: GPUs of n1 were given twice"),
        ({1: ((1,), (3,))}, (), "job 1: GPUs of n2 were given twice"),
        ({3: ((0,), (15,))}, (), "job 3: it may not use n1"),
        ({3: ((1,), (15,))}, (), "job 3: it was given GPUs twice"),
        ({}, (77,), "job 77: there is no such job"),
    ],
)
def test_a_decision_with_an_offence_is_thrown_away_and_names_the_row(
    live: Any, launched: Any, suspended: Any, text: str
) -> None:
    from dataclasses import replace  # noqa: PLC0415

    from dlsched.core.cluster.occupancy import Placement  # noqa: PLC0415

    lab = live.LiveLab((4, 4))
    lab.submit(0.0, 2)
    lab.submit(0.0, 2)
    lab.submit(0.0, 4, only_nodes=("n2",))
    lab.round(1.0)
    for job in (1, 2):
        lab.end(2.0, job, code=1)
    for _ in range(2):
        lab.submit(3.0, 2)
    shift = {1: 4, 2: 5}
    honest = lab.decide(4.0)
    decided = replace(
        honest,
        launched={shift.get(job, job): Placement(*where) for job, where in launched.items()},
        suspended=suspended,
    )
    for old, new in shift.items():
        text = text.replace(f"job {old}:", f"job {new}:")
    with pytest.raises(PolicyFailed) as failed:
        refuse_offences(decided, verify(decided, lab.live))
    assert str(failed.value) == f"policy fifo: {text}"


async def worker_gives(lab: Any) -> None:
    snapshot = take_snapshot(lab.state, "full", 61.0)
    worker = PolicyWorker(time_limit_s=30.0)
    try:
        decided = await worker.decide(snapshot)
    finally:
        await worker.close()
    assert decided.to_bytes() == decide(snapshot).to_bytes()
    assert decided.cpu_s > 0


def test_the_worker_process_decides_the_same_bytes(live: Any) -> None:
    import asyncio  # noqa: PLC0415

    asyncio.run(worker_gives(some_lab(live, "tiresias")))
