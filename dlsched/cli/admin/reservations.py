"""`dlsched reserve`: nodes that are kept for some users, or for maintenance, for a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from dlsched.cli.admin.tenants import NameArgument, options_of
from dlsched.cli.daemon_options import DaemonOptions
from dlsched.cli.option_groups import option, typed
from dlsched.cli.output.output_options import AsJson, ColourOption
from dlsched.cli.typer_commands import CommandGroup
from dlsched.core.errors import BadInput
from dlsched.record import Record
from dlsched.tenants.field import Row, rows_of
from dlsched.tenants.fields import Reservation

if TYPE_CHECKING:
    from dlsched.cli.output.listing import Column
    from dlsched.rpc.v1.control_pb2 import Tenant, TenantReservation

SCHEMA = "dlsched.reservations/1"
reserve_app = CommandGroup("Reservations: nodes that are kept for some jobs, or for maintenance.")


class ReservedTimes(Record):
    """Which nodes a reservation keeps, and when."""

    name: NameArgument
    nodes: Annotated[str, option("--nodes -w HOSTS", "Which nodes: n[1-4].")]
    start: str = typed("--start -S TIME", "now+2hours, 16:00, 2026-11-21T06:25.", default="now")
    duration: str | None = typed("--duration -d TIME", "90 (minutes), 2h, 1-12.")
    end: str | None = typed("--end -E TIME", "In place of --duration.")


IgnoreJobs = Annotated[bool, option("--ignore-jobs", "Although running jobs may run into it.")]
ReservationOptions: Any = options_of("reservation", ReservedTimes)


def create_command(options: Any, ignore_jobs: IgnoreJobs = False, *, daemon: DaemonOptions) -> None:
    """Create a reservation and print it."""
    from dlsched.cli.output.terminal import shown  # noqa: PLC0415
    from dlsched.rpc.v1.control_pb2 import Tenant  # noqa: PLC0415

    tenant = Tenant()
    fields = fill(tenant.reservation, options)
    with daemon.client() as cluster:
        for line in cluster.set_tenant(tenant, fields, create=True, ignore_jobs=ignore_jobs):
            typer.echo(shown(line))


create_command.__annotations__["options"] = ReservationOptions
reserve_app.command("create", help="Keep nodes for a time. Operators only.")(create_command)


def fill(message: TenantReservation, options: Any) -> list[str]:
    """Put in what the options say; returns the fields that were set."""
    from datetime import datetime  # noqa: PLC0415

    from dlsched.client.submission.durations import duration  # noqa: PLC0415
    from dlsched.client.submission.moments import moment  # noqa: PLC0415
    from dlsched.client.submission.texts import check_text  # noqa: PLC0415
    from dlsched.core.cluster.host_lists import expand  # noqa: PLC0415

    check_text("NAME", options.name, longest=64)
    expand("--nodes", options.nodes)
    if (options.duration is None) == (options.end is None):
        raise BadInput("--duration or --end: one of them")
    now = datetime.now().astimezone()
    message.name, message.nodes = options.name, options.nodes
    message.start_at = moment("--start", options.start, now=now)
    if options.end is not None:
        message.end_at = moment("--end", options.end, now=now)
    else:
        message.end_at = message.start_at + duration("--duration", options.duration or "")
    fields = ["nodes", "start_at", "end_at"]
    for name, row in rows_of(Reservation).items():
        value = getattr(options, name, None)
        if name in fields or value is None:
            continue
        fields.append(name)
        if row.form == "names":
            getattr(message, name).extend(each.strip() for each in value.split(",") if each.strip())
        else:
            is_text = isinstance(value, str)
            setattr(message, name, check_text(row.words.split()[0], value) if is_text else value)
    return fields


@reserve_app.command("list", help="Reservations that are not over, the next one first.")
def list_command(
    as_json: AsJson = False, colour: ColourOption = "auto", *, daemon: DaemonOptions
) -> None:
    """List reservations."""
    from dlsched.cli.output.listing import print_listing  # noqa: PLC0415
    from dlsched.cli.output.terminal import terminal  # noqa: PLC0415

    out = terminal(colour)
    with daemon.client() as cluster:
        found = cluster.tenants("reservation")
    found.sort(key=lambda each: (each.reservation.start_at, each.reservation.name))
    if as_json:
        from dlsched.cli.output.json_output import print_json  # noqa: PLC0415

        print_json(SCHEMA, reservations=map(_object, found))
    else:
        print_listing(_columns(), found, out)


@reserve_app.command("delete", help="End a reservation that no live job names. Operators only.")
def delete_command(name: NameArgument, daemon: DaemonOptions) -> None:
    """Delete a reservation."""
    from dlsched.cli.output.terminal import shown  # noqa: PLC0415

    with daemon.client() as cluster:
        for line in cluster.remove_tenant("reservation", name):
            typer.echo(shown(line))


def state_of(reservation: TenantReservation) -> str:
    """`planned`, `active` or `over`."""
    import time  # noqa: PLC0415

    now = time.time()
    if now < reservation.start_at:
        return "planned"
    return "active" if now < reservation.end_at else "over"


def _object(tenant: Tenant) -> dict[str, Any]:
    each = tenant.reservation
    said = {name: _shown(row, getattr(each, name)) for name, row in rows_of(Reservation).items()}
    return {
        "name": each.name,
        "state": state_of(each),
        **said,
        "jobs_now": tenant.jobs_now,
        "set_by": tenant.set_by or None,
    }


def _shown(row: Row, value: Any) -> Any:
    """A field's value in JSON."""
    from dlsched.cli.output.times import utc_text  # noqa: PLC0415

    if row.form == "moment":
        return utc_text(value)
    if row.form == "names":
        return list(value)
    return (value or None) if row.form == "text" else value


def _columns() -> list[Column[Tenant]]:
    from dlsched.cli.output.listing import Column  # noqa: PLC0415
    from dlsched.cli.output.times import local_text  # noqa: PLC0415

    def whose(each: Tenant) -> str:
        kept = each.reservation
        names = [*kept.users, *(f"account {name}" for name in kept.accounts)]
        return "maintenance" if kept.maintenance else ",".join(names) or "all"

    return [
        Column("name", "NAME", "", lambda each: str(each.reservation.name), least=8),
        Column("state", "STATE", "", lambda each: state_of(each.reservation)),
        Column("nodes", "NODES", "", lambda each: str(each.reservation.nodes)),
        Column("start", "START", "", lambda each: local_text(each.reservation.start_at)),
        Column("end", "END", "", lambda each: local_text(each.reservation.end_at)),
        Column("for", "FOR", "", whose),
        Column("jobs", "JOBS", "", lambda each: str(each.jobs_now), right=True),
        Column("reason", "REASON", "", lambda each: str(each.reservation.reason) or "-"),
    ]
