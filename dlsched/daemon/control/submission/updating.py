"""Changing jobs: the fields that may be updated, checked as at submission, old -> new."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain
from typing import Any

from dlsched.client.submission.durations import duration_text
from dlsched.core.errors import BadInput, DlschedError, NotAllowed, not_known
from dlsched.daemon.cluster import Cluster
from dlsched.daemon.control import bounds
from dlsched.daemon.control.job_filters import (
    check_filter,
    chosen_ids,
    names_jobs,
    owner_of,
    subject,
)
from dlsched.daemon.control.reservations import check_use
from dlsched.daemon.control.submission.elastic import check_sizes
from dlsched.daemon.control.submission.fitting import check_fits
from dlsched.daemon.control.submission.gpu_types import (
    OF_TYPES,
    changed_gpu_types,
    check_names,
)
from dlsched.daemon.control.submission.job_dependencies import (
    read_dependencies,
    refuse_circle,
    resolved,
    written,
)
from dlsched.daemon.control.submission.job_validation import (
    USUAL,
    check_place,
    known_nodes,
)
from dlsched.daemon.control.submission.partitions import check_access, partition_for, tenants_of
from dlsched.daemon.control.submission.quotas import refuse_beyond_quota
from dlsched.daemon.control.submission.slas import check_kind, refuse_past
from dlsched.daemon.control.submission.storage_bounds import StorageBounds
from dlsched.daemon.notifying.receivers import unheard
from dlsched.daemon.rpc_errors import NotPossible
from dlsched.daemon.site_rules.priority_classes import check_grace, check_time
from dlsched.daemon.tenants import TenantsOfUser
from dlsched.daemon.turns import in_turns
from dlsched.db.records import Dependency, Event, FieldsChanged
from dlsched.jobs.field import Field, Values
from dlsched.jobs.fields import FIELDS
from dlsched.protocol import leader
from dlsched.protocol.ledger import Job, JobStatus
from dlsched.protocol.messages import JobId
from dlsched.rpc.authorisation import require_owner
from dlsched.rpc.identity import Identity
from dlsched.rpc.v1 import control_pb2
from dlsched.system.clock import boottime, wall

ARRAY_LIMIT = Field(name="array_limit", form="whole", most=1e6, update="always", clearable=False)
CHANGEABLE = {
    **{row.name: row for row in FIELDS if row.update != "never"},
    ARRAY_LIMIT.name: ARRAY_LIMIT,
}
SIZES = ("gpus", "min_gpus", "max_gpus")
OF_FITTING = (*OF_TYPES, "min_gpus", "max_gpus", "gang", "gpus_by_type")
CLASSED = {"priority_class", "time_limit_s", "grace_s"}  # what a priority class limits
TERMS = frozenset({"grace_s", "retries"})  # beside the time limit: of the protocol, not the body


def _value(row: Field, text: str) -> Any:
    """The new value of a field; None or nothing where the text is empty.

    Raises:
        BadInput: the text is no such value, is out of bounds, or is empty and must not be.
    """
    value: Any = text
    if not text and not row.clearable:
        raise BadInput(f"{row.name}: cannot be cleared")
    if row.form in ("names", "hosts"):
        bounds.check_text(row.name, text, 4096)
        value = tuple(dict.fromkeys(each for each in text.split(",") if each))
    elif row.form in ("number", "whole", "seconds", "limit", "moment"):
        what = "whole number" if row.form == "whole" else "number"
        try:
            value = None if not text else int(text) if row.form == "whole" else float(text)
        except ValueError:
            raise BadInput(f"{row.name}: {text[:40]!r} is not a {what}") from None
    elif row.form == "choice":
        value = text or None
    value = bounds.check_field(row, value, wall())
    if row.name == "deadline_at":
        refuse_past(value, wall())
    return value


async def update(
    cluster: Cluster, request: control_pb2.UpdateRequest, caller: Identity, storage: StorageBounds
) -> control_pb2.ActReply:
    """Change fields of the named jobs, some hundred in a transaction.

    Raises:
        BadInput: for a field that cannot be changed, or a value that could not be submitted.
        TooMuch: the caller has had too much stored.
    """
    check_filter(request.filter)
    if not names_jobs(request.filter):
        raise BadInput("update: name the jobs")
    if not request.fields and not request.set_dependencies:
        raise BadInput("update: nothing to change")
    fields: Values = {}
    for name, text in request.fields.items():
        if name not in CHANGEABLE:
            bounds.check_text("field", name)
            raise BadInput(f"{name!r} cannot be updated; what can: {', '.join(CHANGEABLE)}")
        fields[name] = _value(CHANGEABLE[name], text)
    _check_words(cluster, fields)
    driver = cluster.driver
    driver.require_lead()
    if request.set_dependencies:
        conditions, tasks = read_dependencies(request.dependencies)
        fields["dependencies"] = await resolved(cluster, conditions, tasks)
    found = chosen_ids(cluster, request.filter)
    reply = control_pb2.ActReply()
    if fields.get("notify"):
        site = cluster.settings.notifications
        reply.lines.extend(unheard(site, notify=fields["notify"], url="", addresses=""))
    for missing, _ in found.missing:
        reply.failed.add(subject=f"job {missing}", why="there is no such live job")
    told = sum(min(len(text), TOLD) for text in request.fields.values())
    await storage.take_action(caller.name, "update", len(found.rows), told)
    changes = _Changes(cluster, fields, caller, await tenants_of(cluster, caller))
    async for row in in_turns([each for job, each in found.rows.items() if job not in found.ended]):
        name = subject(row, cluster)
        try:
            said = changes.take(driver.reserved.jobs.get(row.job, row), name)
        except DlschedError as error:
            reply.failed.add(subject=f"job {name}", why=str(error))
            continue
        reply.done.append(name)
        reply.lines.extend(f"job {name}: {line}" for line in said)
        if len(changes.taken) >= AT_ONCE:
            await changes.commit()
    await changes.commit()
    return reply


Asked = leader.AttachAsked | leader.TermsAsked
TOLD = 200  # characters of a value in a line: there is one for each of thousands of jobs
AT_ONCE = 200  # jobs changed in one transaction


class _Changes:
    """The events that change some jobs, gathered for one transaction."""

    def __init__(
        self, cluster: Cluster, fields: Values, caller: Identity, whose: TenantsOfUser
    ) -> None:
        self.cluster = cluster
        self.fields = fields
        self.caller = caller
        self.whose = whose
        self.taken: list[tuple[Asked, ...]] = []  # the events of each job
        self._limited: set[JobId] = set()  # arrays by their first element

    async def commit(self) -> None:
        """Ask for the changes that were taken since the last time."""
        taken, self.taken = self.taken, []
        for start in range(0, len(taken), AT_ONCE):
            some = list(chain.from_iterable(taken[start : start + AT_ONCE]))

            def together(token: int, some: list[Asked] = some) -> leader.Together:
                answered = leader.AttachAsked(boottime(), (), token)
                return leader.Together(boottime(), (*some, answered))

            await self.cluster.driver.ask(together)

    def take(self, row: Job, name: str) -> list[str]:
        """Change one job; what changes, old -> new.

        Raises:
            DlschedError: why nothing may.
        """
        _refuse(self.cluster, row, self.fields, self.caller, name)
        wanted = self.fields | self._gpu_types(row)
        fields = dict(wanted)
        limit = fields.pop("array_limit", None)
        if "vc" in fields:
            owner = owner_of(self.cluster, row)
            fields["account"], fields["vc"] = self.cluster.tenants.resolve(
                owner, fields["vc"] or "", operator=self.caller.is_operator
            )
        if self.fields.keys() & CLASSED:
            fields |= self._class_fields(row, fields)
        if self.fields.keys() & {"reservation", "time_limit_s"}:
            self._check_reservation(row, fields)
        if self.fields.keys() & {"partition", "vc"}:
            table = self.cluster.driver.table
            partition = fields.get("partition", table.field(row, "partition")) or ""
            account = fields.get("account", table.field(row, "account")) or ""
            self._check_partition(row, partition, account)
        said = _lines(self.cluster, row, wanted)
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
        asked = (leader.TermsAsked(now, row.job, terms),) if terms != row.terms else ()
        rows: list[object] = [
            Event(
                at=wall(), kind="update", actor=self.caller.name, job=row.job, text="; ".join(said)
            )
        ]
        if fields:
            rows.append(FieldsChanged(job=row.job, fields=fields, actor=self.caller.name))
        self.taken.append((*asked, leader.AttachAsked(now, tuple(rows))))
        return said

    def _gpu_types(self, row: Job) -> Values:
        """What the changes make of a job's GPU types."""
        if self.fields.keys().isdisjoint(OF_TYPES):
            return {}
        body, capacity = self.cluster.driver.table.body(row), self.cluster.capacity()
        found = changed_gpu_types(body, self.fields, capacity)
        return {n: v for n, v in found.items() if n in self.fields or v != getattr(body, n)}

    def _check_reservation(self, row: Job, fields: Values) -> None:
        """Refuse a reservation that the job may not use, or that is shorter than its time limit."""
        table, cluster = self.cluster.driver.table, self.cluster
        if row.status is not JobStatus.PENDING:
            return
        named = fields.get("reservation", table.field(row, "reservation")) or ""
        limit = fields.get("time_limit_s", table.field(row, "time_limit_s"))
        account = fields.get("account", table.field(row, "account")) or ""
        whose = replace(self.whose, user=owner_of(cluster, row))
        check_use(named, cluster.tenants.reservations(), whose, account, limit)

    def _class_fields(self, row: Job, fields: Values) -> Values:
        """The name of a job's class after the change; its limits allow what the job then has.

        Raises:
            DlschedError: there is no such class, it is not for the job's user, or it forbids this.
        """
        table, cluster = self.cluster.driver.table, self.cluster
        whose = replace(self.whose, user=owner_of(cluster, row))
        wanted = fields.get("priority_class", table.field(row, "priority_class")) or ""
        account = fields.get("account", table.field(row, "account")) or ""
        found = whose.priority_class(wanted, account)
        check_time(found, fields.get("time_limit_s", table.field(row, "time_limit_s")))
        if "grace_s" in fields:
            check_grace(found, fields["grace_s"])
        return {"priority_class": found.name} if "priority_class" in fields else {}

    def _check_partition(self, row: Job, partition: str, account: str) -> None:
        """Refuse a partition that is not for the job, which would only wait there."""
        owner = owner_of(self.cluster, row)
        if owner == self.caller.name:
            check_access(partition_for(partition, self.cluster.settings), self.whose, account)
            return
        partition_for(partition, self.cluster.settings)
        spec = self.cluster.driver.table.spec(row)
        access = self.cluster.live.rules.access
        spec = replace(spec, body=replace(spec.body, account=account))
        if why := access.refusal(spec, partition=partition):
            raise NotAllowed(why)

    def _limit_array(self, row: Job, limit: int) -> None:
        """A limit is the whole array's: every element that has not ended has it."""
        driver = self.cluster.driver
        spec = driver.table.spec(row)
        if spec.array is None:
            raise NotPossible("it is no element of an array")
        first = JobId(row.job - spec.index)
        if first in self._limited:
            return
        self._limited.add(first)
        ids = (JobId(first + k) for k in range(len(spec.array.tasks)))
        live = [j for j in ids if j in driver.reserved.jobs]
        for job in live:
            if not driver.reserved.jobs[job].status.is_terminal:
                fields = {"array_limit": limit}
                change = FieldsChanged(job=job, fields=fields, actor=self.caller.name)
                self.taken.append((leader.AttachAsked(boottime(), (change,)),))


