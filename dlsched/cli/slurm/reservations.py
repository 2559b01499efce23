"""`scontrol create|show|delete reservation`, as Slurm writes them."""

from __future__ import annotations

import getpass
import time
from collections.abc import Iterator, Sequence

from dlsched.cli.admin.reservations import ReservationOptions, fill, state_of
from dlsched.client.daemon_client import Client
from dlsched.core.errors import BadInput, not_known
from dlsched.rpc.v1.control_pb2 import Tenant

_STATES = {"planned": "INACTIVE", "active": "ACTIVE", "over": "INACTIVE"}
_WORDS = {
    "reservationname": "name",
    "reservation": "name",
    "starttime": "start",
    "duration": "duration",
    "endtime": "end",
    "nodes": "nodes",
    "users": "users",
    "user": "users",
    "accounts": "accounts",
    "account": "accounts",
}
_FLAGS = ("MAINT", "IGNORE_JOBS")


def create(words: Sequence[str]) -> int:
    """Create a reservation; one without a name is called after its user."""
    given, flags = _read(words)
    given.setdefault("name", f"{getpass.getuser()}_{int(time.time())}")
    if "nodes" not in given:
        raise BadInput("create reservation: give Nodes=…")
    options = ReservationOptions(**given, maintenance="MAINT" in flags)
    tenant = Tenant()
    fields = fill(tenant.reservation, options)
    with Client() as cluster:
        cluster.set_tenant(tenant, fields, create=True, ignore_jobs="IGNORE_JOBS" in flags)
    print(f"Reservation created: {options.name}")
    return 0


def _read(words: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    given: dict[str, str] = {}
    flags: list[str] = []
    for word in words:
        name, equals, value = word.partition("=")
        if name.lower() == "reservation" and not equals:
            continue
        if name.lower() == "flags":
            flags = [each.strip().upper() for each in value.split(",")]
            for each in flags:
                if each not in _FLAGS:
                    raise not_known("create reservation: Flags", each, _FLAGS)
        elif not equals or name.lower() not in _WORDS:
            known = ("ReservationName", "StartTime", "Duration", "EndTime", "Nodes", "Users")
            raise not_known("create reservation:", name, (*known, "Accounts", "Flags"))
        else:
            given[_WORDS[name.lower()]] = value
    return given, flags


def delete(words: Sequence[str]) -> int:
    """Delete a reservation."""
    names = [word.partition("=")[2] or word for word in words if word.lower() != "reservation"]
    if len(names) != 1:
        raise BadInput("delete: give ReservationName=…")
    with Client() as cluster:
        cluster.remove_tenant("reservation", names[0])
    return 0


def show(words: Sequence[str]) -> Iterator[str]:
    """Give the lines of reservations, of all or of the named ones."""
    from dlsched.cli.slurm.formats import moment  # noqa: PLC0415
    from dlsched.client.submission.durations import duration_text  # noqa: PLC0415

    asked = {word.partition("=")[2] or word for word in words}
    with Client() as cluster:
        found = [each.reservation for each in cluster.tenants("reservation")]
    unknown = asked - {each.name for each in found}
    if unknown:
        raise not_known("reservation", min(unknown), [each.name for each in found])
    if not found:
        yield "No reservations in the system"
    for each in found:
        if asked and each.name not in asked:
            continue
        users, accounts = ",".join(each.users), ",".join(each.accounts)
        flags = "MAINT,SPEC_NODES" if each.maintenance else "SPEC_NODES"
        yield (
            f"ReservationName={each.name} StartTime={moment(each.start_at)}"
            f" EndTime={moment(each.end_at)}"
            f" Duration={duration_text(each.end_at - each.start_at)}\n"
            f"   Nodes={each.nodes} Flags={flags}\n"
            f"   Users={users or '(null)'} Accounts={accounts or '(null)'}"
            f" State={_STATES[state_of(each)]}\n"
        )
