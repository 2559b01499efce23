"""Users, accounts, virtual clusters, partitions and quotas as rows.

Tenants of the configuration are stored, too, marked as such and replaced as a whole, so that the
database alone shows what was in force. Removing a missing tenant is no error, so that a repeated
change does no harm.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, delete, select, update

from dlsched.db import schema
from dlsched.db.records import TenantRemoved, TenantsConfigured, TenantSet
from dlsched.db.rows import Row, of_row, record_of, strings, texts
from dlsched.db.statements import add, put, put_where
from dlsched.protocol.json_form import plain
from dlsched.tenants.field import rows_of
from dlsched.tenants.fields import (
    FILE,
    KINDS,
    Account,
    Tenant,
    TenantKey,
    User,
    key_of,
)

_TABLES = {
    "user": schema.users,
    "account": schema.accounts,
    "vc": schema.vcs,
    "partition": schema.partitions,
    "class": schema.priority_classes,
    "reservation": schema.reservations,
    "quota": schema.quotas,
}


def set_tenants(connection: Connection, rows: Iterable[TenantSet]) -> None:
    """Store tenants; one of the same kind and name is replaced."""
    for row in rows:
        kind, _ = key_of(row.tenant)
        values = _values(row.tenant) | {"source": row.source, "set_by": row.actor, "set_at": row.at}
        put(connection, _TABLES[kind], [values])
        _set_members(connection, row.tenant, row.source)


def note_user(connection: Connection, name: str, uid: int, at: float) -> None:
    """Note that a user has submitted; the first uid and the operators' settings are kept.

    Args:
        connection: in the transaction.
        name: of the user.
        uid: of the user.
        at: of the submission, in seconds since the epoch.
    """
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
    """Remove tenants; a user who has submitted stays known by uid."""
    for row in rows:
        _remove(connection, (row.kind, row.name))


def replace_configured(connection: Connection, rows: Sequence[TenantsConfigured]) -> None:
    """Replace all tenants of the configuration."""
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
    """The columns of a tenant; members have a table of their own."""
    values: dict[str, Any] = plain(tenant)
    for name, row in rows_of(type(tenant)).items():
        if row.members:
            del values[name]
        elif row.form == "names":
            values[name] = texts(getattr(tenant, name))
    return values | ({"added": True} if isinstance(tenant, User) else {})


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
    """All tenants that are set, by kind and name."""
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
                tenant = _tenant(kind, row, {"user": accounts_of, "account": users_of})
            found.append(
                TenantSet(
                    tenant=tenant,
                    actor=row["set_by"],
                    at=row["set_at"] or 0.0,
                    source=row["source"],
                )
            )
    return tuple(found)


def _tenant(kind: str, row: Row, members: Mapping[str, Mapping[str, list[str]]]) -> Tenant:
    """A tenant from its row, and from the names of `members` by its kind and name."""
    values: dict[str, Any] = {}
    for name, said in rows_of(KINDS[kind]).items():
        if said.members:
            values[name] = tuple(members[kind].get(row["name"], ()))
        elif said.form == "names":
            values[name] = strings(row[name])
        elif said.form == "flag":
            values[name] = bool(row[name])
    return record_of(KINDS[kind], row, **values)
