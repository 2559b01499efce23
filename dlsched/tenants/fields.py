"""The tables of tenants: users, accounts, VCs, partitions, priority classes, reservations, quotas.

A class is the table of its kind; each of its fields says all about itself in its row: option, help,
bounds, the key in files, what it names of other tenants, how it is stored. Options, requests,
checks, sections of the daemon's file, columns of the database, lists and JSON are derived. A new
field is a line here, one of the message in proto/dlsched/v1/control.proto, and a migration.

The values are frozen, the same for the configuration and for changes of operators at run time. The
key of a tenant is its kind and name; the name of a quota is "user alice", "vc speech", ….
"""

from __future__ import annotations

from dataclasses import dataclass

from dlsched.tenants.field import row

FILE = "file"  # set by the configuration
OPERATOR = "operator"  # set while the daemon ran
QUOTA_KINDS = ("user", "account", "vc")
NAME = r"[A-Za-z0-9_.@-]{1,64}"  # of a tenant
TenantKey = tuple[str, str]

MOST_GPUS = 1_000_000
MOST_JOBS = 1_000_000_000
LONGEST_S = 10 * 366 * 86400.0
LATEST = 1e11  # seconds since the epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """A user with settings of operators; other users have the defaults."""

    name: str
    account: str = row(
        "text", "--account -A NAME", "Account of jobs that name none.", names="account"
    )
    vc: str = row("text", "--vc NAME", "Virtual cluster of the jobs.", names="vc")
    accounts: tuple[str, ...] = row(
        "names", "--accounts NAME,…", "Further accounts of the user.", names="account", members=True
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A group, project or purse; a tree, in which siblings share by weight."""

    name: str
    parent: str = row("text", "--parent NAME", "The one above it.", names="account", label="parent")
    weight: float = row(
        "number", "--weight X", "Share among its siblings. [default: 1]", default=1.0
    )
    vc: str = row("text", "--vc NAME", "Virtual cluster of the jobs.", names="vc", live_only=True)
    users: tuple[str, ...] = row("names", settable=False, members=True, live_only=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Vc:
    """A virtual cluster: a number of GPUs anywhere, nodes of its own, or only a name."""

    name: str
    gpus: int | None = row("whole", "--gpus -G N", "GPUs at the same time.", most=MOST_GPUS)
    nodes: str = row("hosts", "--nodes -w HOSTS", "Nodes of its own: n[1-4].")
    guaranteed: int | None = row(
        "whole", "--guaranteed N", "GPUs guaranteed. [default: all]", most=MOST_GPUS
    )
    borrow: bool = row("flag", "--borrow/--no-borrow", "May use GPUs that others leave idle.")
    parent: str = row(
        "text", "--parent NAME", "The one above it.", names="vc", label="parent vc", filled=True
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """Some of the nodes under a name, with rules for the jobs there; only files set partitions."""

    name: str
    nodes: str = row("hosts")  # empty: all
    max_time_s: float | None = row("seconds", above_zero=True, most=LONGEST_S)
    is_default: bool = row("flag", key="default")
    default_time_s: float | None = row("seconds", above_zero=True, most=LONGEST_S)  # else the most
    # which jobs may be in it; without any of the three: all
    users: tuple[str, ...] = row("names", filled=True)
    accounts: tuple[str, ...] = row("names", filled=True)
    groups: tuple[str, ...] = row("names", filled=True)  # of Unix, on the daemon's machine
    # of jobs that do not say
    cpus_per_gpu: int | None = row("whole", least=1, most=1024)
    memory_gb_per_gpu: float | None = row("number", above_zero=True, most=1e6)


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorityClass:
    """A priority class of jobs: its part of the order, its limits, what it may preempt."""

    name: str
    priority: float = row(
        "number",
        "--priority X",
        "Its part of the order; larger is earlier. [default: 0]",
        default=0.0,
        least=-1e12,
    )
    preempts: tuple[str, ...] = row(
        "names",
        "--preempts NAME,…",
        "Classes whose running jobs give way to its jobs.",
        names="class",
    )
    grace_s: float | None = row(
        "seconds",
        "--grace TIME",
        "What its jobs get to stop: 120 (seconds), 2m.",
        most=LONGEST_S,
        bare="seconds",
        live_only=True,
    )
    max_time_s: float | None = row(
        "seconds",
        "--max-time TIME",
        "Longest time limit of a job: 90 (minutes), 2h.",
        least=1.0,
        most=LONGEST_S,
        live_only=True,
    )
    gpus: int | None = row("whole", "--gpus -G N", "GPUs at the same time.", most=MOST_GPUS)
    gpus_per_user: int | None = row(
        "whole", "--gpus-per-user N", "GPUs of each user in it at the same time.", most=MOST_GPUS
    )
    jobs: int | None = row(
        "whole", "--jobs N", "Jobs that wait or run.", most=MOST_JOBS, live_only=True
    )
    jobs_per_user: int | None = row(
        "whole",
        "--jobs-per-user N",
        "Jobs of each user that wait or run.",
        most=MOST_JOBS,
        live_only=True,
    )
    users: tuple[str, ...] = row(
        "names", "--users NAME,…", "Only these users may use it.", live_only=True
    )
    accounts: tuple[str, ...] = row(
        "names",
        "--accounts NAME,…",
        "Only these accounts may use it.",
        names="account",
        live_only=True,
    )
    is_default: bool = row(
        "flag", "--default/--no-default", "Of jobs that name no class.", key="default"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """Nodes that are kept for some jobs, or for maintenance, for a time."""

    name: str
    nodes: str = row("hosts", "--nodes -w HOSTS", "Which nodes: n[1-4].")
    start_at: float = row("moment", most=LATEST)  # see `dlsched reserve` for the options
    end_at: float = row("moment", most=LATEST)
    users: tuple[str, ...] = row("names", "--users -u NAME,…", "Only these users may use it.")
    accounts: tuple[str, ...] = row(
        "names", "--accounts -A NAME,…", "Only these accounts may use it.", names="account"
    )
    maintenance: bool = row("flag", "--maintenance", "For no job at all.")
    reason: str = row("text", "--reason TEXT", "Shown with the nodes.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """The most that a user, an account with all below it, or a virtual cluster may have."""

    kind: str  # one of QUOTA_KINDS
    name: str
    gpus: int | None = row("whole", "--gpus -G N", "GPUs at the same time.", most=MOST_GPUS)
    jobs: int | None = row("whole", "--jobs N", "Jobs that wait or run.", most=MOST_JOBS)
    gpu_hours: float | None = row("number", "--gpu-hours X", "GPU-hours in the window.")
    window_s: float | None = row(
        "seconds",
        "--window TIME",
        "Length of the window. [default: 30d]",
        least=60.0,
        most=LONGEST_S,
    )


Tenant = User | Account | Vc | Partition | PriorityClass | Reservation | Quota

KINDS: dict[str, type[Tenant]] = {
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
