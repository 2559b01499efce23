"""`sreport`: what users and accounts have used of the cluster in a period."""

from __future__ import annotations

import os
import pwd
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from dlsched.cli.slurm.accounts.listed import ROOT, Tenants
from dlsched.cli.slurm.accounts.request import Request, kind_of, read_request
from dlsched.cli.slurm.accounts.tables import Field, add_options, chosen, table
from dlsched.cli.slurm.accounts.used import Period, Resource, Use, resource, uses
from dlsched.cli.slurm.arguments import Arguments
from dlsched.cli.slurm.formats import moment
from dlsched.cli.slurm.moments import past_moment
from dlsched.client.daemon_client import Client
from dlsched.core.errors import BadInput, not_known
from dlsched.core.sums import ordered_sum

_RULE = "-" * 80
_UNITS = {"seconds": 1, "minutes": 60, "hours": 3600}
_TIMES = ("seconds", "minutes", "hours", "percent", "secper", "minper", "hourper")
_SIZES = "50,250,500,1000"
_REPORTS = {
    "cluster": {
        "utilization": "utilization",
        "userutilizationbyaccount": "by_user",
        "accountutilizationbyuser": "by_account",
    },
    "user": {"topusage": "top"},
    "job": {"sizesbyaccount": "sizes"},
}
_CONDITIONS = {
    **dict.fromkeys(("account", "accounts", "acct"), "account"),
    **dict.fromkeys(("user", "users"), "user"),
    **dict.fromkeys(("cluster", "clusters"), "cluster"),
    "start": "start",
    "end": "end",
    "format": "format",
}
_OWN = {"top": ("topcount",), "sizes": ("grouping",)}
_FLAGS = {"top": ("group",), "sizes": ("printjobcount", "flatview"), "by_account": ("tree",)}


