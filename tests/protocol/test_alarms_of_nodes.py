"""An alarm about a node ends with what it is about, and another node's ends nothing of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlsched.protocol import leader
from dlsched.protocol import messages as m
from dlsched.protocol.leader.silence import SilenceTurn
from dlsched.protocol.ledger import Ledger, NodeStatus, Request

N1, N10 = m.NodeName("n1"), m.NodeName("n10")
GPU = m.GpuId("n1g0")
LATE = "n1 is late: its runs stay as they are"
QUORUM = "quorum lost: n1 is silent and too few witnesses are renewed"


def settled(state: leader.LeaderState, *events: leader.Event) -> leader.LeaderState:
    """The state when all that some events want durable is so."""
    for event in events:
        state, _ = leader.step(state, event)
        while state.in_flight is not None:
            state, _ = leader.step(state, leader.Persisted(event.now, state.in_flight.number))
    return state


def sync(node: m.NodeName, sequence: int) -> m.Sync:
    return m.Sync(
        node=node,
        boot_id=m.BootId("b"),
        incarnation=m.Incarnation(1),
        sequence=sequence,
        last=m.Term(),
        applied=m.Term(),
        held_digest=m.Digest("h"),
        held=(),
        inventory=m.Inventory(gpus=(GPU,)) if node == N1 else m.Inventory(gpus=()),
    )


def silent(state: leader.LeaderState) -> tuple[leader.LeaderState, list[str]]:
    """The state after a silence that is longer than the window, and the alarms that it raised."""
    raised: list[str] = []
    now = state.last_tick or 2.0
    last = now + 2.0 * state.timing.window_s
    while now < last:
        now += state.timing.tick_s
        state = settled(state, leader.Confirmed(now, now))
        state, commands = leader.step(state, leader.Tick(now))
        raised += [each.text for each in commands if isinstance(each, leader.Alarm)]
        if state.in_flight is not None:
            state = settled(state, leader.Persisted(now, state.in_flight.number))
    return state, raised


@pytest.fixture
def running() -> leader.LeaderState:
    """A leader with a run under a lease on node n1."""
    state = leader.LeaderState(name="d1")
    state = settled(state, leader.Elected(0.0, 0.0, Ledger(epoch=m.Epoch(1))))
    state = settled(
        state, leader.SyncArrived(1.0, sync(N1, 0)), leader.SyncArrived(1.5, sync(N1, 1))
    )
    request = Request(request_id=m.RequestId("a"), user="ann", fence=m.Fence.LEASE)
    share = m.Share(node=N1, gpus=(GPU,))
    return settled(
        state,
        leader.BatchAsked(2.0, 1, (request,)),
        leader.PlaceAsked(2.0, m.JobId(1), m.RunId("r1"), (share,)),
    )


def test_a_node_that_is_confirmed_down_is_not_late_any_more(running: leader.LeaderState) -> None:
    state, raised = silent(running)
    assert sorted(state.alarms) == sorted(raised) == [LATE, QUORUM]
    state = settled(state, leader.DownConfirmed(state.last_tick or 0.0, N1))
    assert state.committed.nodes[N1].status is NodeStatus.DOWN
    assert state.alarms == frozenset()


@pytest.mark.parametrize("was_late", [False, True])
def test_a_node_whose_runs_are_given_up_is_not_late_any_more(
    running: leader.LeaderState, monkeypatch: pytest.MonkeyPatch, was_late: bool
) -> None:
    state = silent(running)[0] if was_late else running
    assert bool(state.alarms) is was_late
    monkeypatch.setattr(SilenceTurn, "is_cut_off", lambda *given: True)
    state, raised = silent(state)
    assert state.committed.nodes[N1].status is NodeStatus.LOST
    assert (raised, state.alarms) == ([], frozenset())


def test_a_node_that_registers_ends_its_own_alarms_and_no_others(
    running: leader.LeaderState,
) -> None:
    others = frozenset({"n10: an agent is refused", "n10 is late: x", "quorum lost: n10 is silent"})
    mine = frozenset({"n1: an agent is refused: x", LATE, QUORUM})
    state = replace(running, alarms=others | mine)
    again = replace(sync(N1, 0), incarnation=m.Incarnation(2))
    state = settled(state, leader.SyncArrived(3.0, again))
    assert state.alarms == others
