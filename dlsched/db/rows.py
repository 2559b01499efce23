"""The protocol's values as table rows and back.

Invariant: reading what was written gives an equal value. A row that cannot be read raises
`StoreCorrupt` with its table and key.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from functools import cache, lru_cache
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar, cast

from sqlalchemy import RowMapping

from dlsched.core.errors import BadInput
from dlsched.db.errors import StoreCorrupt
from dlsched.protocol import messages as m
from dlsched.protocol.json_form import dumps, loads, value_of
from dlsched.protocol.ledger import (
    Cause,
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
    judge,
)

Row = RowMapping
T = TypeVar("T")
Values = dict[str, Any]

BESIDE = ("request_id", "user", "spec")  # of a request: in columns of their own


@contextmanager
def of_row(table: str, key: object) -> Iterator[None]:
    """Raise `StoreCorrupt` with the row's table and key when the block cannot read it."""
    try:
        yield
    except (BadInput, ValueError, TypeError, LookupError) as error:
        text = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise StoreCorrupt(table, key, text.splitlines()[0] if text else "unreadable") from error


@cache
def _columns(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


def record_of(kind: type[T], row: Row, **others: object) -> T:
    """A record from the columns with the names of its fields.

    Args:
        kind: a dataclass.
        row: a row with a column for every field that is not in `others`.
        others: the fields without a column of that name.
    """
    return kind(
        **{name: row[name] for name in _columns(cast(Any, kind)) if name not in others}, **others
    )


def texts(values: Iterable[str]) -> str:
    """A list of names as JSON."""
    return json.dumps(list(values), separators=(",", ":"))


def strings(text: str) -> tuple[str, ...]:
    """A list of names from JSON."""
    found = json.loads(text)
    if not isinstance(found, list) or not all(isinstance(item, str) for item in found):
        raise ValueError(f"{text:.80} is not a list of names")
    return tuple(found)


def exit_text(record: m.ExitRecord | None) -> str | None:
    """An exit record as JSON."""
    return None if record is None else dumps(record)


def exit_record(text: str | None) -> m.ExitRecord | None:
    """An exit record from JSON."""
    return None if text is None else loads(m.ExitRecord, text, exact=True)


# -- jobs ------------------------------------------------------------------------------------------


_INSIDE = tuple(f.name for f in fields(Request) if f.name not in BESIDE)
_inside = attrgetter(*_INSIDE)


@lru_cache(maxsize=512)
def _request_text(values: tuple[object, ...]) -> str:
    return dumps(dict(zip(_INSIDE, values, strict=True)))


def request_text(request: Request) -> str:
    """A request as JSON, without the fields that have columns of their own."""
    return _request_text(_inside(request))


@lru_cache(maxsize=512)
def _request(text: str) -> dict[str, Any]:
    known = value_of(Request, {**json.loads(text), "request_id": ""}, exact=True)
    return dict(zip(_INSIDE, _inside(known), strict=True))


def job_of(row: Row, *, spec: object = None, story: Sequence[str] = ()) -> Job:
    """A job from its row."""
    with of_row("jobs", row["job"]):
        request = Request(
            **_request(row["request"]),
            request_id=m.RequestId(row["request_id"]),
            user=row["user_name"],
            spec=spec,
        )
        return Job(
            job=m.JobId(row["job"]),
            request=request,
            status=JobStatus(row["status"]),
            reason=row["reason"],
            runs=m.RunNumber(row["runs"]),
            failures=row["failures"],
            timeouts=row["timeouts"],
            gpu_failures=row["gpu_failures"],
            preemptions=row["preemptions"],
            exit=exit_record(row["exit"]),
            story=tuple(story),
            changed=None if row["changed"] is None else loads(Terms, row["changed"], exact=True),
        )


def job_values(job: Job) -> Values:
    """The columns of a job's row that the ledger changes."""
    return {
        "status": job.status.value,
        "reason": job.reason,
        "runs": job.runs,
        "failures": job.failures,
        "timeouts": job.timeouts,
        "gpu_failures": job.gpu_failures,
        "preemptions": job.preemptions,
        "exit": exit_text(job.exit),
        "changed": None if job.changed is None else dumps(job.changed),
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
    """The job's state as users see it."""
    record = job.exit
    if (
        job.status is JobStatus.FAILED
        and record is not None
        and record.reason is m.ExitReason.OUT_OF_MEMORY
    ):
        return "OUT_OF_MEMORY"
    if word := ENDS.get((job.status, job.reason.partition("(")[0])):
        return word
    return WORDS.get(job.status, job.status.name)


# -- runs ------------------------------------------------------------------------------------------


def run_values(run: Run) -> Values:
    """The columns of a run's row that the ledger changes."""
    return {
        "status": run.status.value,
        "epoch": run.epoch,
        "stop": run.stop.value if run.stop is not None else None,
        "stop_step": run.stop_step,
        "suspended": run.suspended,
        "suspension": run.suspension,
        "gives_way": run.gives_way,
        "released": run.released,
        "follows": run.follows,
        "hand_over": run.hand_over,
        "live": not run.is_over or bool(run.stuck_on),
    }


def member_values(member: Member) -> Values:
    """The columns of one node's part of a run."""
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
            node=m.NodeName(row["node"]),
            gpus=tuple(map(m.GpuId, strings(row["gpus"]))),
            boot_id=m.BootId(row["boot_id"]),
            since=m.Term(m.Epoch(row["since_epoch"]), m.Revision(row["since_revision"])),
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
            key=m.RunKey(m.JobId(row["job"]), m.RunNumber(row["run"]), m.RunId(row["run_id"])),
            status=RunStatus(row["status"]),
            members={member.node: member for member in members},
            epoch=m.Epoch(row["epoch"]),
            stop=None if stop is None else m.StopReason(stop),
            stop_step=row["stop_step"],
            suspended=bool(row["suspended"]),
            suspension=row["suspension"],
            gives_way=bool(row["gives_way"]),
            released=bool(row["released"]),
            follows=None if row["follows"] is None else m.RunId(row["follows"]),
            hand_over=row["hand_over"],
        )


def ended_at(run: Run, heard: float) -> float:
    """When a run that is over has ended, in seconds since the epoch.

    The nodes say when; a time after that at which the daemon has heard of it is a wrong clock's.

    Args:
        run: that is over.
        heard: when the daemon has learnt that it is.
    """
    told = [each.exit.at if each.exit is not None else None for each in run.members.values()]
    known = [at for at in told if at is not None]
    return min(heard, max(known)) if known and len(known) == len(told) else heard


class RunGrowth(NamedTuple):
    """How much changes of runs add to their job's counts."""

    starts: int = 0
    migrations: int = 0
    resizes: int = 0


def growth_of(old: Run | None, run: Run, job: Job) -> RunGrowth:
    """Compare a run of a job with what it was before, None where it is new.

    A stop for a move or a resize that came too late, because the job ended by itself, counts as
    neither. A run that only follows another one has not begun.
    """
    if run.follows is not None:
        return RunGrowth()
    ends = run.is_over and not (old is not None and old.is_over)
    goes_on = ends and judge(run, job)[0] is Cause.REQUEUED
    return RunGrowth(
        starts=int(run.released and not (old is not None and old.released and not old.follows)),
        migrations=int(goes_on and run.stop is m.StopReason.MIGRATE),
        resizes=int(goes_on and run.stop is m.StopReason.RESIZE),
    )


# -- nodes and orphans -----------------------------------------------------------------------------


def node_values(node: Node) -> Values:
    """The columns of a node, without its GPUs."""
    return {
        "boot_id": node.boot_id,
        "incarnation": node.incarnation,
        "revision": node.revision,
        "status": node.status.value,
        "why": node.why,
        "start": node.start,
        "machine": node.machine,
        "can_fence": node.can_fence,
        "witnesses": json.dumps(node.witnesses, separators=(",", ":")),
    }


def gpu_rows(node: Node, kind: Callable[[str], str]) -> list[Values]:
    """The rows of a node's GPUs, registered ones and quarantined ones."""
    place: dict[m.GpuId, int] = {}
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
            name=m.NodeName(row["node"]),
            boot_id=m.BootId(row["boot_id"]),
            incarnation=m.Incarnation(row["incarnation"]),
            revision=m.Revision(row["revision"]),
            status=NodeStatus(row["status"]),
            why=row["why"],
            start=row["start"],
            machine=row["machine"],
            can_fence=bool(row["can_fence"]),
            witnesses=tuple(
                tuple(m.NodeName(name) for name in each) for each in json.loads(row["witnesses"])
            ),
            gpus=_ordered(gpus, "position"),
            quarantined=_ordered(gpus, "quarantine"),
        )


def _ordered(gpus: Sequence[Row], column: str) -> tuple[m.GpuId, ...]:
    having = [gpu for gpu in gpus if gpu[column] is not None]
    return tuple(m.GpuId(gpu["uuid"]) for gpu in sorted(having, key=lambda gpu: gpu[column]))


def orphan_values(orphan: Orphan) -> Values:
    """The row of an unknown run."""
    return {
        "node": orphan.node,
        "run_id": orphan.held.key.run_id,
        "held": dumps(orphan.held),
        "since_epoch": orphan.since.epoch,
        "since_revision": orphan.since.revision,
    }


def orphan_of(row: Row) -> Orphan:
    """An unknown run from its row."""
    with of_row("orphans", f"{row['run_id']} on {row['node']}"):
        return Orphan(
            held=loads(m.HeldRun, row["held"], exact=True),
            node=m.NodeName(row["node"]),
            since=m.Term(m.Epoch(row["since_epoch"]), m.Revision(row["since_revision"])),
        )
