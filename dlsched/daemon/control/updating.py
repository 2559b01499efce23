"""Changing what was asked for: only listed fields, each checked as at the door, old -> new."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from dlsched.client.submission.durations import duration_text
from dlsched.core.errors import BadInput, DlschedError, NotAllowed
from dlsched.daemon.clock import boottime, wall
from dlsched.daemon.cluster import Cluster
from dlsched.daemon.control import bounds
from dlsched.daemon.control.choosing import chosen_ids, names_jobs, owner_of, subject
from dlsched.daemon.control.depending import read_dependencies, refuse_circle, resolved, told
from dlsched.daemon.control.door import check_fits
from dlsched.daemon.control.elastic import check_sizes
from dlsched.daemon.control.quotas import refuse_beyond_quota
from dlsched.daemon.refusals import Refused
from dlsched.db.records import Dependency, Event, FieldsChanged
from dlsched.protocol import leader
from dlsched.protocol.ledger import Job, JobStatus
from dlsched.protocol.messages import JobId
from dlsched.rpc.authorisation import require_owner
from dlsched.rpc.identity import Identity
from dlsched.rpc.v1 import control_pb2

__all__ = ["update"]


def _number(least: float = 0.0, most: float = bounds.LONGEST_S) -> Callable[[str, str], Any]:
    def read(name: str, text: str) -> float | None:
        if not text:
            return None
        try:
            value = float(text)
        except ValueError:
            raise BadInput(f"{name}: {text[:40]!r} is not a number") from None
        return bounds.check_number(name, value, least, most)

    return read


def _whole(least: int, most: int) -> Callable[[str, str], Any]:
    def read(name: str, text: str) -> int | None:
        if not text:
            return None
        try:
            value = int(text)
        except ValueError:
            raise BadInput(f"{name}: {text[:40]!r} is not a whole number") from None
        return bounds.check_whole(name, value, least, most)

    return read


def _text(longest: int = 256) -> Callable[[str, str], Any]:
    return lambda name, text: bounds.check_text(name, text, longest)


def _names(name: str, text: str) -> tuple[str, ...]:
    bounds.check_text(name, text, 4096)
    return tuple(each for each in text.split(",") if each)


FIELDS: dict[str, Callable[[str, str], Any]] = {
    "time_limit_s": _number(1.0),
    "priority": _number(-1e15, 1e15),
    "priority_class": _text(),
    "name": _text(1024),
    "partition": _text(),
    "vc": _text(),
    "comment": _text(4096),
    "notify": _text(4096),
    "begin_at": _number(0.0, 1e11),
    "deadline_at": _number(0.0, 1e11),
    "gpus": _whole(1, 1_000_000),
    "min_gpus": _whole(1, 1_000_000),
    "max_gpus": _whole(1, 1_000_000),
    "gpu_types": _names,
    "only_nodes": _names,
    "not_nodes": _names,
    "weight": _number(0.0, 1e15),
    "expected_s": _number(),
    "grace_s": _number(),
    "retries": _whole(0, 1_000_000),
    "array_limit": _whole(0, 1_000_000),
}
SIZES = ("gpus", "min_gpus", "max_gpus")
WHILE_RUNNING = frozenset(
    {"priority", "priority_class", "name", "comment", "notify", "time_limit_s", "weight",
     "expected_s", "deadline_at", "grace_s", "retries", "array_limit"}
)  # fmt: skip
NEVER_EMPTY = frozenset({"name", "gpus", "grace_s", "retries", "array_limit"})
TERMS = frozenset({"grace_s", "retries"})  # beside the time limit: of the protocol, not the body


async def update(
    cluster: Cluster, request: control_pb2.UpdateRequest, caller: Identity
) -> control_pb2.ActReply:
    """Change fields of the named jobs, in one transaction.

    Raises:
        BadInput: for a field that cannot be changed, or a value that could not be submitted.
    """
    if not names_jobs(request.filter):
        raise BadInput("update: name the jobs")
    if not request.fields and not request.set_dependencies:
        raise BadInput("update: nothing to change")
    fields: dict[str, Any] = {}
    for name, text in request.fields.items():
        if name not in FIELDS:
            bounds.check_text("field", name)
            raise BadInput(f"{name!r} cannot be updated; what can: {', '.join(FIELDS)}")
        if not text and name in NEVER_EMPTY:
            raise BadInput(f"{name}: cannot be cleared")
        fields[name] = FIELDS[name](name, text)
    _check_words(cluster, fields)
    shell = cluster.shell
    shell.require_lead()
    if request.set_dependencies:
        conditions, tasks = read_dependencies(request.dependencies)
        fields["dependencies"] = await resolved(cluster, conditions, tasks)
    found = chosen_ids(cluster, request.filter)
    reply = control_pb2.ActReply()
    for missing, _ in found.missing:
        reply.failed.add(subject=f"job {missing}", why="there is no such live job")
    changes = _Changes(cluster, fields, caller)
    for row in found.rows.values():
        name = subject(row, cluster)
        try:
            said = changes.take(shell.reserved.jobs.get(row.job, row), name)
        except DlschedError as error:
            reply.failed.add(subject=f"job {name}", why=str(error))
            continue
        reply.done.append(name)
        reply.lines.extend(f"job {name}: {line}" for line in said)
    if changes.events:
        await shell.ask(
            lambda token: leader.Together(
                boottime(), (*changes.events, leader.AttachAsked(boottime(), (), token))
            )
        )
    return reply


class _Changes:
    """The events that change some jobs, gathered for one transaction."""

    def __init__(self, cluster: Cluster, fields: dict[str, Any], caller: Identity) -> None:
        self.cluster = cluster
        self.fields = fields
        self.caller = caller
        self.events: list[leader.AttachAsked | leader.TermsAsked] = []
        self._limited: set[JobId] = set()  # arrays by their first element

    def take(self, row: Job, name: str) -> list[str]:
        """Change one job; what changes, old -> new.

        Raises:
            DlschedError: why nothing may.
        """
        fields = dict(self.fields)
        limit = fields.pop("array_limit", None)
        if "vc" in fields:
            owner = owner_of(self.cluster, row)
            fields["account"], fields["vc"] = self.cluster.tenants.resolve(
                owner, fields["vc"] or "", operator=self.caller.is_operator
            )
        said = _lines(self.cluster, row, self.fields, self.caller, name)
        if "dependencies" in fields:
            refuse_circle(self.cluster, row.job, fields["dependencies"])
        if limit is not None:
            self._limit_array(row, limit)
        terms = replace(
            row.terms, **{field: fields.pop(field) for field in TERMS if field in fields}
        )
        if "time_limit_s" in fields:
            limits = replace(terms.limits, time_s=fields["time_limit_s"])
            terms = replace(terms, limits=limits)
        now = boottime()
        if terms != row.terms:
            self.events.append(leader.TermsAsked(now, row.job, terms))
        rows: list[object] = [
            Event(
                at=wall(), kind="update", actor=self.caller.name, job=row.job, text="; ".join(said)
            )
        ]
        if fields:
            rows.append(FieldsChanged(job=row.job, fields=fields, actor=self.caller.name))
        self.events.append(leader.AttachAsked(now, tuple(rows)))
        return said

    def _limit_array(self, row: Job, limit: int) -> None:
        """A limit is the whole array's: every element that has not ended has it."""
        shell = self.cluster.shell
        spec = shell.table.spec(row)
        if spec.array is None:
            raise Refused("it is no element of an array")
        first = JobId(row.job - spec.index)
        if first in self._limited:
            return
        self._limited.add(first)
        ids = (JobId(first + k) for k in range(len(spec.array.tasks)))
        live = [j for j in ids if j in shell.reserved.jobs]
        rows = tuple(
            FieldsChanged(job=job, fields={"array_limit": limit}, actor=self.caller.name)
            for job in live
            if not shell.reserved.jobs[job].status.is_terminal
        )
        self.events.append(leader.AttachAsked(boottime(), rows))


