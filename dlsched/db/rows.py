"""The protocol's values as table rows and back.

Invariant: reading what was written gives an equal value. A row that cannot be read raises
`StoreCorrupt` with its table and key.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from functools import lru_cache
from operator import attrgetter
from typing import Any

from sqlalchemy import RowMapping

from dlsched.db import codec
from dlsched.db.errors import StoreCorrupt
from dlsched.protocol.ledger import (
    Job,
    JobStatus,
    Member,
    Node,
    NodeStatus,
    Orphan,
    Request,
    Run,
    RunStatus,
    Terms,
)
from dlsched.protocol.messages import (
    BootId,
    Epoch,
    ExitReason,
    ExitRecord,
    GpuId,
    HeldRun,
    Incarnation,
    JobId,
    NodeName,
    RequestId,
    Revision,
    RunId,
    RunKey,
    RunNumber,
    StopReason,
    Term,
)

Row = RowMapping
Values = dict[str, Any]

BESIDE = ("request_id", "user", "spec")  # of a request: in columns of their own


@contextmanager
def of_row(table: str, key: object) -> Iterator[None]:
    """Name the row when what is read inside makes no sense."""
    try:
        yield
    except (ValueError, TypeError, KeyError, LookupError) as error:
        said = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise StoreCorrupt(table, key, said.splitlines()[0] if said else "unreadable") from error


def texts(values: Iterable[str]) -> str:
    """A list of names as JSON."""
    return json.dumps(list(values), separators=(",", ":"))


def strings(text: str) -> tuple[str, ...]:
    """A list of names from JSON."""
    found = json.loads(text)
    if not isinstance(found, list) or not all(isinstance(item, str) for item in found):
        raise ValueError(f"{text:.80} is not a list of names")
    return tuple(found)


def exit_text(record: ExitRecord | None) -> str | None:
    """An exit record as JSON."""
    return None if record is None else codec.dumps(record)


def exit_record(text: str | None) -> ExitRecord | None:
    """An exit record from JSON."""
    return None if text is None else codec.loads(ExitRecord, text)


# -- jobs ------------------------------------------------------------------------------------------


_INSIDE = tuple(f.name for f in fields(Request) if f.name not in BESIDE)
_inside = attrgetter(*_INSIDE)


@lru_cache(maxsize=512)
def _request_text(values: tuple[object, ...]) -> str:
    return codec.dumps(dict(zip(_INSIDE, values, strict=True)))


def request_text(request: Request) -> str:
    """A request without what has columns of its own; few differ."""
    return _request_text(_inside(request))


@lru_cache(maxsize=512)
def _request(text: str) -> dict[str, Any]:
    known = codec.decode(Request, {**json.loads(text), "request_id": ""})
    return dict(zip(_INSIDE, _inside(known), strict=True))


def job_of(row: Row, *, spec: object = None, story: Sequence[str] = ()) -> Job:
    """A job from its row."""
    with of_row("jobs", row["job"]):
        request = Request(
            **_request(row["request"]),
            request_id=RequestId(row["request_id"]),
            user=row["user_name"],
            spec=spec,
        )
        return Job(
            job=JobId(row["job"]),
            request=request,
            status=JobStatus(row["status"]),
            reason=row["reason"],
            runs=RunNumber(row["runs"]),
            failures=row["failures"],
            preemptions=row["preemptions"],
            exit=exit_record(row["exit"]),
            story=tuple(story),
            changed=None if row["changed"] is None else codec.loads(Terms, row["changed"]),
        )


def job_values(job: Job) -> Values:
    """What the ledger changes of a job's row."""
    return {
        "status": job.status.value,
        "reason": job.reason,
        "runs": job.runs,
        "failures": job.failures,
        "preemptions": job.preemptions,
        "exit": exit_text(job.exit),
        "changed": None if job.changed is None else codec.dumps(job.changed),
        "state": state_word(job),
    }


WORDS = {JobStatus.STOPPING: "COMPLETING"}
ENDS = {  # how a reason begins
    (JobStatus.FAILED, "NodeFail"): "NODE_FAIL",
    (JobStatus.FAILED, "GpuFail"): "GPU_FAIL",
    (JobStatus.FAILED, "Preempted"): "PREEMPTED",
    (JobStatus.CANCELLED, "Deadline"): "DEADLINE",
}


def state_word(job: Job) -> str:
    """The word that users see."""
    record = job.exit
    if (
        job.status is JobStatus.FAILED
        and record is not None
        and record.reason is ExitReason.OUT_OF_MEMORY
    ):
        return "OUT_OF_MEMORY"
    if word := ENDS.get((job.status, job.reason.partition("(")[0])):
        return word
    return WORDS.get(job.status, job.status.name)


# -- runs ------------------------------------------------------------------------------------------