@dataclass(frozen=True, slots=True)
class _Row:
    """What a user, an account or the cluster has used; `total` is the whole cluster's time."""

    cluster: str = ""
    account: str = ""
    login: str = ""
    used: float = 0.0
    total: float = 0.0
    count: int = 0


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a report is about, and how it shows time."""

    cluster: Client
    tenants: Tenants
    request: Request
    period: Period
    counted: Resource
    time_form: str

    def uses(self) -> Iterator[Use]:
        """What the jobs that are asked for have used."""
        return uses(
            self.cluster,
            self.period,
            self.counted,
            users=self.request.names("user"),
            accounts=self.request.names("account"),
        )

    def count(self) -> int:
        """How much of the resource the cluster has now."""
        return sum(map(self.counted.of_node, self.cluster.nodes()))

    def time(self, seconds: float, whole: float) -> str:
        """A time in the unit that is asked for, `-t`."""
        share = f"{100 * seconds / whole:.2f}%" if whole else "0.00%"
        if self.time_form == "percent":
            return share
        unit = next(unit for unit in _UNITS if unit[:3] == self.time_form[:3])
        amount = f"{seconds / _UNITS[unit]:.0f}"
        return f"{amount}({share})" if self.time_form.endswith("per") else amount

    @property
    def unit(self) -> str:
        """Of the heading."""
        words = {"percent": "Percentage of Total"}
        for unit in _UNITS:
            words[unit] = unit.title()
            words[f"{unit[:3] if unit != 'hours' else 'hour'}per"] = (
                f"{unit.title()}/Percentage of Total"
            )
        return words[self.time_form]


def sreport(words: Sequence[str]) -> int:
    """Print one report."""
    parser = Arguments("sreport", "cluster|user|job REPORT [start=TIME] [end=TIME] [NAME=VALUE…]")
    add_options(parser)
    parser.option("-t", help=f"unit of time: {', '.join(_TIMES)}")
    parser.option("-T", "--tres", help="what is counted: cpu, gres/gpu, node, billing")
    for flags in (("-a", "--all_clusters"), ("-Q", "--quiet"), ("--local",), ("--federation",)):
        parser.option(*flags, flag=True)
    given, rest = parser.read_around(words)
    if len(rest) < 2:
        every = ", ".join(f"{kind} {name}" for kind, of in _REPORTS.items() for name in of)
        raise BadInput(f"which report? {every}")
    kind = kind_of(rest[0], {name: name for name in _REPORTS}, "report")
    report = kind_of(rest[1], _REPORTS[kind], f"{kind}:")
    conditions = _CONDITIONS | {name: name for name in _OWN.get(report, ())}
    request = read_request(rest[2:], conditions, (*_FLAGS.get(report, ()), "all_clusters"))
    period = _period(request)
    counted = resource((given.tres or [os.environ.get("SREPORT_TRES", "cpu")])[-1])
    with Client() as cluster:
        asked = _Asked(cluster, Tenants(cluster), request, period, counted, _time_form(given.t))
        names = request.names("cluster")
        if names and asked.tenants.name not in names:
            raise not_known("cluster", names[0], [asked.tenants.name])
        _PRINTED[report](asked, given)
    return 0


def _time_form(values: Sequence[str] | None) -> str:
    word = (values or ["minutes"])[-1].lower()
    found = [name for name in _TIMES if name == word] or [
        name for name in _TIMES if word and name.startswith(word)
    ]
    if not found:
        raise not_known("-t", word, _TIMES)
    return found[0]


def _period(request: Request) -> Period:
    """Yesterday, unless the line says another; a period ends now at the latest."""
    today = datetime.now().replace(hour=0, minute=0, second=0, microsecond=0)
    start = (today - timedelta(days=1)).timestamp()
    end = today.timestamp()
    if "start" in request.where:
        start = past_moment("start", request.where["start"])
    if "end" in request.where:
        end = past_moment("end", request.where["end"])
    end = min(end, time.time())
    if start >= end:
        raise BadInput(f"start={moment(start)} is not before end={moment(end)}")
    return Period(start, end)


def _print(
    asked: _Asked,
    given: Any,
    title: str,
    fields: dict[str, Field[_Row]],
    usual: str,
    rows: Sequence[_Row],
    *,
    with_length: bool = True,
) -> None:
    if not given.noheader:
        length = f" ({asked.period.length_s:.0f} secs)" if with_length else ""
        end = moment(asked.period.end - 1)
        print(f"{_RULE}\n{title} {moment(asked.period.start)} - {end}{length}")
        told = f"Usage reported in {asked.counted.title} {asked.unit}"
        print(f"{told if title != 'Job Sizes' else f'Time reported in {asked.unit}'}\n{_RULE}")
    names = asked.request.where.get("format", usual)
    for line in table(chosen(names, fields), rows, given):
        print(line)


def _proper(login: str) -> str:
    try:
        return pwd.getpwnam(login).pw_gecos.partition(",")[0]
    except KeyError:
        return ""


def _used_fields(asked: _Asked, width: int) -> dict[str, Field[_Row]]:
    return {
        "Cluster": Field("Cluster", 9, lambda row: row.cluster),
        "Accounts": Field("Account", 15, lambda row: row.account),
        "Login": Field("Login", 9, lambda row: row.login),
        "Proper": Field("Proper Name", 15, lambda row: _proper(row.login.strip())),
        "TresName": Field("TRES Name", 14, lambda row: asked.counted.name),
        "TresCount": Field("TRES Count", 10, lambda row: str(asked.count())),
        "Used": Field("Used", width, lambda row: asked.time(row.used, row.total)),
    }


def _with_name(usual: str, given: Any) -> str:
    """With `-T` the resource is named in front of what is used."""
    return usual.replace("Used", "TresName,Used") if given.tres else usual


def _by_pair(asked: _Asked, *, grouped: bool = False) -> list[_Row]:
    """Each user in each account, the largest use first."""
    found: dict[tuple[str, str], float] = {}
    accounts: dict[str, set[str]] = {}
    for use in asked.uses():
        pair = (use.user, "" if grouped else use.account)
        found[pair] = found.get(pair, 0.0) + use.seconds
        accounts.setdefault(use.user, set()).add(use.account)
    total = asked.count() * asked.period.length_s
    name = asked.tenants.name
    rows = [
        _Row(name, ",".join(sorted(accounts[user])) if grouped else account, user, used, total)
        for (user, account), used in found.items()
    ]
    return sorted(rows, key=lambda row: (-row.used, row.login, row.account))


def _top(asked: _Asked, given: Any) -> None:
    text = asked.request.where.get("topcount", "10")
    if not text.isdecimal():
        raise BadInput(f"TopCount: {text!r} is not a whole number")
    rows = _by_pair(asked, grouped="group" in asked.request.flags)[: int(text)]
    usual = _with_name("Cluster,Login,Proper,Accounts,Used", given)
    _print(asked, given, f"Top {text} Users", _used_fields(asked, 9), usual, rows)


def _by_user(asked: _Asked, given: Any) -> None:
    usual = _with_name("Cluster,Login,Proper,Accounts,Used", given)
    title = "Cluster/User/Account Utilization"
    _print(asked, given, title, _used_fields(asked, 8), usual, _by_pair(asked))


def _by_account(asked: _Asked, given: Any) -> None:
    """Accounts with all below them, each with its users; what has no account is the root's."""
    pairs = _by_pair(asked)
    known = asked.tenants.of("account")
    parents = {name: each.parent or ROOT for name, each in known.items()}
    parents |= {row.account: ROOT for row in pairs if row.account not in (*parents, "", ROOT)}

    def below(account: str, depth: int) -> list[_Row]:
        mine = [row for row in pairs if (row.account or ROOT) == account]
        children = [below(name, depth + 1) for name, up in parents.items() if up == account]
        used = ordered_sum(
            [*(row.used for row in mine), *(each[0].used for each in children if each)]
        )
        if not mine and not any(children):
            return []
        shown = " " * depth * ("tree" in asked.request.flags) + account
        total = pairs[0].total
        rows = [_Row(asked.tenants.name, shown, "", used, total)]
        rows += [_Row(row.cluster, shown, row.login, row.used, total) for row in mine]
        return [*rows, *(row for each in children for row in each)]

    usual = _with_name("Cluster,Accounts,Login,Proper,Used", given)
    title = "Cluster/Account/User Utilization"
    _print(asked, given, title, _used_fields(asked, 8), usual, below(ROOT, 0))


