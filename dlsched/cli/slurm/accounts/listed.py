"""What `sacctmgr list` shows: dlsched's tenants under Slurm's names.

An account with its limits and each user of it are an association; a priority class is a QOS; a
quota is the limits of an association.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dlsched.cli.slurm.accounts.tables import Field
from dlsched.cli.slurm.sacct_cells import clock
from dlsched.client.daemon_client import Client
from dlsched.rpc.v1 import control_pb2

ROOT = "root"  # the account above all, as Slurm names it


class Tenants:
    """All tenants of a cluster by kind and name."""

    def __init__(self, cluster: Client) -> None:
        self.cluster = cluster
        self._by_kind: dict[str, dict[str, Any]] = {}
        for tenant in cluster.tenants():
            kind = tenant.WhichOneof("tenant") or ""
            each = getattr(tenant, kind)
            key = f"{each.kind} {each.name}" if kind == "quota" else each.name
            self._by_kind.setdefault(kind, {})[key] = each

    def of(self, kind: str) -> Mapping[str, Any]:
        """The tenants of a kind, by name; a quota's is `user ann`."""
        return self._by_kind.get(kind, {})

    @functools.cached_property
    def name(self) -> str:
        """The cluster's name."""
        return str(self.cluster.status().cluster)

    def classes(self) -> Mapping[str, Any]:
        """The priority classes; without any all jobs are in one."""
        return self.of("class") or {"normal": control_pb2.TenantClass(name="normal")}

    def usual_class(self) -> str:
        """The class of jobs that name none."""
        default = [name for name, each in self.classes().items() if each.is_default]
        return default[0] if default else next(iter(self.classes()), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Association:
    """An account, or a user of it."""

    cluster: str
    account: str
    user: str = ""
    parent: str = ""
    depth: int = 0
    share: str = "1"
    limits: Any = None  # a quota
    qos: str = ""
    default_qos: str = ""


def accounts_of(user: Any) -> list[str]:
    """The accounts of a user, the usual one first."""
    return list(dict.fromkeys(filter(None, (user.account, *user.accounts))))


def associations(tenants: Tenants) -> Iterator[Association]:
    """All associations, accounts before their users and what is below them, as Slurm's tree."""
    accounts, users, quotas = (tenants.of(kind) for kind in ("account", "user", "quota"))

    def classes(account: str, user: str) -> str:
        allowed = []
        for name, each in tenants.classes().items():
            open_to_all = not each.users and not each.accounts
            if open_to_all or account in each.accounts or user in each.users:
                allowed.append(name)
        return ",".join(sorted(allowed))

    def of(account: str, parent: str, depth: int) -> Iterator[Association]:
        said = account in accounts and accounts[account].HasField("weight")
        weight = accounts[account].weight if said else 1
        above = Association(
            cluster=tenants.name,
            account=account,
            parent=parent,
            depth=depth,
            share=f"{weight:g}",
            limits=quotas.get(f"account {account}"),
            qos=classes(account, ""),
            default_qos=tenants.usual_class(),
        )
        yield above
        for name, user in users.items():
            if account in accounts_of(user):
                limits = quotas.get(f"user {name}", quotas.get("user *"))
                mine = classes(account, name)
                yield replace(above, user=name, parent="", share="1", limits=limits, qos=mine)
        for name, each in accounts.items():
            if (each.parent or ROOT) == account and name != account:
                yield from of(name, account, depth + 1)

    yield from of(ROOT, "", 0)


def limit(message: Any, name: str, form: str = "{:g}") -> str:
    """A limit as text; empty where there is none."""
    if message is None or not message.HasField(name):
        return ""
    return form.format(getattr(message, name))


def _minutes(row: Association) -> str:
    if row.limits is None or not row.limits.HasField("gpu_hours"):
        return ""
    return f"gres/gpu={row.limits.gpu_hours * 60:.0f}"


GPUS = "gres/gpu={}"
OF_ASSOCIATIONS: dict[str, Field[Association]] = {
    "Cluster": Field("Cluster", 10, lambda row: row.cluster),
    "Account": Field("Account", 10, lambda row: row.account),
    "User": Field("User", 10, lambda row: row.user),
    "Partition": Field("Partition", 10),
    "Fairshare": Field("Share", 9, lambda row: row.share),
    "Share": Field("Share", 9, lambda row: row.share),
    "Priority": Field("Priority", 10),
    "GrpJobs": Field("GrpJobs", 7),
    "GrpTRES": Field("GrpTRES", 13, lambda row: limit(row.limits, "gpus", GPUS)),
    "GrpSubmitJobs": Field("GrpSubmit", 9, lambda row: limit(row.limits, "jobs", "{}")),
    "GrpWall": Field("GrpWall", 11),
    "GrpTRESMins": Field("GrpTRESMins", 13, _minutes),
    "MaxJobs": Field("MaxJobs", 7),
    "MaxTRES": Field("MaxTRES", 13),
    "MaxTRESPerNode": Field("MaxTRESPerNode", 14),
    "MaxSubmitJobs": Field(
        "MaxSubmit", 9, lambda row: limit(row.limits, "jobs", "{}") if row.user else ""
    ),
    "MaxWall": Field("MaxWall", 11),
    "MaxTRESMins": Field("MaxTRESMins", 13),
    "QOS": Field("QOS", 20, lambda row: row.qos),
    "DefaultQOS": Field("Def QOS", 9, lambda row: row.default_qos),
    "GrpTRESRunMins": Field("GrpTRESRunMin", 13),
    "ParentName": Field("Par Name", 10, lambda row: row.parent),
    "ID": Field("ID", 6),
    "MaxNodes": Field("MaxNodes", 8),
    "MaxCPUs": Field("MaxCPUs", 8),
    "MaxCPUMins": Field("MaxCPUMins", 11),
    "GrpNodes": Field("GrpNodes", 8),
    "GrpCPUs": Field("GrpCPUs", 8),
    "GrpMem": Field("GrpMem", 7),
    "GrpCPUMins": Field("GrpCPUMins", 11),
}


@dataclass(frozen=True, slots=True)
class Entry:
    """A user or account; with an association of it where these are asked for."""

    tenant: Any
    association: Association | None = None


def _lent(name: str, field: Field[Association]) -> Field[Entry]:
    """A column of associations, for users and accounts."""

    def text(row: Entry) -> str:
        return "" if row.association is None else field.text(row.association)

    return Field(field.title, field.width, text)


_LENT = {name: _lent(name, field) for name, field in OF_ASSOCIATIONS.items()}
OF_USERS: dict[str, Field[Entry]] = {
    **{name: field for name, field in _LENT.items() if name not in ("User",)},
    "User": Field("User", 10, lambda row: str(row.tenant.name)),
    "Name": Field("User", 10, lambda row: str(row.tenant.name)),
    "DefaultAccount": Field("Def Acct", 10, lambda row: str(row.tenant.account)),
    "AdminLevel": Field("Admin", 9, lambda row: "None"),
    "Coordinators": Field("Coord Accounts", 20),
    "DefaultWCKey": Field("Def WCKey", 10),
}
OF_ACCOUNTS: dict[str, Field[Entry]] = {
    **{name: field for name, field in _LENT.items() if name not in ("Account",)},
    "Account": Field("Account", 10, lambda row: str(row.tenant.name)),
    "Name": Field("Account", 10, lambda row: str(row.tenant.name)),
    "Description": Field("Descr", 20, lambda row: str(row.tenant.name)),
    "Organization": Field("Org", 20, lambda row: str(row.tenant.parent or row.tenant.name)),
    "Coordinators": Field("Coordinators", 20),
}


def entries(kind: str, tenants: Tenants) -> list[Any]:
    """The users, or the accounts with the one above all."""
    top = [control_pb2.TenantAccount(name=ROOT)] if kind == "account" else []
    return [*top, *tenants.of(kind).values()]


def with_associations(
    kind: str, tenant: Any, found: Sequence[Association] | None
) -> Iterator[Entry]:
    """A user or account: alone, or once for each of its associations."""
    if found is None:
        yield Entry(tenant)
        return
    for row in found:
        if tenant.name == (row.user if kind == "user" else row.account):
            yield Entry(tenant, row)


def indented(row: Association) -> Association:
    """The same with its account further to the right the deeper it is in the tree."""
    return replace(row, account=" " * (row.depth + bool(row.user)) + row.account)


OF_QOS: dict[str, Field[Any]] = {
    "Name": Field("Name", 10, lambda row: str(row.name)),
    "Priority": Field("Priority", 10, lambda row: f"{row.priority:g}"),
    "GraceTime": Field("GraceTime", 10, lambda row: clock(row.grace_s)),
    "Preempt": Field("Preempt", 10, lambda row: ",".join(row.preempts)),
    "PreemptExemptTime": Field("PreemptExemptTime", 19),
    "PreemptMode": Field("PreemptMode", 11, lambda row: "cluster"),
    "Flags": Field("Flags", 40),
    "UsageThreshold": Field("UsageThres", 10),
    "UsageFactor": Field("UsageFactor", 11, lambda row: "1.000000"),
    "GrpTRES": Field("GrpTRES", 13, lambda row: limit(row, "gpus", GPUS)),
    "GrpTRESMins": Field("GrpTRESMins", 13),
    "GrpTRESRunMins": Field("GrpTRESRunMin", 13),
    "GrpJobs": Field("GrpJobs", 7),
    "GrpSubmitJobs": Field("GrpSubmit", 9, lambda row: limit(row, "jobs", "{}")),
    "GrpWall": Field("GrpWall", 11),
    "MaxTRES": Field("MaxTRES", 13),
    "MaxTRESPerNode": Field("MaxTRESPerNode", 14),
    "MaxTRESMins": Field("MaxTRESMins", 13),
    "MaxWall": Field(
        "MaxWall", 11, lambda row: clock(row.max_time_s) if row.HasField("max_time_s") else ""
    ),
    "MaxTRESPerUser": Field("MaxTRESPU", 13, lambda row: limit(row, "gpus_per_user", GPUS)),
    "MaxJobsPerUser": Field("MaxJobsPU", 9),
    "MaxSubmitJobsPerUser": Field("MaxSubmitPU", 11, lambda row: limit(row, "jobs_per_user", "{}")),
    "MaxTRESPerAccount": Field("MaxTRESPA", 13),
    "MaxJobsPerAccount": Field("MaxJobsPA", 9),
    "MaxSubmitJobsPerAccount": Field("MaxSubmitPA", 11),
    "MinTRES": Field("MinTRES", 13),
    "Description": Field("Descr", 20, lambda row: str(row.name)),
    "ID": Field("ID", 6),
}
OF_QOS |= {
    "MaxTRESPU": OF_QOS["MaxTRESPerUser"],
    "MaxJobsPU": OF_QOS["MaxJobsPerUser"],
    "MaxSubmitPU": OF_QOS["MaxSubmitJobsPerUser"],
}
_ROOT_ASSOCIATION = (
    *("Fairshare", "GrpJobs", "GrpTRES", "GrpSubmitJobs", "MaxJobs", "MaxTRES"),
    *("MaxSubmitJobs", "MaxWall", "QOS", "DefaultQOS"),
)
OF_CLUSTERS: dict[str, Field[Association]] = {
    "Cluster": Field("Cluster", 10, lambda row: row.cluster),
    "Name": Field("Cluster", 10, lambda row: row.cluster),
    "ControlHost": Field("ControlHost", 15),
    "ControlPort": Field("ControlPort", 12),
    "RPC": Field("RPC", 5),
    **{name: OF_ASSOCIATIONS[name] for name in _ROOT_ASSOCIATION},
}
TRES = (("cpu", "", 1), ("mem", "", 2), ("node", "", 4), ("billing", "", 5), ("gres", "gpu", 1001))
OF_TRES: dict[str, Field[tuple[str, str, int]]] = {
    "Type": Field("Type", 8, lambda row: row[0]),
    "Name": Field("Name", 15, lambda row: row[1]),
    "ID": Field("ID", 6, lambda row: str(row[2])),
}

_SHARED = "MaxSubmitJobs,MaxWall,MaxCPUMins,QOS,DefaultQOS"
USUAL = {
    "user": "User,DefaultAccount,AdminLevel",
    "account": "Account,Description,Organization",
    "association": "Cluster,Account,User,Partition,Share,Priority,GrpJobs,GrpTRES,GrpSubmitJobs,"
    "GrpWall,GrpTRESMins,MaxJobs,MaxTRES,MaxTRESPerNode,MaxSubmitJobs,MaxWall,MaxTRESMins,QOS,"
    "DefaultQOS,GrpTRESRunMins",
    "qos": ",".join(list(OF_QOS)[:26]),
    "cluster": "Cluster,ControlHost,ControlPort,RPC," + ",".join(_ROOT_ASSOCIATION),
    "tres": "Type,Name,ID",
}
WITH_ASSOCIATIONS = {
    "user": f"{USUAL['user']},Cluster,Account,Partition,Share,Priority,MaxJobs,MaxNodes,MaxCPUs,"
    + _SHARED,
    "account": f"{USUAL['account']},Cluster,ParentName,User,Share,Priority,GrpJobs,GrpNodes,"
    f"GrpCPUs,GrpMem,GrpSubmitJobs,GrpWall,GrpCPUMins,MaxJobs,MaxNodes,MaxCPUs,{_SHARED}",
}