def _check_words(cluster: Cluster, fields: Values) -> None:
    settings, capacity = cluster.settings, cluster.capacity()
    partitions = [p.name for p in settings.partitions]
    vcs = list(dict.fromkeys((*cluster.tenants.accounts(), *cluster.tenants.vcs())))
    for name, known in (("partition", partitions), ("vc", vcs)):
        value = fields.get(name)
        if value and value not in known and (known or name != "vc"):
            raise not_known(name, value, known)
    check_names(fields.get("gpu_types", ()), fields.get("constraint") or "", capacity)
    for name in ("only_nodes", "not_nodes"):
        known_nodes(fields.get(name, ()), capacity)


def _refuse(cluster: Cluster, row: Job, fields: Values, caller: Identity, name: str) -> None:
    """Refuse a change of another user's job, or of one that is not in the state for it."""
    owner = owner_of(cluster, row)
    try:
        require_owner(caller, owner, f"job {name}")
    except NotAllowed:
        raise NotAllowed(f"not yours (owner {owner})") from None
    if row.status.is_terminal:
        raise NotPossible("it has ended already")
    table = cluster.driver.table
    if row.status is not JobStatus.PENDING:
        late = [
            name
            for name in fields
            if name not in CHANGEABLE or CHANGEABLE[name].update == "waiting"
        ]
        if late:
            raise NotPossible(f"{late[0]} cannot be changed while it is {row.status.value}")
    check_place(fields, {name: table.field(row, name) for name in USUAL}, caller)


