"""Users, accounts, virtual clusters, partitions and quotas as rows.

What the configuration says is stored as well, marked as its, and replaced as a whole: whoever reads
the database without the daemon finds what was in force. Taking away what is not there is no error,
so a repeated change does no harm.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Connection, delete, select, update

from dlsched.db import schema
from dlsched.db.records import TenantRemoved, TenantsConfigured, TenantSet
from dlsched.db.rows import Row, of_row
from dlsched.db.statements import add, put, put_where
from dlsched.db.tenants import (
    FILE,
    Account,
    Partition,
    Quota,
    Tenant,
    TenantKey,
    User,
    Vc,
    key_of,
)

__all__ = ["meet_user", "read_tenants", "remove_tenants", "replace_configured", "set_tenants"]

_TABLES = {
    "user": schema.users,
    "account": schema.accounts,
    "vc": schema.vcs,
    "partition": schema.partitions,
    "quota": schema.quotas,
}


def set_tenants(connection: Connection, rows: Iterable[TenantSet]) -> None:
    """Store tenants, new ones or in place of those of the same kind and name."""
    for row in rows:
        kind, _ = key_of(row.tenant)
        values = _values(row.tenant) | {"source": row.source, "set_by": row.actor, "set_at": row.at}
        put(connection, _TABLES[kind], [values])
        _set_members(connection, row.tenant, row.source)


def meet_user(connection: Connection, name: str, uid: int, at: float) -> None:
    """Somebody submits: the uid of the first time is kept, and what operators said."""
    users = schema.users
    blank = {"added": False, "account": "", "vc": "", "source": "", "set_by": ""}
    put_where(
        connection,
        users,
        {"name": name, "uid": uid, "first_seen_at": at, **blank},
        only=("uid", "first_seen_at"),
        where=users.c.uid.is_(None),
    )


def remove_tenants(connection: Connection, rows: Iterable[TenantRemoved]) -> None:
    """Take tenants away; a user who has submitted stays known by uid."""
    for row in rows:
        _remove(connection, (row.kind, row.name))


def replace_configured(connection: Connection, rows: Sequence[TenantsConfigured]) -> None:
    """What the configuration says from now on, in place of all that it said before."""
    members = schema.account_members
    connection.execute(delete(members).where(members.c.source == FILE))
    for kind, table in _TABLES.items():
        if kind != "user":
            connection.execute(delete(table).where(table.c.source == FILE))
    last = rows[-1]
    set_tenants(
        connection, (TenantSet(tenant=t, actor="", at=last.at, source=FILE) for t in last.tenants)
    )


def _values(tenant: Tenant) -> dict[str, Any]:
    match tenant:
        case User():
            return {"name": tenant.name, "account": tenant.account, "vc": tenant.vc, "added": True}
        case Account():
            return {
                "name": tenant.name,
                "parent": tenant.parent,
                "weight": tenant.weight,
                "vc": tenant.vc,
            }
        case Vc():
            return {
                "name": tenant.name,
                "gpus": tenant.gpus,
                "nodes": tenant.nodes,
                "guaranteed": tenant.guaranteed,
                "borrow": tenant.borrow,
                "parent": tenant.parent,
            }
        case Partition():
            return {
                "name": tenant.name,
                "nodes": tenant.nodes,
                "max_time_s": tenant.max_time_s,
                "is_default": tenant.default,
            }
        case Quota():
            return {
                "kind": tenant.kind,
                "name": tenant.name,
                "gpus": tenant.gpus,
                "jobs": tenant.jobs,
                "gpu_hours": tenant.gpu_hours,
                "window_s": tenant.window_s,
            }


def _set_members(connection: Connection, tenant: Tenant, source: str) -> None:
    table = schema.account_members
    if isinstance(tenant, User):
        mine = (table.c.user_name == tenant.name) & (table.c.source == source)
        pairs = [(account, tenant.name) for account in tenant.accounts]
    elif isinstance(tenant, Account) and source == FILE:
        mine = (table.c.account == tenant.name) & (table.c.source == source)
        pairs = [(tenant.name, user) for user in tenant.users]
    else:
        return
    connection.execute(delete(table).where(mine))
    rows = [{"account": a, "user_name": u, "source": source} for a, u in dict.fromkeys(pairs)]
    add(connection, table, rows)


def _remove(connection: Connection, key: TenantKey) -> None:
    kind, name = key
    members, table = schema.account_members, _TABLES[kind]
    if kind == "user":
        connection.execute(
            update(table)
            .where(table.c.name == name)
            .values(account="", vc="", added=False, source="", set_by="", set_at=None)
        )
        connection.execute(delete(members).where(members.c.user_name == name))
        return
    if kind == "quota":
        of, _, name = name.partition(" ")
        connection.execute(delete(table).where(table.c.kind == of, table.c.name == name))
        return
    connection.execute(delete(table).where(table.c.name == name))
    if kind == "account":
        connection.execute(delete(members).where(members.c.account == name))


# -- reading ---------------------------------------------------------------------------------------


def read_tenants(connection: Connection) -> tuple[TenantSet, ...]:
    """Everything that is set, by kind and name."""
    accounts_of: dict[str, list[str]] = defaultdict(list)
    users_of: dict[str, list[str]] = defaultdict(list)
    members = schema.account_members
    for row in connection.execute(select(members).order_by(*members.primary_key)).mappings():
        if row["source"] == FILE:
            users_of[row["account"]].append(row["user_name"])
        else:
            accounts_of[row["user_name"]].append(row["account"])
    found: list[TenantSet] = []
    for kind, table in _TABLES.items():
        query = select(table).order_by(*table.primary_key)
        if kind == "user":
            query = query.where(table.c.added)
        for row in connection.execute(query).mappings():
            with of_row(table.name, row["name"]):
                tenant = _tenant(kind, row, accounts_of, users_of)
            found.append(
                TenantSet(
                    tenant=tenant,
                    actor=row["set_by"],
                    at=row["set_at"] or 0.0,
                    source=row["source"],
                )
            )
    return tuple(found)


def _tenant(
    kind: str, row: Row, accounts_of: dict[str, list[str]], users_of: dict[str, list[str]]
) -> Tenant:
    name = row["name"]
    if kind == "user":
        return User(
            name=name, account=row["account"], vc=row["vc"], accounts=tuple(accounts_of[name])
        )
    if kind == "account":
        return Account(
            name=name,
            parent=row["parent"],
            weight=row["weight"],
            vc=row["vc"],
            users=tuple(users_of[name]),
        )
    if kind == "vc":
        return Vc(
            name=name,
            gpus=row["gpus"],
            nodes=row["nodes"],
            guaranteed=row["guaranteed"],
            borrow=bool(row["borrow"]),
            parent=row["parent"],
        )
    if kind == "partition":
        return Partition(
            name=name,
            nodes=row["nodes"],
            max_time_s=row["max_time_s"],
            default=bool(row["is_default"]),
        )
    return Quota(
        kind=row["kind"],
        name=name,
        gpus=row["gpus"],
        jobs=row["jobs"],
        gpu_hours=row["gpu_hours"],
        window_s=row["window_s"],
    )