def _utilization(asked: _Asked, given: Any) -> None:
    """Of the nodes that there are now; for how long nodes were down is not counted."""
    total = asked.count() * asked.period.length_s
    used = ordered_sum(use.seconds for use in asked.uses())
    row = _Row(asked.tenants.name, "", "", used, total)

    def of(title: str, seconds: Callable[[_Row], float]) -> Field[_Row]:
        return Field(title, 12, lambda row: asked.time(seconds(row), row.total))

    fields: dict[str, Field[_Row]] = {
        "Cluster": Field("Cluster", 9, lambda row: row.cluster),
        "TresName": Field("TRES Name", 14, lambda row: asked.counted.name),
        "Allocated": of("Allocate", lambda row: row.used),
        "Down": Field("Down", 12),
        "PlannedDown": Field("PLND Dow", 12),
        "Idle": of("Idle", lambda row: max(row.total - row.used, 0.0)),
        "Planned": Field("Planned", 12),
        "Reported": of("Reported", lambda row: row.total),
        "TresCount": Field("TRES Count", 10, lambda row: str(asked.count())),
    }
    usual = f"Cluster,{'TresName,' if given.tres else ''}Allocated,Down,PlannedDown,Idle,Planned,"
    title = "Cluster Utilization"
    _print(asked, given, title, fields, f"{usual}Reported", [row], with_length=False)


def _sizes(asked: _Asked, given: Any) -> None:
    """What jobs of each size have used, by account."""
    text = asked.request.where.get("grouping", _SIZES)
    if not all(word.isdecimal() for word in text.split(",")):
        raise BadInput(f"grouping: {text!r} is not like {_SIZES}")
    edges = [0, *sorted({int(word) for word in text.split(",")})]
    used: dict[str, dict[int, float]] = {}
    counts: dict[str, Counter[int]] = {}
    for use in asked.uses():
        place = max(k for k, edge in enumerate(edges) if use.size >= edge)
        mine = used.setdefault(use.account, {})
        mine[place] = mine.get(place, 0.0) + use.seconds
        counts.setdefault(use.account, Counter())[place] += 1
    sums = {account: ordered_sum(each.values()) for account, each in used.items()}
    everything = ordered_sum(sums.values())
    unit = {"cpu": "CPUs"}.get(asked.counted.name, asked.counted.name)
    name = asked.tenants.name
    count = "printjobcount" in asked.request.flags

    def cell(place: int) -> Callable[[_Row], str]:
        def text(row: _Row) -> str:
            if count:
                return str(counts[row.account][place])
            return asked.time(used[row.account].get(place, 0.0), everything)

        return text

    def title(place: int) -> str:
        if place + 1 == len(edges):
            return f">= {edges[place]} {unit}"
        return f"{edges[place]}-{edges[place + 1] - 1} {unit}"

    places = range(len(edges))
    fields: dict[str, Field[_Row]] = {
        "Cluster": Field("Cluster", 9, lambda row: row.cluster),
        "Account": Field("Account", 9, lambda row: row.account),
        **{f"size_{'x' * k}": Field(title(k), 13, cell(k)) for k in places},
        "share": Field(
            "% of cluster",
            12,
            lambda row: f"{100 * row.used / everything if everything else 0:.2f}%",
        ),
    }
    rows = [_Row(name, account, used=sums[account]) for account in sorted(sums)]
    _print(asked, given, "Job Sizes", fields, ",".join(fields), rows)


_PRINTED: dict[str, Callable[[_Asked, Any], None]] = {
    "utilization": _utilization,
    "by_user": _by_user,
    "by_account": _by_account,
    "top": _top,
    "sizes": _sizes,
}
