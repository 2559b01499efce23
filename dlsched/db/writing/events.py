"""The events that follow from a transaction's changes: one for every change of a job's state.

They are derived from the lines that the ledger has added to the jobs' stories, so no caller can
forget one. An event of the transaction itself about the same change (which user asked for it, and
why) takes its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from dlsched.core.errors import plural
from dlsched.db.records import Event
from dlsched.protocol.ledger import Attach, Job, Ledger, MemberOver, OrphanOver, Write
from dlsched.protocol.messages import JobId, NodeName, RunId

KINDS: Mapping[str, str] = MappingProxyType(  # by old and new status, or by the new one
    {
        "starting": "start",
        "starting running": "release",
        "suspended running": "resume",
        "pending running": "adopt",
        "suspended": "suspend",
        "stopping": "stop",
        "pending": "requeue",
        "running starting": "restart",
        "stopping starting": "restart",
        "stopping running": "take-over",
    }
)
BY_NODES = ("end", "requeue", "restart")  # kinds that the end of a run on a node causes
SAME_AS = {"stop": ("stop", "cancel", "requeue")}  # kinds of events with the same meaning


def transitions(before: Ledger, after: Ledger, writes: Sequence[Write], at: float) -> list[Event]:
    """The events of changed states, in the order of the changes.

    Args:
        before: the ledger before the transaction.
        after: the ledger after it.
        writes: its changes; an event among them with the same meaning is not repeated.
        at: for display.
    """
    given = _given(writes)
    enders = _enders(after, writes)
    found: list[Event] = []
    for number, job in after.jobs.items():
        node, run_id = enders.get(number, (None, None))
        last = ""
        for kind, text in moves(before.jobs.get(number), job):
            same = {(number, word) for word in SAME_AS.get(kind, (kind,))}
            if same & given or (kind == "release" and last in ("start", "restart")):
                last = kind
                continue
            last = kind
            actor = f"node {node}" if node is not None and kind in BY_NODES else "daemon"
            found.append(
                Event(
                    at=at, kind=kind, actor=actor, job=number, run_id=run_id, node=node, text=text
                )
            )
    return found + _node_changes(before, after, at)


def _given(writes: Iterable[Write]) -> set[tuple[JobId | None, str]]:
    rows = [write.row for write in writes if isinstance(write, Attach)]
    return {(row.job, row.kind) for row in rows if isinstance(row, Event)}


def _enders(after: Ledger, writes: Iterable[Write]) -> dict[JobId, tuple[NodeName, RunId]]:
    """For each job, the node and the run that ended last."""
    found: dict[JobId, tuple[NodeName, RunId]] = {}
    for write in writes:
        if isinstance(write, MemberOver):
            found[after.runs[write.run_id].key.job] = (write.node, write.run_id)
        elif isinstance(write, OrphanOver) and write.exit is not None:
            found[write.exit.key.job] = (write.node, write.run_id)
    return found


def moves(old: Job | None, job: Job) -> Iterable[tuple[str, str]]:
    """Kind and text of each new line in a job's story."""
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

        def add(kind: str, text: str, name: NodeName = name) -> None:
            found.append(Event(at=at, kind=kind, actor="daemon", node=name, text=text))

        if old is None:
            add("register", plural(len(node.gpus), "GPU"))
        elif old.boot_id != node.boot_id:
            add("boot", "the machine has booted")
        elif old.gpus != node.gpus:
            add("register", f"{plural(len(node.gpus), 'GPU')}, {len(old.gpus)} before")
        if old is not None and old.status is not node.status:
            add(node.status.value, node.why)
        if old is not None and old.quarantined != node.quarantined:
            add("quarantine", plural(len(node.quarantined), "GPU"))
    return found