def run_values(run: Run) -> Values:
    """What the ledger says of a run."""
    return {
        "status": run.status.value,
        "epoch": run.epoch,
        "stop": run.stop.value if run.stop is not None else None,
        "stop_step": run.stop_step,
        "suspended": run.suspended,
        "suspension": run.suspension,
        "gives_way": run.gives_way,
        "released": run.released,
        "live": not run.is_over,
    }


def member_values(member: Member) -> Values:
    """What the ledger says of one node's part."""
    return {
        "gpus": texts(member.gpus),
        "boot_id": member.boot_id,
        "since_epoch": member.since.epoch,
        "since_revision": member.since.revision,
        "exit": exit_text(member.exit),
        "presumed": member.presumed,
        "let_go": member.let_go,
    }


def member_of(row: Row) -> Member:
    """One node's part from its row."""
    with of_row("run_members", f"{row['run_id']} on {row['node']}"):
        return Member(
            node=NodeName(row["node"]),
            gpus=tuple(map(GpuId, strings(row["gpus"]))),
            boot_id=BootId(row["boot_id"]),
            since=Term(Epoch(row["since_epoch"]), Revision(row["since_revision"])),
            exit=exit_record(row["exit"]),
            presumed=row["presumed"],
            let_go=bool(row["let_go"]),
        )


def run_of(row: Row, members: Sequence[Member]) -> Run:
    """A run from its row and its members in the order of the layout."""
    with of_row("runs", row["run_id"]):
        if not members:
            raise ValueError("it has no run_members")
        stop = row["stop"]
        return Run(
            key=RunKey(JobId(row["job"]), RunNumber(row["run"]), RunId(row["run_id"])),
            status=RunStatus(row["status"]),
            members={member.node: member for member in members},
            epoch=Epoch(row["epoch"]),
            stop=None if stop is None else StopReason(stop),
            stop_step=row["stop_step"],
            suspended=bool(row["suspended"]),
            suspension=row["suspension"],
            gives_way=bool(row["gives_way"]),
            released=bool(row["released"]),
        )


def executed_s(run: Run) -> float:
    """How long a run has executed, as far as its nodes have told."""
    return max((m.exit.ran_s for m in run.members.values() if m.exit is not None), default=0.0)


def gpu_s(run: Run) -> float:
    """GPU time that a run's nodes have told."""
    ends = [(m, m.exit) for m in run.members.values()]
    return float(sum(len(m.gpus) * record.ran_s for m, record in ends if record is not None))


# -- nodes and orphans -----------------------------------------------------------------------------


def node_values(node: Node) -> Values:
    """What the ledger says of a node, without its GPUs."""
    return {
        "boot_id": node.boot_id,
        "incarnation": node.incarnation,
        "revision": node.revision,
        "status": node.status.value,
        "why": node.why,
    }


def gpu_rows(node: Node, kind: Callable[[str], str]) -> list[Values]:
    """The rows of a node's GPUs: those that it offers and those in quarantine."""
    place: dict[GpuId, int] = {}
    for k, uuid in enumerate(node.gpus):
        place.setdefault(uuid, k)
    stuck = {uuid: k for k, uuid in enumerate(node.quarantined)}
    return [
        {
            "node": node.name,
            "uuid": uuid,
            "position": place.get(uuid),
            "quarantine": stuck.get(uuid),
            "type": kind(uuid),
        }
        for uuid in dict.fromkeys((*node.gpus, *node.quarantined))
    ]


def node_of(row: Row, gpus: Sequence[Row]) -> Node:
    """A node from its row and those of its GPUs."""
    with of_row("nodes", row["node"]):
        return Node(
            name=NodeName(row["node"]),
            boot_id=BootId(row["boot_id"]),
            incarnation=Incarnation(row["incarnation"]),
            revision=Revision(row["revision"]),
            status=NodeStatus(row["status"]),
            why=row["why"],
            gpus=_ordered(gpus, "position"),
            quarantined=_ordered(gpus, "quarantine"),
        )


def _ordered(gpus: Sequence[Row], column: str) -> tuple[GpuId, ...]:
    having = [gpu for gpu in gpus if gpu[column] is not None]
    return tuple(GpuId(gpu["uuid"]) for gpu in sorted(having, key=lambda gpu: gpu[column]))


def orphan_values(orphan: Orphan) -> Values:
    """The row of an unknown run."""
    return {
        "node": orphan.node,
        "run_id": orphan.held.key.run_id,
        "held": codec.dumps(orphan.held),
        "since_epoch": orphan.since.epoch,
        "since_revision": orphan.since.revision,
    }


def orphan_of(row: Row) -> Orphan:
    """An unknown run from its row."""
    with of_row("orphans", f"{row['run_id']} on {row['node']}"):
        return Orphan(
            held=codec.loads(HeldRun, row["held"]),
            node=NodeName(row["node"]),
            since=Term(Epoch(row["since_epoch"]), Revision(row["since_revision"])),
        )
