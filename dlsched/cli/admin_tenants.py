"""`dlsched admin user`, `account`, `vc`, `quota`: who shares the cluster, and how.

Each has list, add, set and remove. `set` changes what is given and nothing else; an empty text or
`none` takes a wish back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dlsched.cli.connect import AsJson, ColourOption, DaemonOption, InsecureOption, client
from dlsched.core.errors import BadInput

if TYPE_CHECKING:
    from dlsched.rpc.v1.control_pb2 import Tenant

__all__ = ["account_app", "quota_app", "user_app", "vc_app"]

SCHEMA = "dlsched.tenants/1"
Text = str | None
NONE = ("", "none")
Name = Annotated[str, typer.Argument(metavar="NAME", help="Letters, digits, _ . @ -")]


def _app(help_: str) -> typer.Typer:
    return typer.Typer(
        add_completion=False, help=help_, no_args_is_help=True, rich_markup_mode=None
    )


user_app = _app("Users: their account and virtual cluster.")
account_app = _app("Accounts: groups that share.")
vc_app = _app("Virtual clusters: guarantees and ceilings.")
quota_app = _app("The most that users, accounts and virtual clusters may have.")

VcOption = Annotated[Text, typer.Option("--vc", metavar="NAME", help="Where the jobs run.")]
AccountOption = Annotated[
    Text, typer.Option("--account", "-A", metavar="NAME", help="Of jobs that name none.")
]
AccountsOption = Annotated[
    Text, typer.Option("--accounts", metavar="NAME,…", help="A member of these too.")
]
ParentOption = Annotated[Text, typer.Option("--parent", metavar="NAME", help="The one above.")]
WeightOption = Annotated[
    Text, typer.Option("--weight", metavar="X", help="Among its siblings. [default: 1]")
]
GpusOption = Annotated[Text, typer.Option("--gpus", "-G", metavar="N", help="At once.")]
NodesOption = Annotated[
    Text, typer.Option("--nodes", "-w", metavar="HOSTS", help="Of its own: n[1-4].")
]
GuaranteedOption = Annotated[
    Text, typer.Option("--guaranteed", metavar="N", help="Of the GPUs. [default: all]")
]
BorrowOption = Annotated[
    bool | None, typer.Option("--borrow/--no-borrow", help="Beyond them, what others leave idle.")
]
JobsOption = Annotated[Text, typer.Option("--jobs", metavar="N", help="Live ones.")]
HoursOption = Annotated[Text, typer.Option("--gpu-hours", metavar="X", help="In the window.")]
WindowOption = Annotated[
    Text, typer.Option("--window", metavar="TIME", help="How far back. [default: 30d]")
]
KindOption = Annotated[str, typer.Argument(metavar="KIND", help="user, account or vc.")]
WhoOption = Annotated[str, typer.Argument(metavar="NAME", help="A user may be '*': each.")]


# -- users and accounts ----------------------------------------------------------------------------


def _user(create: bool) -> Callable[..., None]:
    def command(
        name: Name,
        account: AccountOption = None,
        vc: VcOption = None,
        accounts: AccountsOption = None,
        daemon: DaemonOption = None,
        insecure: InsecureOption = False,
    ) -> None:
        texts = {"account": account, "vc": vc}
        given: dict[str, Any] = {k: _plain(v) for k, v in texts.items() if v is not None}
        if accounts is not None:
            given["accounts"] = [each.strip() for each in accounts.split(",") if each.strip()]
        _set("user", {"name": name}, given, create, daemon, insecure)

    return command


def _account(create: bool) -> Callable[..., None]:
    def command(
        name: Name,
        parent: ParentOption = None,
        weight: WeightOption = None,
        vc: VcOption = None,
        daemon: DaemonOption = None,
        insecure: InsecureOption = False,
    ) -> None:
        texts = {"parent": parent, "vc": vc}
        given: dict[str, Any] = {k: _plain(v) for k, v in texts.items() if v is not None}
        if weight is not None:
            given["weight"] = _number("--weight", weight)
        _set("account", {"name": name}, given, create, daemon, insecure)

    return command


def _vc(create: bool) -> Callable[..., None]:
    def command(
        name: Name,
        gpus: GpusOption = None,
        nodes: NodesOption = None,
        guaranteed: GuaranteedOption = None,
        borrow: BorrowOption = None,
        parent: ParentOption = None,
        daemon: DaemonOption = None,
        insecure: InsecureOption = False,
    ) -> None:
        given: dict[str, Any] = {}
        for key, text in (("gpus", gpus), ("guaranteed", guaranteed)):
            if text is not None:
                given[key] = _whole(f"--{key}", text)
        for key, text in (("nodes", nodes), ("parent", parent)):
            if text is not None:
                given[key] = _plain(text)
        if borrow is not None:
            given["borrow"] = borrow
        _set("vc", {"name": name}, given, create, daemon, insecure)

    return command


def _quota(create: bool) -> Callable[..., None]:
    def command(
        kind: KindOption,
        name: WhoOption,
        gpus: GpusOption = None,
        jobs: JobsOption = None,
        gpu_hours: HoursOption = None,
        window: WindowOption = None,
        daemon: DaemonOption = None,
        insecure: InsecureOption = False,
    ) -> None:
        given: dict[str, Any] = {}
        for key, text in (("gpus", gpus), ("jobs", jobs)):
            if text is not None:
                given[key] = _whole(f"--{key}", text)
        if gpu_hours is not None:
            given["gpu_hours"] = _number("--gpu-hours", gpu_hours)
        if window is not None:
            from dlsched.client.submission.durations import duration  # noqa: PLC0415

            given["window_s"] = None if window in NONE else duration("--window", window)
        _set("quota", {"kind": kind, "name": name}, given, create, daemon, insecure)

    return command


for _of, _made, _told in (
    (user_app, _user, "a user"),
    (account_app, _account, "an account"),
    (vc_app, _vc, "a virtual cluster"),
    (quota_app, _quota, "a quota"),
):
    _of.command("add", help=f"Add {_told}. Operators only.")(_made(True))
    _of.command("set", help=f"Change {_told}; what is not given stays. Operators only.")(
        _made(False)
    )


def _plain(text: str) -> str:
    return "" if text in NONE else text


def _whole(what: str, text: str) -> int | None:
    from dlsched.client.submission.texts import whole_number  # noqa: PLC0415

    return None if text in NONE else whole_number(what, text, most=1_000_000_000)


def _number(what: str, text: str) -> float | None:
    if text in NONE:
        return None
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number <= 1e12:
        raise BadInput(f"{what}: {text[:40]!r} is not a number")
    return number


def _set(
    kind: str,
    key: Mapping[str, str],
    given: Mapping[str, Any],
    create: bool,
    daemon: str | None,
    insecure: bool,
) -> None:
    from dlsched.cli.terminal import shown  # noqa: PLC0415
    from dlsched.client.submission.texts import check_text  # noqa: PLC0415
    from dlsched.rpc.v1.control_pb2 import Tenant  # noqa: PLC0415

    for what, text in key.items():
        check_text(what, text, longest=64)
    if not create and not given:
        raise BadInput("nothing to change: give at least one option")
    tenant = Tenant()
    message = getattr(tenant, kind)
    message.SetInParent()
    for name, value in {**key, **given}.items():
        if isinstance(value, list):
            getattr(message, name).extend(value)
        elif value is not None:
            setattr(message, name, value)
    with client(daemon, insecure) as cluster:
        for line in cluster.set_tenant(tenant, given, create=create):
            typer.echo(shown(line))


# -- removing and listing --------------------------------------------------------------------------


def _remove(kind: str, name: str, daemon: str | None, insecure: bool) -> None:
    from dlsched.cli.terminal import shown  # noqa: PLC0415

    with client(daemon, insecure) as cluster:
        for line in cluster.remove_tenant(kind, name):
            typer.echo(shown(line))


def _removing(kind: str) -> Callable[..., None]:
    def command(name: Name, daemon: DaemonOption = None, insecure: InsecureOption = False) -> None:
        _remove(kind, name, daemon, insecure)

    return command


@quota_app.command("remove", help="Take a quota away. Operators only.")
def _remove_quota(
    kind: KindOption,
    name: WhoOption,
    daemon: DaemonOption = None,
    insecure: InsecureOption = False,
) -> None:
    _remove("quota", f"{kind} {name}", daemon, insecure)


def _listing(kind: str) -> Callable[..., None]:
    def command(
        as_json: AsJson = False,
        colour: ColourOption = "auto",
        daemon: DaemonOption = None,
        insecure: InsecureOption = False,
    ) -> None:
        from dlsched.cli.listing import listing  # noqa: PLC0415
        from dlsched.cli.terminal import terminal  # noqa: PLC0415

        out = terminal(colour)
        with client(daemon, insecure) as cluster:
            found = cluster.tenants(kind)
        if as_json:
            from dlsched.cli.json_output import print_json  # noqa: PLC0415

            print_json(SCHEMA, tenants=[_object(kind, each) for each in found])
            return
        for line in listing(_columns(kind), found, out, header=True):
            typer.echo(line, color=out.colour)

    return command


for _kind, _of, _told in (
    ("user", user_app, "Users of whom something is said"),
    ("account", account_app, "Accounts"),
    ("vc", vc_app, "Virtual clusters"),
    ("quota", quota_app, "Quotas"),
):
    _of.command("list", help=f"{_told}, and what each has now.")(_listing(_kind))
    if _kind != "quota":
        _of.command("remove", help="Take one away that nobody speaks of. Operators only.")(
            _removing(_kind)
        )

_FIELDS = {
    "user": ("name", "account", "vc", "accounts"),
    "account": ("name", "parent", "weight", "vc", "users"),
    "vc": ("name", "gpus", "nodes", "guaranteed", "borrow", "parent"),
    "quota": ("kind", "name", "gpus", "jobs", "gpu_hours", "window_s"),
}


def _value(message: Any, name: str) -> Any:
    """A field's value; None when it is not said."""
    value = getattr(message, name)
    if not isinstance(value, (str, int, float)):
        return list(value)
    if isinstance(value, str):
        return value or None
    return value if message.HasField(name) else None


