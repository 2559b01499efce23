"""The events that follow from a transaction's own changes: one for every change of state.

Nobody has to remember to write them: they are read off the stories that the protocol's ledger has
made longer. Where the transaction brings a better line (who asked, and for what), that one stands.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from dlsched.db.records import Event
from dlsched.protocol.ledger import Attach, Job, Ledger, MemberOver, OrphanOver, Write
from dlsched.protocol.messages import JobId, NodeName, RunId

__all__ = ["transitions"]

KINDS: Mapping[str, str] = MappingProxyType(  # by the status that is left and the one that comes
    {
        "starting": "start",
        "starting running": "release",
        "suspended running": "resume",
        "pending running": "adopt",
        "suspended": "suspend",
        "stopping": "stop",
        "pending": "requeue",
    }
)
SAID_BY = {"stop": ("stop", "cancel", "requeue")}  # lines that say as much


def transitions(before: Ledger, after: Ledger, writes: Sequence[Write], at: float) -> list[Event]:
    """What changed its state, in the order in which it happened.

    Args:
        before: what the transaction found.
        after: what it leaves.
        writes: what it consists of; an event among them that says the same takes the place of ours.
        at: for display.
    """
    said = _said(writes)
    enders = _enders(after, writes)
    found: list[Event] = []
    for number, job in after.jobs.items():
        node, run_id = enders.get(number, (None, None))
        last = ""
        for kind, text in _moves(before.jobs.get(number), job):
            told = {(number, word) for word in SAID_BY.get(kind, (kind,))}
            if told & said or (kind == "release" and last == "start"):
                last = kind
                continue
            last = kind
            actor = f"node {node}" if node is not None and kind in ("end", "requeue") else "daemon"
            found.append(
                Event(
                    at=at, kind=kind, actor=actor, job=number, run_id=run_id, node=node, text=text
                )
            )
    return found + _node_changes(before, after, at)


def _said(writes: Iterable[Write]) -> set[tuple[JobId | None, str]]:
    rows = [write.row for write in writes if isinstance(write, Attach)]
    return {(row.job, row.kind) for row in rows if isinstance(row, Event)}


def _enders(after: Ledger, writes: Iterable[Write]) -> dict[JobId, tuple[NodeName, RunId]]:
    """The node, and the run, whose end came last for each job."""
    found: dict[JobId, tuple[NodeName, RunId]] = {}
    for write in writes:
        if isinstance(write, MemberOver):
            found[after.runs[write.run_id].key.job] = (write.node, write.run_id)
        elif isinstance(write, OrphanOver) and write.exit is not None:
            found[write.exit.key.job] = (write.node, write.run_id)
    return found


def _moves(old: Job | None, job: Job) -> Iterable[tuple[str, str]]:
    """Kind and text of each change in a job's story since then."""
    for line in job.story[len(old.story) if old is not None else 0 :]:
        left, arrow, rest = line.partition(" -> ")
        if not arrow:
            continue
        came, _, text = rest.partition(": ")
        kind = KINDS.get(f"{left} {came}") or KINDS.get(came, "end")
        yield kind, text


def _node_changes(before: Ledger, after: Ledger, at: float) -> list[Event]:
    found: list[Event] = []
    for name, node in after.nodes.items():
        old = before.nodes.get(name)

        def told(kind: str, text: str, name: NodeName = name) -> None:
            found.append(Event(at=at, kind=kind, actor="daemon", node=name, text=text))

        if old is None:
            told("register", f"{len(node.gpus)} GPUs")
        elif old.boot_id != node.boot_id:
            told("boot", "the machine has booted since")
        elif old.gpus != node.gpus:
            told("register", f"{len(node.gpus)} GPUs, {len(old.gpus)} before")
        if old is not None and old.status is not node.status:
            told(node.status.value, node.why)
        if old is not None and old.quarantined != node.quarantined:
            told("quarantine", f"{len(node.quarantined)} GPUs")
    return found
