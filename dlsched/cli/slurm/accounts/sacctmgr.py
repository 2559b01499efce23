"""`sacctmgr`: users, accounts, associations and QOS, listed and changed.

They are dlsched's users, accounts, quotas and priority classes. What is printed, asked and returned
is as in Slurm; what has no counterpart is refused by its name.
"""

from __future__ import annotations

import select
import sys
from collections.abc import Sequence
from typing import Any

from dlsched.cli.slurm.accounts import listed
from dlsched.cli.slurm.accounts.request import Request, kind_of, read_request
from dlsched.cli.slurm.accounts.tables import add_options, chosen, table
from dlsched.cli.slurm.arguments import Arguments
from dlsched.client.daemon_client import Client
from dlsched.core.errors import BadInput, DlschedError

ANSWER_S = 30.0
_LIST = {
    "user": "user",
    "account": "account",
    "acct": "account",
    "association": "association",
    "qos": "qos",
    "cluster": "cluster",
    "tres": "tres",
}
_CHANGED = {"user": "user", "account": "account", "acct": "account", "qos": "qos"}
_VERBS = {
    "list": "list",
    "show": "list",
    "add": "add",
    "create": "add",
    "modify": "modify",
    "delete": "delete",
    "remove": "delete",
}
_OF_ASSOCIATIONS = {
    **dict.fromkeys(("user", "users"), "user"),
    **dict.fromkeys(("account", "accounts", "acct"), "account"),
    **dict.fromkeys(("cluster", "clusters"), "cluster"),
    **dict.fromkeys(("format", "fields"), "format"),
}
_NAMES = ("name", "names")
_CONDITIONS = {
    "user": _OF_ASSOCIATIONS | dict.fromkeys(_NAMES, "user"),
    "account": _OF_ASSOCIATIONS | dict.fromkeys(_NAMES, "account"),
    "association": _OF_ASSOCIATIONS,
    "qos": {**dict.fromkeys((*_NAMES, "qos"), "qos"), "format": "format", "fields": "format"},
    "cluster": {
        **dict.fromkeys((*_NAMES, "cluster", "clusters"), "cluster"),
        "format": "format",
        "fields": "format",
    },
    "tres": {"type": "type", "name": "name", "format": "format", "fields": "format"},
}
_BARE = {"tres": "type", "association": ""}
_FLAGS = (
    *("withassoc", "withassocs", "withcoord", "withdeleted", "wolimits", "wopinfo"),
    *("woplimits", "onlydefaults", "tree"),
)


def sacctmgr(words: Sequence[str]) -> int:
    """List or change users, accounts, associations and QOS."""
    parser = Arguments("sacctmgr", "VERB KIND [NAME…] [where NAME=VALUE…] [set NAME=VALUE…]")
    add_options(parser)
    parser.option("-i", "--immediate", flag=True, help="change without a question")
    parser.option("-s", "--associations", flag=True, help="users and accounts with associations")
    parser.option("-Q", "--quiet", flag=True, help="without what was done")
    parser.option("-r", "--readonly", flag=True, help="change nothing")
    given, rest = parser.read_around(words)
    if len(rest) < 2:
        raise BadInput(f"which? {' | '.join(_VERBS)}, then one of: {', '.join(_LIST)}")
    verb = _VERBS.get(rest[0].lower())
    if verb is None:
        raise BadInput(f"{rest[0]!r}: not supported; known: {', '.join(_VERBS)}")
    kind = kind_of(rest[1], _LIST if verb == "list" else _CHANGED, f"{rest[0]}:")
    if verb != "list" and given.readonly:
        raise DlschedError("-r: nothing is changed")
    bare = _BARE.get(kind, kind)
    asked = read_request(
        rest[2:], _CONDITIONS[kind], _FLAGS, sets=verb in ("add", "modify"), bare=bare
    )
    with Client() as cluster:
        tenants = listed.Tenants(cluster)
        if verb == "list":
            return _list(kind, asked, tenants, given)
        from dlsched.cli.slurm.accounts.changing import change  # noqa: PLC0415

        done, changes = change(verb, kind, asked, tenants)
        if changes is None:
            print(done)
            return 1
        if changes.noted and not given.quiet:
            print(f"sacctmgr: {', '.join(sorted(changes.noted))}: not kept", file=sys.stderr)
        if not given.quiet:
            print(done)
        if not given.immediate and not _agreed():
            print(" Changes Discarded")
            return 0
        changes.make(cluster)
    return 0


def _agreed() -> bool:
    """Ask whether to go on; no answer in 30 seconds is no."""
    print("Would you like to commit changes? (You have 30 seconds to decide)\n(N/y): ", end="")
    sys.stdout.flush()
    ready, _, _ = select.select([sys.stdin], [], [], ANSWER_S)
    return bool(ready) and sys.stdin.readline().strip().lower() in ("y", "yes")


def _list(kind: str, asked: Request, tenants: listed.Tenants, given: Any) -> int:
    fields, rows = _rows(kind, asked, tenants, with_associations=given.associations)
    joined = bool(asked.flags & {"withassoc", "withassocs"}) or given.associations
    usual = listed.WITH_ASSOCIATIONS if joined else listed.USUAL
    usual_text = usual.get(kind, listed.USUAL[kind])
    if "wolimits" in asked.flags and kind == "association":
        usual_text = "Cluster,Account,User,Partition"
    names = asked.where.get("format") or usual_text
    for line in table(chosen(names, fields), rows, given):
        print(line)
    return 0


def _rows(
    kind: str, asked: Request, tenants: listed.Tenants, *, with_associations: bool
) -> tuple[dict[str, Any], list[Any]]:
    """The columns that there are, and the rows that are asked for."""
    users, accounts = asked.names("user"), asked.names("account")
    clusters = asked.names("cluster")
    if kind == "tres":
        types = asked.names("type")
        return listed.OF_TRES, [row for row in listed.TRES if not types or row[0] in types]
    if kind == "qos":
        named = asked.names("qos")
        rows = [each for name, each in tenants.classes().items() if not named or name in named]
        return listed.OF_QOS, rows
    found = [
        row
        for row in listed.associations(tenants)
        if (not users or row.user in users)
        and (not accounts or row.account in accounts)
        and (not clusters or row.cluster in clusters)
    ]
    if kind == "cluster":
        return listed.OF_CLUSTERS, [row for row in found if not row.depth and not row.user][:1]
    if kind == "association":
        if "tree" in asked.flags:
            found = [listed.indented(row) for row in found]
        if "onlydefaults" in asked.flags:
            usual = {name: user.account for name, user in tenants.of("user").items()}
            found = [row for row in found if usual.get(row.user) == row.account]
        return listed.OF_ASSOCIATIONS, found
    joined = with_associations or asked.flags & {"withassoc", "withassocs"}
    return (listed.OF_USERS if kind == "user" else listed.OF_ACCOUNTS), [
        entry
        for each in listed.entries(kind, tenants)
        if not (names := users if kind == "user" else accounts) or each.name in names
        for entry in listed.with_associations(kind, each, found if joined else None)
    ]
