"""Tenants of the cluster and their limits: users, accounts, VCs, partitions, classes, quotas.

Frozen values, the same for the configuration and for changes of operators at run time. The key of a
tenant is its kind and name; the name of a quota is "user alice", "vc speech", ….
"""

from __future__ import annotations

from dataclasses import dataclass

FILE = "file"  # set by the configuration
OPERATOR = "operator"  # set while the daemon ran
QUOTA_KINDS = ("user", "account", "vc")
TenantKey = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """A user with settings of operators; other users have the defaults."""

    name: str
    account: str = ""  # of jobs without one
    vc: str = ""  # of jobs without one, and without one of their account
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
    guaranteed: int | None = None  # None: as many as `gpus`
    borrow: bool = False
    parent: str = ""  # the virtual cluster that contains it; empty: the cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """Some of the nodes under a name, with rules for the jobs there."""

    name: str
    nodes: str = ""  # a host list; empty: all
    max_time_s: float | None = None
    default: bool = False
    default_time_s: float | None = None  # None: `max_time_s`
    users: tuple[str, ...] = ()  # which jobs may be in it; with the next two empty: all
    accounts: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()  # of Unix
    cpus_per_gpu: int | None = None  # of jobs that do not say
    memory_gb_per_gpu: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorityClass:
    """A priority class of jobs: its part of the order, its limits, what it may preempt."""

    name: str
    priority: float = 0.0  # larger is earlier
    preempts: tuple[str, ...] = ()  # classes whose running jobs give way to its jobs
    grace_s: float | None = None  # of its jobs when they give way; None: what each job says
    max_time_s: float | None = None  # the longest time limit
    gpus: int | None = None  # of all its jobs at once
    gpus_per_user: int | None = None
    jobs: int | None = None  # live ones
    jobs_per_user: int | None = None
    users: tuple[str, ...] = ()  # which users may use it; with `accounts` empty: all
    accounts: tuple[str, ...] = ()  # likewise the jobs of these accounts
    is_default: bool = False  # of jobs that name none


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """Nodes that are kept for some jobs, or for maintenance, for a time."""

    name: str
    nodes: str = ""  # a host list
    start_at: float = 0.0  # seconds since the epoch
    end_at: float = 0.0
    users: tuple[str, ...] = ()  # which may use it; with `accounts` empty: all
    accounts: tuple[str, ...] = ()
    maintenance: bool = False  # for no job at all
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """The most that a user, an account with all below it, or a virtual cluster may have."""

    kind: str  # one of QUOTA_KINDS
    name: str
    gpus: int | None = None  # at once
    jobs: int | None = None  # live ones, waiting or running
    gpu_hours: float | None = None  # within the last `window_s`
    window_s: float | None = None


Tenant = User | Account | Vc | Partition | PriorityClass | Reservation | Quota

KINDS: dict[str, type] = {
    "user": User,
    "account": Account,
    "vc": Vc,
    "partition": Partition,
    "class": PriorityClass,
    "reservation": Reservation,
    "quota": Quota,
}
_KIND_OF = {kind: name for name, kind in KINDS.items()}


def key_of(tenant: Tenant) -> TenantKey:
    """The key of a tenant: its kind and name."""
    if isinstance(tenant, Quota):
        return "quota", f"{tenant.kind} {tenant.name}"
    return _KIND_OF[type(tenant)], tenant.name
