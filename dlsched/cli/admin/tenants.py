"""`dlsched admin user`, `account`, `vc`, `class` and `quota`: how tenants share the cluster.

Each has list, add, set and remove. `set` changes only what is given; an empty text or `none`
removes a value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dlsched.cli.daemon_options import DaemonOptions
from dlsched.cli.option_groups import typed
from dlsched.cli.output.output_options import AsJson, ColourOption
from dlsched.cli.typer_commands import CommandGroup
from dlsched.core.errors import BadInput
from dlsched.record import Record, field_names
from dlsched.tenants.field import Row, rows_of
from dlsched.tenants.fields import KINDS

if TYPE_CHECKING:
    from dlsched.cli.output.listing import Column
    from dlsched.rpc.v1.control_pb2 import Tenant

SCHEMA = "dlsched.tenants/1"
NONE = ("", "none")
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Letters, digits, _ . @ -")]


class TenantName(Record):
    """The tenant that is meant."""

    name: NameArgument


class QuotaName(Record):
    """The tenant that a quota is for."""

    kind: Annotated[str, typer.Argument(metavar="KIND", help="user, account or vc.")]
    name: Annotated[str, typer.Argument(metavar="NAME", help="For users also '*': each user.")]


def options_of(kind: str, named: type[Record]) -> type[Record]:
    """What can be set for a kind of tenant: a field for each row of its table with an option."""
    types: dict[str, Any] = {"__annotations__": {}, "__module__": __name__}
    for name, row in rows_of(KINDS[kind]).items():
        if row.words and name not in field_names(named):
            types[name] = typed(row.words, row.help)
            types["__annotations__"][name] = (bool if row.form == "flag" else str) | None
    return type(f"{kind.title()}Options", (named,), types)


def _whole(word: str, text: str) -> int | None:
    from dlsched.client.submission.texts import whole_number  # noqa: PLC0415

    return None if text in NONE else whole_number(word, text, most=1_000_000_000)


def _number(word: str, text: str) -> float | None:
    if text in NONE:
        return None
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number <= 1e12:
        raise BadInput(f"{word}: {text[:40]!r} is not a number")
    return number


def _duration(word: str, text: str) -> float | None:
    from dlsched.client.submission.durations import duration  # noqa: PLC0415

    return None if text in NONE else duration(word, text)


def _signed(word: str, text: str) -> float | None:
    if text in NONE:
        return None
    negative = text.startswith("-")
    number = _number(word, text.removeprefix("-"))
    return -number if negative and number is not None else number


def _seconds(word: str, text: str) -> float | None:
    from dlsched.client.submission.durations import duration  # noqa: PLC0415

    return None if text in NONE else duration(word, text, bare="seconds")


def _names(word: str, text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip() not in NONE]


def _parsed(row: Row, text: str) -> Any:
    """The value in a text; None where it takes the value back."""
    word = row.words.split()[0]
    if row.form == "whole":
        return _whole(word, text)
    if row.form == "number":
        return (_signed if row.least < 0 else _number)(word, text)
    if row.form == "seconds":
        return (_seconds if row.bare == "seconds" else _duration)(word, text)
    if row.form == "names":
        return _names(word, text)
    return "" if text in NONE else text


def _set(kind: str, options: Any, daemon: DaemonOptions, *, create: bool) -> None:
    """Ask the daemon to add or change a tenant, and print what has changed."""
    from dlsched.cli.output.terminal import shown  # noqa: PLC0415
    from dlsched.client.submission.texts import check_text  # noqa: PLC0415
    from dlsched.rpc.v1.control_pb2 import Tenant  # noqa: PLC0415

    tenant = Tenant()
    message = getattr(tenant, kind)
    message.SetInParent()
    changed = []
    rows = rows_of(KINDS[kind])
    for field in fields(options):
        name, value = field.name, getattr(options, field.name)
        if value is None:
            continue
        if name in ("kind", "name"):
            check_text(name, value, longest=64)
        else:
            changed.append(name)
            if isinstance(value, str):
                value = _parsed(rows[name], value)
        if isinstance(value, list):
            getattr(message, name).extend(value)
        elif value is not None:
            setattr(message, name, value)
    if not create and not changed:
        raise BadInput("nothing to change: give at least one option")
    with daemon.client() as cluster:
        for line in cluster.set_tenant(tenant, changed, create=create):
            typer.echo(shown(line))


def _remove(kind: str, name: str, daemon: DaemonOptions) -> None:
    from dlsched.cli.output.terminal import shown  # noqa: PLC0415

    with daemon.client() as cluster:
        for line in cluster.remove_tenant(kind, name):
            typer.echo(shown(line))


def _list(kind: str, as_json: bool, colour: str, daemon: DaemonOptions) -> None:
    from dlsched.cli.output.listing import print_listing  # noqa: PLC0415
    from dlsched.cli.output.terminal import terminal  # noqa: PLC0415

    out = terminal(colour)
    with daemon.client() as cluster:
        found = cluster.tenants(kind)
    if as_json:
        from dlsched.cli.output.json_output import print_json  # noqa: PLC0415

        print_json(SCHEMA, tenants=[_object(kind, each) for each in found])
        return
    print_listing(_columns(kind), found, out)


# -- the commands ----------------------------------------------------------------------------------


def _group(kind: str, help_: str, one: str) -> typer.Typer:
    """Return the commands list, add, set and remove of a kind of tenant; `one` has its article."""
    app = CommandGroup(help_)
    table = options_of(kind, QuotaName if kind == "quota" else TenantName)

    @app.command("list", help=f"{help_.partition(':')[0].rstrip('.')}, and what each uses now.")
    def list_command(
        as_json: AsJson = False, colour: ColourOption = "auto", *, daemon: DaemonOptions
    ) -> None:
        _list(kind, as_json, colour, daemon)

    def setting(*, create: bool) -> Callable[..., None]:
        def command(options: Any, daemon: DaemonOptions) -> None:
            _set(kind, options, daemon, create=create)

        command.__annotations__["options"] = table
        return command

    app.command("add", help=f"Add {one}. Operators only.")(setting(create=True))
    app.command("set", help=f"Change {one}; values not given stay. Operators only.")(
        setting(create=False)
    )
    if kind == "quota":

        @app.command("remove", help="Remove a quota. Operators only.")
        def remove_quota(quota: QuotaName, daemon: DaemonOptions) -> None:
            _remove(kind, f"{quota.kind} {quota.name}", daemon)

    else:

        @app.command("remove", help=f"Remove {one} that nothing refers to. Operators only.")
        def remove_command(name: NameArgument, daemon: DaemonOptions) -> None:
            _remove(kind, name, daemon)

    return app


user_app = _group("user", "Users: their account and virtual cluster.", "a user")
account_app = _group("account", "Accounts: groups of users.", "an account")
vc_app = _group("vc", "Virtual clusters: guarantees and ceilings.", "a virtual cluster")
class_app = _group("class", "Priority classes: order, limits, preemption.", "a priority class")
quota_app = _group("quota", "Quotas: limits of users, accounts and virtual clusters.", "a quota")


# -- what lists show -------------------------------------------------------------------------------


def _value(message: Any, name: str) -> Any:
    """Return a field's value; None when it is not set."""
    value = getattr(message, name)
    if not isinstance(value, (str, int, float)):
        return list(value)
    if isinstance(value, str):
        return value or None
    return value if message.HasField(name) else None