def _object(kind: str, tenant: Tenant) -> dict[str, Any]:
    from dlsched.cli.moments import utc_text  # noqa: PLC0415

    message = getattr(tenant, kind)
    return {
        **{name: _value(message, name) for name in _FIELDS[kind]},
        "gpus_now": tenant.gpus_now,
        "jobs_now": tenant.jobs_now,
        "gpu_hours_now": tenant.gpu_hours_now if tenant.HasField("gpu_hours_now") else None,
        "source": tenant.source,
        "set_by": tenant.set_by or None,
        "set_at": utc_text(tenant.set_at if tenant.HasField("set_at") else None),
    }


def _columns(kind: str) -> list[Any]:
    from dlsched.cli.listing import Column  # noqa: PLC0415

    def field(name: str) -> Any:
        def text(each: Tenant) -> str:
            return _shown(name, _value(getattr(each, kind), name))

        words = ("kind", "name", "account", "accounts", "parent", "vc", "users", "nodes")
        return Column(
            name=name,
            title=name.removesuffix("_s").replace("_", " ").upper(),
            doc="",
            text=text,
            align="left" if name in words else "right",
        )

    def now(name: str, title: str) -> Any:
        return Column(
            name=name, title=title, doc="", text=lambda each: str(getattr(each, name)),
            align="right",
        )  # fmt: skip

    columns: list[Any] = [
        *(field(name) for name in _FIELDS[kind]),
        now("gpus_now", "GPUS NOW"),
        now("jobs_now", "JOBS NOW"),
    ]
    if kind == "quota":
        columns.append(
            Column(
                name="gpu_hours_now",
                title="HOURS USED",
                doc="",
                text=lambda each: (
                    f"{each.gpu_hours_now:.1f}" if each.HasField("gpu_hours_now") else "-"
                ),
                align="right",
            )
        )

    def source(each: Tenant) -> str:
        return str(each.set_by) or str(each.source)

    return [*columns, Column(name="source", title="SET BY", doc="", text=source)]


def _shown(name: str, value: Any) -> str:
    if value is None or value == []:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ",".join(value)
    if name == "window_s":
        from dlsched.client.submission.durations import duration_text  # noqa: PLC0415

        return duration_text(value)
    return f"{value:g}" if isinstance(value, float) else str(value)
