"""`sshare`: shares of accounts and users, what they have used, and their fair-share factors."""

from __future__ import annotations

from collections.abc import Sequence

from dlsched.cli.slurm.arguments import Arguments, joined, own_name
from dlsched.cli.slurm.formats import Cell, by_names, lines, of_each
from dlsched.client.daemon_client import Client
from dlsched.client.records import Share

USUAL = "Account,User,RawShares,NormShares,RawUsage,EffectvUsage,FairShare"
LONG = "Account,User,RawShares,NormShares,RawUsage,NormUsage,EffectvUsage,FairShare"


def _group(row: Share) -> str:
    name = row.group if row.kind == "user" else row.name
    return " " * row.depth + (name or "root")


CELLS: dict[str, Cell[Share]] = {
    "Account": Cell("Account", _group),
    "User": Cell("User", lambda row: row.name if row.kind == "user" else ""),
    "RawShares": Cell("RawShares", lambda row: f"{row.weight:g}"),
    "NormShares": Cell("NormShares", lambda row: f"{row.share:.6f}"),
    "RawUsage": Cell("RawUsage", lambda row: f"{row.used_gpu_s:.0f}"),
    "NormUsage": Cell("NormUsage", lambda row: f"{row.usage:.6f}"),
    "EffectvUsage": Cell("EffectvUsage", lambda row: f"{row.effective:.6f}"),
    "FairShare": Cell("FairShare", lambda row: f"{row.factor:.6f}"),
}


def _parser() -> Arguments:
    found = Arguments("sshare", "Shares, decayed usage in GPU-seconds, and fair-share factors.")
    option = found.option
    option("-A", "--accounts", help="these accounts and their users")
    option("-u", "--users", help="these users")
    option("-a", "--all", flag=True, help="all users that you may see; the default")
    option("-l", "--long", flag=True, help="more columns")
    option("-U", "--Users", flag=True, help="users alone: you, or those of -u, or all with -a")
    option("-h", "-n", "--noheader", flag=True, help="without the titles")
    option("-P", "--parsable2", flag=True, help="cells are joined by |")
    option("-p", "--parsable", flag=True, help="cells end with |")
    option("-o", "--format", help=f"names: {LONG}")
    return found


def sshare(words: Sequence[str]) -> int:
    """List the tree."""
    given = _parser().read(words)
    names = ",".join(given.format) if given.format else LONG if given.long else USUAL
    parts = by_names(names, CELLS, "--format")
    accounts, users = joined(given.accounts), joined(given.users)
    with Client() as cluster:
        found = cluster.shares().rows
    if accounts:
        found = [
            row for row in found if (row.group if row.kind == "user" else row.name) in accounts
        ]
    if users:
        found = [row for row in found if row.kind != "user" or row.name in users]
    if given.Users:
        mine = () if given.all or users else (own_name(),)
        found = [row for row in found if row.kind == "user" and (not mine or row.name in mine)]
    separator = "|" if given.parsable or given.parsable2 else None
    for line in lines(parts, *of_each(found), header=not given.noheader, separator=separator):
        print(f"{line}|" if given.parsable else line)
    return 0
