"""Every change of state has an event in the transaction that makes it."""

from __future__ import annotations

from dlsched.db.records import Event
from dlsched.db.store import Store
from dlsched.protocol.ledger import Attach, CancelJob, SetNode, StopRun, SuspendRun, Write
from dlsched.protocol.ledger import NodeStatus as Status
from dlsched.protocol.messages import ExitReason, JobId, NodeName, StopReason
from tests.db.ledgers import assign, ended, key, node, submit


def told(store: Store, job: int) -> list[tuple[str, str, str]]:
    events = [stored.event for stored in store.events(JobId(job))]
    return [(event.kind, event.actor, event.text) for event in events]


def test_the_story_of_a_job_that_is_preempted_and_ends(store: Store) -> None:
    term = store.contend("d1")
    assert term is not None
    round_line = Event(at=1.0, kind="start", actor="policy fifo", job=JobId(1), text="1 GPU")
    run = key(1).run_id
    steps: list[list[Write]] = [
        [node("n1"), submit(1)],
        [assign(1, ("n1", (0,))), Attach(round_line)],
        [SuspendRun(run, True)],
        [SuspendRun(run, False), StopRun(run, StopReason.PREEMPT)],
        [ended(1, "n1", code=143, stop=StopReason.PREEMPT), assign(1, ("n1", (1,)), run=2)],
        [ended(1, "n1", run=2, code=3)],
    ]
    for number, writes in enumerate(steps, 1):
        store.persist(term.epoch, number, writes, 100.0 + number)
        store.persist(term.epoch, number, writes, 100.0 + number)  # sent again: stored once
    assert told(store, 1) == [
        ("start", "policy fifo", "1 GPU"),
        ("suspend", "daemon", "suspended"),
        ("resume", "daemon", "resumed"),
        ("stop", "daemon", "stop asked preempt"),
        ("requeue", "node n1", "requeued preempted"),
        ("start", "daemon", "assigned run 2"),
        ("end", "node n1", "failed exit 3"),
    ]


def test_a_gang_a_cancel_and_nodes(store: Store) -> None:
    term = store.contend("d1")
    assert term is not None
    by = Event(at=1.0, kind="cancel", actor="ann", job=JobId(2))
    steps: list[list[Write]] = [
        [node("n1"), node("n2"), submit(1, gang=(1, 1)), submit(2)],
        [assign(1, ("n1", (0,)), ("n2", (0,)))],
        [ended(1, "n1", reason=ExitReason.NOT_STARTED), ended(1, "n2")],
        [Attach(by), CancelJob(JobId(2))],
        [SetNode(NodeName("n1"), Status.DOWN, "root: power"), node("n1", boot="boot2")],
    ]
    for number, writes in enumerate(steps, 1):
        store.persist(term.epoch, number, writes, 100.0 + number)
    assert [kind for kind, _, _ in told(store, 1)] == ["start", "stop", "requeue"]
    assert [(kind, actor) for kind, actor, _ in told(store, 2)] == [
        ("cancel", "ann"),
        ("end", "daemon"),
    ]
    nodes = [stored.event for stored in store.events(node=NodeName("n1")) if not stored.event.job]
    assert [event.kind for event in nodes] == ["register", "boot"]
