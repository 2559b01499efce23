"""Who shares the cluster, and what each may have: users, accounts, VCs, partitions, quotas.

Plain frozen values: the configuration's and those that operators set while the daemon runs have the
same form. A name is known by its kind and itself; a quota's name is "user alice", "vc speech", ….
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "EVERYBODY",
    "FILE",
    "KINDS",
    "OPERATOR",
    "QUOTA_KINDS",
    "Account",
    "Partition",
    "Quota",
    "Tenant",
    "TenantKey",
    "User",
    "Vc",
    "key_of",
]

FILE = "file"  # set by the configuration
OPERATOR = "operator"  # set while the daemon ran
EVERYBODY = "*"  # a quota's user: each user who has none of their own
QUOTA_KINDS = ("user", "account", "vc")
TenantKey = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """Somebody whom operators have said something about; anybody else takes the defaults."""

    name: str
    account: str = ""  # of jobs that name none
    vc: str = ""  # of jobs that name none and whose account has none
    accounts: tuple[str, ...] = ()  # a member of these


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A group, project or purse; a tree, in which siblings share by weight."""

    name: str
    parent: str = ""
    weight: float = 1.0
    vc: str = ""  # where its jobs run; empty: where its parent's do
    users: tuple[str, ...] = ()  # members that the configuration names


@dataclass(frozen=True, slots=True, kw_only=True)
class Vc:
    """A virtual cluster: a number of GPUs anywhere, nodes of its own, or only a name."""

    name: str
    gpus: int | None = None
    nodes: str = ""  # a host list
    guaranteed: int | None = None  # as many as `gpus` when not said
    borrow: bool = False
    parent: str = ""  # the one that it is a part of; empty: of the cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """Some of the nodes under a name, with a limit on time."""

    name: str
    nodes: str = ""  # a host list; empty: all
    max_time_s: float | None = None
    default: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """The most that a user, an account with all below it, or a virtual cluster may have."""

    kind: str  # one of QUOTA_KINDS
    name: str
    gpus: int | None = None  # at once
    jobs: int | None = None  # live ones, waiting or running
    gpu_hours: float | None = None  # within the last `window_s`
    window_s: float | None = None


Tenant = User | Account | Vc | Partition | Quota

KINDS: dict[str, type] = {
    "user": User,
    "account": Account,
    "vc": Vc,
    "partition": Partition,
    "quota": Quota,
}
_KIND_OF = {kind: name for name, kind in KINDS.items()}


def key_of(tenant: Tenant) -> TenantKey:
    """By what a tenant is known."""
    if isinstance(tenant, Quota):
        return "quota", f"{tenant.kind} {tenant.name}"
    return _KIND_OF[type(tenant)], tenant.name
