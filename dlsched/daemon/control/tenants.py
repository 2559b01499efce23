"""Tenants: listed with what they use now, set field by field, removed."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any, cast

from dlsched.core.cluster.host_lists import expand
from dlsched.core.errors import BadInput, NotAllowed, not_known
from dlsched.core.sharing.gpu_limits import EVERY_USER
from dlsched.daemon.cluster import Cluster
from dlsched.daemon.control import bounds
from dlsched.daemon.control.reservations import check_reservation
from dlsched.daemon.tenants import with_window
from dlsched.daemon.turns import in_turns
from dlsched.db.records import Event, TenantRemoved, TenantSet
from dlsched.protocol.ledger import JobStatus
from dlsched.rpc.identity import Identity
from dlsched.rpc.v1 import control_pb2
from dlsched.system.clock import wall
from dlsched.tenants.field import Row, rows_of
from dlsched.tenants.fields import (
    KINDS,
    NAME,
    QUOTA_KINDS,
    Account,
    PriorityClass,
    Quota,
    Reservation,
    Tenant,
    key_of,
)

TENANT = re.compile(NAME)
MONTH_S = 30 * 86400.0


# -- listing ---------------------------------------------------------------------------------------


async def tenants(
    cluster: Cluster, request: control_pb2.TenantsRequest
) -> control_pb2.TenantsReply:
    """The tenants of a kind, or all.

    Raises:
        BadInput: there is no such kind.
    """
    kinds = [request.kind] if request.kind else list(KINDS)
    if kinds[0] not in KINDS:
        bounds.check_text("kind", request.kind)
        raise not_known("kind", request.kind, KINDS)
    reply = control_pb2.TenantsReply()
    rows, held = cluster.tenants.rows, await _held(cluster)
    for key in sorted(rows, key=lambda key: (list(KINDS).index(key[0]), key[1])):
        if key[0] in kinds:
            reply.tenants.append(_view(cluster, rows[key], held))
    return reply


def _view(cluster: Cluster, row: TenantSet, held: Held) -> control_pb2.Tenant:
    view = control_pb2.Tenant(source=row.source, set_by=row.actor)
    if row.at:
        view.set_at = row.at
    tenant = row.tenant
    message = getattr(view, key_of(tenant)[0])
    message.SetInParent()
    for name in tenant.__slots__:
        value = getattr(tenant, name)
        if isinstance(value, tuple):
            getattr(message, name).extend(value)
        elif value is not None:
            setattr(message, name, value)
    if isinstance(tenant, Account):
        del message.users[:]
        message.users.extend(sorted(cluster.tenants.members(tenant.name)))
    _count(cluster, tenant, held, view)
    return view


Held = dict[tuple[str, str], tuple[int, float]]  # jobs and GPUs, by kind and name; parts as parts


async def _held(cluster: Cluster) -> Held:
    """The jobs and GPUs of each tenant now; an account counts those of the accounts below it."""
    driver, table, parents = cluster.driver, cluster.driver.table, cluster.tenants.parents()
    held: Held = {}
    async for row in in_turns(driver.committed.jobs.values()):
        if row.status.is_terminal:
            continue
        run = driver.committed.live_run(row.job) if row.status is not JobStatus.PENDING else None
        gpus = driver.committed.gpus_of(run)
        whose = {("user", row.request.user), ("user", EVERY_USER), ("vc", table.field(row, "vc"))}
        whose.add(("class", table.field(row, "priority_class") or ""))
        whose.add(("reservation", table.field(row, "reservation") or ""))
        account = table.field(row, "account")
        while account and ("account", account) not in whose:
            whose.add(("account", account))
            account = parents.get(account, "")
        for each in whose:
            jobs_now, gpus_now = held.get(each, (0, 0.0))
            held[each] = (jobs_now + 1, gpus_now + gpus)
    return held


def _count(cluster: Cluster, tenant: Tenant, held: Held, view: control_pb2.Tenant) -> None:
    """Put in what a tenant uses now."""
    kind = tenant.kind if isinstance(tenant, Quota) else key_of(tenant)[0]
    view.jobs_now, view.gpu_parts_now = held.get((kind, tenant.name), (0, 0.0))
    view.gpus_now = math.ceil(view.gpu_parts_now)
    if isinstance(tenant, Quota) and tenant.gpu_hours is not None:
        spent = cluster.live.eligibility.tenant_limits.used_hours
        view.gpu_hours_now = spent.get((tenant.kind, tenant.name), 0.0)


# -- changing --------------------------------------------------------------------------------------


async def set_tenant(
    cluster: Cluster, request: control_pb2.SetTenantRequest, caller: Identity
) -> control_pb2.TenantReply:
    """Add or change a tenant.

    Raises:
        DlschedError: one line that says why not; then nothing has changed.
    """
    cluster.driver.require_lead()
    kind = request.tenant.WhichOneof("tenant")
    if kind is None:
        raise BadInput("tenant: it is empty")
    if kind == "partition":
        raise NotAllowed("partitions are set in the configuration")
    message = getattr(request.tenant, kind)
    name = _named(kind, message)
    known = cluster.tenants.rows.get((kind, f"{message.kind} {name}" if kind == "quota" else name))
    if known is not None:
        start: Tenant = known.tenant
    elif kind == "quota":
        start = Quota(kind=message.kind, name=name)
    else:
        start = cast(Any, KINDS[kind])(name=name)
    changed = replace(start, **_values(kind, message, request.fields))
    if isinstance(changed, Quota):
        changed = with_window(changed, MONTH_S)
    if isinstance(changed, PriorityClass):
        bounds.check_number("grace_s", changed.grace_s, 0.0, cluster.settings.limits.grace_s)
    tenant: Tenant = changed
    before = cluster.tenants.check_set(tenant, create=request.create)
    if isinstance(tenant, Reservation):
        check_reservation(cluster, tenant, ignore_jobs=request.ignore_jobs)
    lines = _changes(tenant, None if before is None else before.tenant)
    if before is not None and before.tenant == tenant:
        return control_pb2.TenantReply(lines=lines)
    at = wall()
    row = TenantSet(tenant=tenant, actor=caller.name, at=at)
    note = Event(at=at, kind="set-tenant", actor=caller.name, text="; ".join(lines)[:2000])
    await cluster.driver.attach(row, note)
    return control_pb2.TenantReply(lines=lines)


async def remove_tenant(
    cluster: Cluster, request: control_pb2.RemoveTenantRequest, caller: Identity
) -> control_pb2.TenantReply:
    """Remove a tenant that no other one names and no live job is in.

    Raises:
        DlschedError: one line that says why not.
    """
    cluster.driver.require_lead()
    bounds.check_text("kind", request.kind)
    bounds.check_text("name", request.name)
    kind, name = request.kind, request.name
    cluster.tenants.check_remove(kind, name)
    if kind in ("account", "vc", "class", "reservation"):
        column = "priority_class" if kind == "class" else kind
        job = cluster.live.requests.live_job_in(column, name)
        if job is not None:
            raise BadInput(f"{kind} {name}: job {job} is in it")
    at = wall()
    note = Event(at=at, kind="remove-tenant", actor=caller.name, text=f"{kind} {name}")
    removed = TenantRemoved(kind=kind, name=name, actor=caller.name, at=at)
    await cluster.driver.attach(removed, note)
    return control_pb2.TenantReply(lines=[f"{kind} {name}: removed"])


def _named(kind: str, message: Any) -> str:
    """A tenant's name, checked."""
    name: str = message.name
    if kind == "quota":
        if message.kind not in QUOTA_KINDS:
            bounds.check_text("kind of quota", message.kind)
            raise BadInput(f"a quota is of a {', '.join(QUOTA_KINDS)}, not {message.kind!r}")
        if message.kind == "user" and name == EVERY_USER:
            return name
    if not TENANT.fullmatch(name):
        raise BadInput(f"{kind} {name[:64]!r}: not a name (letters, digits, _ . @ -; at most 64)")
    return name