def _check_words(cluster: Cluster, fields: dict[str, Any]) -> None:
    settings, capacity = cluster.settings, cluster.capacity()
    partitions = [p.name for p in settings.partitions]
    vcs = list(dict.fromkeys((*cluster.tenants.accounts(), *cluster.tenants.vcs())))
    for name, known in (("partition", partitions), ("vc", vcs)):
        value = fields.get(name)
        if value and value not in known:
            raise BadInput(f"{name} {value!r} is not known; known: {', '.join(known) or 'none'}")
    types = capacity.types
    for value in fields.get("gpu_types", ()):
        if capacity.hosts and value.lower() not in types:
            raise BadInput(
                f"GPU type {value!r} is not known; known: {', '.join(sorted(types.values()))}"
            )


def _lines(  # noqa: PLR0912  # one refusal a branch
    cluster: Cluster, row: Job, fields: dict[str, Any], caller: Identity, name: str
) -> list[str]:
    """What changes, or why nothing may."""
    owner = owner_of(cluster, row)
    try:
        require_owner(caller, owner, f"job {name}")
    except NotAllowed:
        raise NotAllowed(f"not yours (owner {owner})") from None
    if row.status.is_terminal:
        raise Refused("it has ended already")
    table = cluster.shell.table
    if row.status is not JobStatus.PENDING:
        late = [field for field in fields if field not in WHILE_RUNNING]
        if late:
            raise Refused(f"{late[0]} cannot be changed while it is {row.status.value}")
    if "priority" in fields and not caller.is_operator:
        most_allowed = table.field(row, "priority") or 0.0
        if (fields["priority"] or 0.0) > most_allowed:
            raise NotAllowed("only an operator may raise a priority")
    spec = table.spec(row)
    partition = fields.get("partition", table.field(row, "partition"))
    limit = fields.get("time_limit_s", table.field(row, "time_limit_s"))
    most = next((p.max_time_s for p in cluster.settings.partitions if p.name == partition), None)
    if most is not None and limit is None:
        raise Refused(f"time limit: partition {partition} wants one, {most:g} s at most")
    if most is not None and limit is not None and limit > most:
        raise Refused(f"time limit: {limit:g} s is above partition {partition}'s, {most:g} s")
    if "gpus" in fields and spec.body.gang is not None:
        raise Refused("its GPUs are given by node; gpus cannot be changed")
    body = spec.body
    for field in (
        "gpus",
        "min_gpus",
        "max_gpus",
        "gpu_types",
        "only_nodes",
        "not_nodes",
        "partition",
    ):
        if field in fields:
            body = replace(body, **{field: fields[field]})
    if body is not spec.body:
        check_sizes(*(fields.get(n, table.field(row, n)) for n in ("gpus", "min_gpus", "max_gpus")))
        check_fits(body, cluster.capacity())
        account, vc = table.field(row, "account") or "", table.field(row, "vc") or ""
        refuse_beyond_quota(cluster, owner, replace(body, account=account, vc=vc))
    settings = cluster.settings.limits
    bounds.check_number("grace_s", fields.get("grace_s"), 0.0, settings.grace_s)
    bounds.check_whole("retries", fields.get("retries"), 0, settings.retries)
    lines = []
    for field, value in fields.items():
        if field == "array_limit":
            old: Any = table.array_limit(row)
        elif field in TERMS:
            old = getattr(row.terms, field)
        else:
            old = table.field(row, field)
        write = _duration if field.endswith("_s") else _told
        what = field.removesuffix("_s").removesuffix("_at").replace("_", " ")
        lines.append(f"{what} {write(old)} -> {write(value)}")
    return lines


def _duration(seconds: float | None) -> str:
    return "none" if seconds is None else duration_text(seconds)


def _told(value: Any) -> str:
    if value is None or value in ("", ()):
        return "none"
    if isinstance(value, tuple):
        if isinstance(value[0], Dependency):
            return told(value)
        return ",".join(value)
    return f"{value:g}" if isinstance(value, float) else str(value)
