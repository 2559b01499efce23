"""What one sync costs a leader, as counted calls: it depends on the node's own runs alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlsched.protocol import leader, ledger
from dlsched.protocol import messages as m
from tests.counting import python_calls

RUNS = 8
N0 = m.NodeName("n0")


def leading(nodes: int) -> leader.LeaderState:
    """A leader with so many nodes; eight jobs run on the first one."""
    known = ledger.Ledger(epoch=m.Epoch(1))
    for k in range(nodes):
        gpus = tuple(m.GpuId(f"n{k}-{g}") for g in range(RUNS))
        register = ledger.RegisterNode(
            node=m.NodeName(f"n{k}"),
            boot_id=m.BootId("b"),
            incarnation=m.Incarnation(1),
            inventory=m.Inventory(gpus=gpus),
            start="s",
        )
        known = ledger.apply(known, register)
    for k in range(RUNS):
        job = m.JobId(k + 1)
        request = ledger.Request(request_id=m.RequestId(f"q{k}"))
        share = m.Share(node=N0, gpus=(m.GpuId(f"n0-{k}"),))
        key = m.RunKey(job, m.RunNumber(1), m.RunId(f"r{k}"))
        known = ledger.apply(known, ledger.Submit(request=request, job=job))
        known = ledger.apply(known, ledger.Assign(key=key, shares=(share,)))
    state = leader.LeaderState(name="d1")
    return leader.step(state, leader.Elected(1.0, 0.5, known))[0]


def sync_of(number: int, desired: str = "") -> m.Sync:
    held = tuple(
        m.HeldRun(
            key=m.RunKey(m.JobId(k + 1), m.RunNumber(1), m.RunId(f"r{k}")),
            phase=m.Phase.RUNNING,
            gpus=(m.GpuId(f"n0-{k}"),),
            nodes=(N0,),
        )
        for k in range(RUNS)
    )
    return m.Sync(
        node=N0,
        boot_id=m.BootId("b"),
        incarnation=m.Incarnation(1),
        sequence=number,
        last=m.Term(m.Epoch(1), m.Revision(0)),
        applied=m.Term(),
        held_digest=m.digest_of(held),
        held=held,
        desired_digest=m.Digest(desired),
        starts=("s",),
    )


def answer(state: leader.LeaderState, sync: m.Sync) -> tuple[leader.LeaderState, m.Reply]:
    state, commands = leader.step(state, leader.SyncArrived(2.0 + sync.sequence, sync))
    for each in list(commands):
        if isinstance(each, leader.Persist):  # which witnesses the node is told of
            state, more = leader.step(state, leader.Persisted(2.0 + sync.sequence, each.number))
            commands += more
    [reply] = [each.reply for each in commands if isinstance(each, leader.SendReply)]
    return state, reply


def test_a_sync_costs_the_same_among_a_thousand_nodes() -> None:
    counted = []
    for nodes in (10, 1000):
        state, _ = answer(leading(nodes), sync_of(1))
        counted.append(python_calls(lambda s=state: answer(s, sync_of(2))))
    assert counted[1] <= counted[0] + 5  # the witnesses are not looked for again


def test_a_desired_set_is_made_once_for_many_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    genuine = ledger.Ledger.desired_run

    def counted(self: ledger.Ledger, run: ledger.Run, node: m.NodeName) -> m.DesiredRun:
        made.append(run.key)
        return genuine(self, run, node)

    monkeypatch.setattr(ledger.Ledger, "desired_run", counted)
    state, told = answer(leading(3), sync_of(1))
    assert told.desired is not None
    assert len(told.desired) == len(made) == RUNS
    for number in (2, 3):
        state, again = answer(state, sync_of(number, told.desired_digest))
        assert (again.desired, again.desired_digest) == (None, told.desired_digest)
    assert len(made) == RUNS


def test_a_desired_set_follows_every_change_of_its_rows() -> None:
    state, told = answer(leading(3), sync_of(1))
    job, other = m.JobId(1), ledger.Terms(limits=m.Limits(time_s=9.0), grace_s=1.0, retries=0)
    for ask, seen in (
        (leader.TermsAsked(4.0, job, other), lambda run: run.limits.time_s == 9.0),
        (leader.StopAsked(5.0, job, m.StopReason.CANCEL), lambda run: run.want is m.Want.STOPPED),
    ):
        state, commands = leader.step(state, ask)
        [sent] = [each for each in commands if isinstance(each, leader.Persist)]
        state, _ = leader.step(state, leader.Persisted(6.0, sent.number))
        last = replace(sync_of(int(told.sequence) + 1, told.desired_digest), last=told.term)
        state, told = answer(state, last)
        assert told.desired is not None
        [mine] = [run for run in told.desired if run.key.job == job]
        assert seen(mine)