def _values(kind: str, message: Any, wanted: Iterable[str]) -> dict[str, Any]:
    """The fields that change, checked."""
    rows = rows_of(KINDS[kind])
    found: dict[str, Any] = {}
    for name in wanted:
        row = rows.get(name)
        if row is None or not row.settable:
            bounds.check_text("field", name)
            raise BadInput(f"a {kind} has no field {name!r} that can be set")
        found[name] = _checked(row, message)
    return found


def _checked(row: Row, message: Any) -> Any:
    """The value of a field, within the bounds of its row."""
    name, value = row.name, getattr(message, row.name)
    if row.form == "names":
        value = tuple(dict.fromkeys(bounds.check_text(name, each) for each in value))
    elif row.form in ("text", "hosts"):
        bounds.check_text(name, value, 4096)
        if row.form == "hosts" and value:
            expand("nodes", value)
            value = value.lower()
    elif not message.HasField(name):
        value = row.default
    elif row.form == "whole":
        bounds.check_whole(name, value, int(row.least), int(row.most))
    elif row.form != "flag":
        bounds.check_number(name, value, row.least, row.most)
    return value


def _changes(tenant: Tenant, before: Tenant | None) -> list[str]:
    """What changes, as lines `old -> new`."""
    subject = " ".join(key_of(tenant))
    if before is None:
        said = [
            f"{name} {_word(name, getattr(tenant, name))}"
            for name in tenant.__slots__
            if name not in ("name", "kind") and getattr(tenant, name) not in (None, "", ())
        ]
        return [f"{subject}: added{', ' if said else ''}{', '.join(said)}"]
    lines = [
        f"{subject}: {name} {_word(name, old)} -> {_word(name, new)}"
        for name in tenant.__slots__
        if (old := getattr(before, name)) != (new := getattr(tenant, name))
    ]
    return lines or [f"{subject}: as it was"]


def _word(name: str, value: Any) -> str:
    if name.endswith("_at") and isinstance(value, float):
        return f"{datetime.fromtimestamp(value).astimezone():%Y-%m-%dT%H:%M:%S%z}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None or value in ("", ()):
        return "none"
    if isinstance(value, tuple):
        return ",".join(value)
    if isinstance(value, float) and not value.is_integer():
        return f"{value:g}"
    return str(int(value)) if isinstance(value, float) else str(value)
