"""`dlsched usage`: GPU time by virtual cluster, account or user, and fair shares."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from dlsched.cli.daemon_options import DaemonOptions
from dlsched.cli.option_groups import option
from dlsched.cli.output.output_options import JsonOptions
from dlsched.core.sums import ordered_sum

if TYPE_CHECKING:
    from dlsched.cli.output.listing import Column
    from dlsched.cli.output.terminal import Terminal
    from dlsched.client.records import Share, Usage

By = Literal["vc", "account", "user"]
SCHEMA = "dlsched.usage/1"
SHARES = "dlsched.shares/1"


def usage_command(
    by: Annotated[By, option("--by WHAT", "vc, account or user.")] = "vc",
    by_user: Annotated[bool, option("--by-user", "As --by user.")] = False,
    shares: Annotated[
        bool, option("--shares", "What is due to each tenant, and its decayed usage.")
    ] = False,
    since: Annotated[str | None, option("--since -S TIME", "7d (ago), a day, a time.")] = None,
    *,
    output: JsonOptions,
    daemon: DaemonOptions,
) -> None:
    """GPU time by vc, account or user: hours, share, GPUs now, entitlement, jobs waiting."""
    from dlsched.cli.output.json_output import object_of, print_json, print_json_lines  # noqa: PLC0415
    from dlsched.cli.output.listing import print_listing  # noqa: PLC0415
    from dlsched.cli.output.terminal import terminal  # noqa: PLC0415
    from dlsched.cli.output.times import moment_or_ago  # noqa: PLC0415

    out = terminal(output.colour)
    if shares:
        _shares(by_user or by != "vc", since, out, output, daemon)
        return
    by = "user" if by_user else by
    start = moment_or_ago("--since", since) if since is not None else None
    with daemon.client() as cluster:
        found = cluster.usage(by=by, since=start)
    if output.as_lines:
        print_json_lines(map(object_of, found))
    elif output.as_json:
        print_json(SCHEMA, by=by, usage=map(object_of, found))
    else:
        ordered = sorted(found, key=lambda each: (-each.gpu_s, each.name))
        print_listing(_columns(found, by), ordered, out)


def _shares(
    is_grouped: bool, since: str | None, out: Terminal, output: JsonOptions, daemon: DaemonOptions
) -> None:
    from dlsched.cli.output.json_output import object_of, print_json, print_json_lines  # noqa: PLC0415
    from dlsched.cli.output.listing import print_listing  # noqa: PLC0415
    from dlsched.core.errors import BadInput  # noqa: PLC0415

    if is_grouped or since is not None:
        raise BadInput("--shares: shows all users of the tree, of all time; alone, please")
    with daemon.client() as cluster:
        found = cluster.shares()
    if output.as_lines:
        print_json_lines(map(object_of, found.rows))
    elif output.as_json:
        half_life = found.half_life_s
        shown = map(object_of, found.rows)
        print_json(SHARES, level=found.level, half_life_s=half_life, shares=shown)
    else:
        print_listing(_share_columns(), found.rows, out)


def _share_columns() -> list[Column[Share]]:
    from dlsched.cli.output.listing import Column  # noqa: PLC0415

    def number(name: str, title: str, form: str, scale: float = 1.0) -> Column[Share]:
        return Column(
            name, title, "", lambda each: form.format(getattr(each, name) * scale), right=True
        )

    def tenant(each: Share) -> str:
        return "  " * each.depth + f"{each.kind} {each.name}"

    return [
        Column("name", "TENANT", "name", tenant, least=8),
        number("weight", "WEIGHT", "{:g}"),
        number("share", "SHARE", "{:.1f} %", 100),
        number("used_gpu_s", "GPU-HOURS", "{:.2f}", 1 / 3600),
        number("usage", "USED", "{:.1f} %", 100),
        number("effective", "COUNTS", "{:.1f} %", 100),
        number("factor", "FACTOR", "{:.3f}"),
    ]


def _columns(found: list[Usage], by: By) -> list[Column[Usage]]:
    from dlsched.cli.output.listing import Column  # noqa: PLC0415

    total = ordered_sum(each.gpu_s for each in found)

    def share(each: Usage) -> str:
        return f"{100 * each.gpu_s / total:.1f} %" if total else "-"

    def entitled(each: Usage) -> str:
        return "-" if each.entitlement is None else f"{each.entitlement:g}"

    return [
        Column("name", by.upper(), "name", lambda each: each.name or "-", least=8),
        Column("gpu_hours", "GPU-HOURS", "", lambda each: f"{each.gpu_s / 3600:.2f}", right=True),
        Column("share", "SHARE", "", share, right=True),
        Column("now", "GPUS NOW", "", lambda each: f"{each.gpu_parts_now:g}", right=True),
        Column("entitled", "ENTITLED", "", entitled, right=True),
        Column("pending", "PENDING", "", lambda each: str(each.pending), right=True),
    ]