def _object(kind: str, tenant: Tenant) -> dict[str, Any]:
    from dlsched.cli.output.times import utc_text  # noqa: PLC0415

    message = getattr(tenant, kind)
    return {
        **{each.name: _value(message, each.name) for each in fields(KINDS[kind])},
        "gpus_now": tenant.gpus_now,
        "gpu_parts_now": tenant.gpu_parts_now,
        "jobs_now": tenant.jobs_now,
        "gpu_hours_now": tenant.gpu_hours_now if tenant.HasField("gpu_hours_now") else None,
        "source": tenant.source,
        "set_by": tenant.set_by or None,
        "set_at": utc_text(tenant.set_at if tenant.HasField("set_at") else None),
    }


def _columns(kind: str) -> list[Column[Tenant]]:
    from dlsched.cli.output.listing import Column  # noqa: PLC0415

    rows = rows_of(KINDS[kind])

    def field(name: str) -> Column[Tenant]:
        def text(each: Tenant) -> str:
            return _shown(name, _value(getattr(each, kind), name))

        title = name.removesuffix("_s").removeprefix("is_").replace("_", " ").upper()
        return Column(name, title, "", text, right=name in rows and rows[name].is_number)

    def now(name: str, title: str) -> Column[Tenant]:
        return Column(name, title, "", lambda each: str(getattr(each, name)), right=True)

    def hours(each: Tenant) -> str:
        return f"{each.gpu_hours_now:.1f}" if each.HasField("gpu_hours_now") else "-"

    def gpus(each: Tenant) -> str:
        return f"{each.gpu_parts_now:g}"

    used = [Column("gpu_hours_now", "HOURS USED", "", hours, right=True)]
    return [
        *(field(each.name) for each in fields(KINDS[kind])),
        Column("gpus_now", "GPUS NOW", "", gpus, right=True),
        now("jobs_now", "JOBS NOW"),
        *(used if kind == "quota" else ()),
        Column("source", "SET BY", "", lambda each: str(each.set_by) or str(each.source)),
    ]


def _shown(name: str, value: Any) -> str:
    if value is None or value == []:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ",".join(value)
    if name.endswith("_s"):
        from dlsched.client.submission.durations import duration_text  # noqa: PLC0415

        return duration_text(value)
    return f"{value:g}" if isinstance(value, float) else str(value)