def _lines(cluster: Cluster, row: Job, fields: Values) -> list[str]:
    """What changes, or why nothing may."""
    table = cluster.driver.table
    partition = fields.get("partition", table.field(row, "partition"))
    limit = fields.get("time_limit_s", table.field(row, "time_limit_s"))
    rules = cluster.settings.partition_rules()
    most = rules[partition].max_time_s if partition in rules else None
    if most is not None and limit is None:
        raise NotPossible(f"time limit: partition {partition} wants one, {most:g} s at most")
    if most is not None and limit is not None and limit > most:
        raise NotPossible(f"time limit: {limit:g} s is above partition {partition}'s, {most:g} s")
    body = table.body(row)
    gang = fields.get("gang", body.gang)
    if "gpus" in fields and gang is not None and sum(gang) != fields["gpus"]:
        raise NotPossible("its GPUs are given by node; gpus cannot be changed")
    if not fields.keys().isdisjoint(OF_FITTING):
        body = replace(body, **{each: fields[each] for each in OF_FITTING if each in fields})
        check_sizes(*(getattr(body, each) for each in SIZES))
        check_fits(body, cluster.capacity())
        account, vc = table.field(row, "account") or "", table.field(row, "vc") or ""
        refuse_beyond_quota(cluster, owner_of(cluster, row), replace(body, account=account, vc=vc))
    settings = cluster.settings.limits
    bounds.check_number("grace_s", fields.get("grace_s"), 0.0, settings.grace_s)
    bounds.check_whole("retries", fields.get("retries"), 0, settings.retries)
    if fields.keys() & {"deadline_at", "deadline_kind"}:
        check_kind(*(fields.get(n, table.field(row, n)) for n in ("deadline_kind", "deadline_at")))
    lines: list[str] = []
    same: list[str] = []
    for field, value in fields.items():
        if field == "gang":  # of one node, so it follows the number of GPUs
            continue
        if field == "array_limit":
            old: Any = table.array_limit(row)
        elif field in TERMS:
            old = getattr(row.terms, field)
        else:
            old = table.field(row, field)
        write = _duration if field.endswith("_s") else _moment if field.endswith("_at") else _text
        what = field.removesuffix("_s").removesuffix("_at").replace("_", " ")
        (same if old == value else lines).append(f"{what} {write(old)} -> {write(value)}")
    return lines or same


def _duration(seconds: float | None) -> str:
    return "none" if seconds is None else duration_text(seconds)


def _moment(at: float | None) -> str:
    return "none" if at is None else datetime.fromtimestamp(at, UTC).isoformat(" ", "seconds")


def _text(value: Any) -> str:
    if value is None or value in ("", ()):
        return "none"
    if isinstance(value, float):
        return f"{value:g}"
    text = str(value)
    if isinstance(value, tuple):
        text = written(value) if isinstance(value[0], Dependency) else ",".join(value)
    return text if len(text) <= TOLD else text[: TOLD - 3] + "..."
