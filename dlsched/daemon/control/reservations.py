"""Reservations: what can be reserved, and which jobs may use it."""

from __future__ import annotations

import math
from collections.abc import Mapping

from dlsched.core.cluster.host_lists import expand
from dlsched.core.errors import BadInput, NotAllowed, not_known
from dlsched.daemon.cluster import Cluster
from dlsched.daemon.live import job_columns as c
from dlsched.daemon.tenants import TenantsOfUser
from dlsched.system.clock import wall
from dlsched.tenants.fields import Reservation

NAMED = 3  # jobs that an error names at most


def check_reservation(cluster: Cluster, wanted: Reservation, *, ignore_jobs: bool) -> None:
    """Refuse a reservation that cannot be kept.

    Raises:
        BadInput: its time or nodes make no sense, it overlaps another one, or running jobs reach
            into it.
    """
    subject = f"reservation {wanted.name}"
    if not wanted.nodes:
        raise BadInput(f"{subject}: names no nodes")
    if not wanted.end_at > max(wanted.start_at, wall()):
        raise BadInput(f"{subject}: ends before it begins, or has ended already")
    nodes = set(expand("nodes", wanted.nodes))
    known = cluster.capacity().hosts
    for name in sorted(nodes - known.keys()):
        raise not_known(f"{subject}: node", name, known)
    if wanted.maintenance and (wanted.users or wanted.accounts):
        raise BadInput(f"{subject}: maintenance is for no users and accounts")
    for other in cluster.tenants.reservations().values():
        both = nodes & set(expand("nodes", other.nodes))
        overlaps = wanted.start_at < other.end_at and other.start_at < wanted.end_at
        if other.name != wanted.name and both and overlaps:
            raise BadInput(f"{subject}: node {min(both)} is reserved by {other.name} then")
    if not ignore_jobs:
        _refuse_running(cluster, wanted, nodes)


def _refuse_running(cluster: Cluster, wanted: Reservation, nodes: set[str]) -> None:
    """Refuse a time into which jobs reach that run on the nodes already."""
    live = cluster.live
    reach: list[int] = []
    for job, where in live.accounting.where.items():
        row = live.jobs.row_of[job]
        if live.jobs.get("phase", row) == c.ENDED:
            continue
        if live.requests.specs[job].body.reservation == wanted.name:
            continue
        limit = live.jobs.get("time_limit", row)
        until = math.inf if math.isnan(limit) else live.jobs.get("since", row) + limit
        there = {live.nodes[index].name for index in where.nodes}
        if there & nodes and until > wanted.start_at:
            reach.append(job)
    if reach:
        some = ", ".join(map(str, sorted(reach)[:NAMED])) + (" and more" if reach[NAMED:] else "")
        raise BadInput(
            f"reservation {wanted.name}: job{'s' if reach[1:] else ''} {some} may run into it "
            "(--ignore-jobs reserves all the same)"
        )


def check_use(
    name: str,
    known: Mapping[str, Reservation],
    whose: TenantsOfUser,
    account: str,
    limit_s: float | None,
) -> Reservation | None:
    """The reservation that a job names; None: it names none.

    Raises:
        BadInput: there is none of that name, or the job would be longer than it.
        NotAllowed: it is for others.
    """
    if not name:
        return None
    if name not in known:
        raise not_known("reservation", name, known)
    found = known[name]
    listed = bool(found.users or found.accounts)
    if found.maintenance:
        raise NotAllowed(f"Reservation: {name} is for maintenance")
    mine = whose.user in found.users or account in found.accounts
    if listed and not mine and not whose.operator:
        allowed = [f"user {each}" for each in found.users]
        allowed += [f"account {each}" for each in found.accounts]
        raise NotAllowed(f"Reservation: {name} is for {', '.join(allowed)} only")
    longest = found.end_at - max(found.start_at, wall())
    if limit_s is None or limit_s > longest:
        asks = "no time limit" if limit_s is None else f"a time limit of {limit_s:g} s"
        raise BadInput(f"Reservation: {name} has {max(longest, 0.0):.0f} s, and the job has {asks}")
    return found
