"""The verbs `add`, `modify` and `delete` of `sacctmgr`: what they change, and what they say."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dlsched.cli.slurm.accounts.changes import (
    Change,
    Changes,
    put_quota,
    remove_account,
    remove_user,
    settle,
)
from dlsched.cli.slurm.accounts.listed import ROOT, Tenants, accounts_of, associations
from dlsched.cli.slurm.accounts.request import Request
from dlsched.core.errors import BadInput, DlschedError, not_known

_TITLES = {"user": "User(s)", "account": "Account(s)", "qos": "QOS(s)"}
_TENANTS = {"user": "user", "account": "account", "qos": "class"}


def change(verb: str, kind: str, asked: Request, tenants: Tenants) -> tuple[str, Changes | None]:
    """Return what is said and what is to be done; None: there is nothing to do.

    Raises:
        BadInput: the line says too little, or names what is not known.
        DlschedError: it cannot be done.
    """
    for name in asked.names("cluster"):
        if name != tenants.name:
            raise DlschedError(f"This cluster '{name}' doesn't exist; this one is {tenants.name}")
    if "format" in asked.where:
        raise BadInput("format: only of list and show")
    names = asked.names(kind)
    if verb == "add":
        return _add(kind, names, asked, tenants)
    known = tenants.of(_TENANTS[kind])
    accounts = asked.names("account") if kind == "user" else []
    if not names and not accounts:
        raise BadInput(f"which {kind}? where name=…")
    found = [
        name
        for name in names or known
        if name in known and (not accounts or set(accounts) & set(accounts_of(known[name])))
    ]
    if verb == "modify":
        return _modify(kind, found, accounts, asked.changes, tenants)
    return _delete(kind, found, accounts, tenants)


def _lines(title: str, lines: Iterable[str]) -> str:
    return "\n".join([title, *(f"  {line}" for line in lines)])


def _added(tenants: Tenants, account: str, user: str = "") -> str:
    of = f"U = {user:<9} " if user else ""
    return f"{of}A = {account:<10} C = {tenants.name:<10}".rstrip()


def _changed(tenants: Tenants, account: str, user: str = "") -> str:
    of = f" U = {user:<9}" if user else ""
    return f"C = {tenants.name:<10} A = {account:<20}{of}".rstrip()


def _add(
    kind: str, names: Sequence[str], asked: Request, tenants: Tenants
) -> tuple[str, Changes | None]:
    if not names:
        raise BadInput(f"which {kind}? add {kind} NAME")
    known = tenants.of(_TENANTS[kind])
    changes, new, said = Changes(), [], []
    for name in names:
        wanted = asked.changes
        if kind == "user":
            before = accounts_of(known[name]) if name in known else []
            further = [each for each in asked.names("account") if each not in before]
            if name not in known and not further:
                raise BadInput("which account? add user NAME Account=NAME")
            if name in known and not further:
                continue
            wanted = [each for each in wanted if each[0].lower() != "adminlevel"]
            _refuse_level(asked.changes)
            tenant = settle(changes, tenants, kind, name, wanted)
            usual = tenant.message.account or (before or further)[0]
            everywhere = list(dict.fromkeys((*before, *further)))
            if usual not in everywhere:
                raise BadInput(f"DefaultAccount: {usual} is not one of {','.join(everywhere)}")
            tenant.set("account", usual)
            tenant.set("accounts", [each for each in everywhere if each != usual])
            _check_accounts(further, tenants)
            said += [_added(tenants, each, name) for each in further]
        elif name in known or (kind, name) == ("account", ROOT):
            continue
        else:
            tenant = settle(changes, tenants, kind, name, wanted)
            if kind == "account":
                _check_accounts(filter(None, [tenant.message.parent]), tenants)
                said.append(_added(tenants, name))
        changes.put(tenant)
        put_quota(changes, tenants, kind, name, wanted) if kind != "qos" else None
        new.append(name)
    if not new:
        return " Nothing new added.", None
    text = _lines(f" Adding {_TITLES[kind]}", new)
    return (f"{text}\n{_lines(' Associations', said)}" if said else text), changes


def _refuse_level(wanted: Sequence[Change]) -> None:
    for word, _, value in wanted:
        if word.lower() == "adminlevel" and value.lower() != "none":
            raise BadInput(f"{word}={value}: operators are named in the daemon's configuration")


def _check_accounts(names: Iterable[str], tenants: Tenants) -> None:
    for name in names:
        if name not in tenants.of("account"):
            raise not_known("account", name, tenants.of("account"))


def _modify(
    kind: str,
    names: Sequence[str],
    accounts: Sequence[str],
    wanted: Sequence[Change],
    tenants: Tenants,
) -> tuple[str, Changes | None]:
    if not wanted:
        raise BadInput("nothing to change: set NAME=VALUE")
    if kind == "user":
        _refuse_level(wanted)
        wanted = [each for each in wanted if each[0].lower() != "adminlevel"]
    changes, said = Changes(), []
    for name in names:
        tenant = settle(changes, tenants, kind, name, wanted)
        if kind == "user":
            user = tenants.of("user")[name]
            mine = accounts_of(user)
            if "account" in tenant.fields:
                usual = tenant.message.account
                if usual not in mine:
                    raise BadInput(f"DefaultAccount: {name} is not in {usual}; add user first")
                tenant.set("accounts", [each for each in mine if each != usual])
            said += [_changed(tenants, a, name) for a in mine if not accounts or a in accounts]
        elif kind == "account":
            said.append(_changed(tenants, name))
        else:
            said.append(name)
        changes.put(tenant)
        put_quota(changes, tenants, kind, name, wanted) if kind != "qos" else None
    if not changes:
        return " Nothing modified", None
    of = f"{kind} associations" if kind != "qos" else "qos"
    return _lines(f" Modified {of}...", said), changes


def _delete(
    kind: str, names: Sequence[str], accounts: Sequence[str], tenants: Tenants
) -> tuple[str, Changes | None]:
    changes, said = Changes(), []
    if kind == "account":  # those below others first
        deep = {row.account: row.depth for row in associations(tenants)}
        names = sorted(names, key=lambda name: -deep.get(name, 0))
    for name in names:
        if kind == "user":
            remove_user(changes, tenants, name, accounts)
        elif kind == "account":
            remove_account(changes, tenants, name, names)
        else:
            changes.remove("class", name)
        mine = accounts_of(tenants.of("user")[name]) if kind == "user" else []
        said += [_changed(tenants, each, name) for each in mine if each in accounts] or [name]
    if not changes:
        return " Nothing deleted", None
    what = "user associations" if accounts else {"qos": "QOS(s)"}.get(kind, f"{kind}s")
    return _lines(f" Deleting {what}...", said), changes
