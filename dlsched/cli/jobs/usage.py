"""`dlsched usage`: GPU time by account or user, and the entitlement of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from dlsched.cli.daemon_options import DaemonOptions
from dlsched.cli.option_groups import option, with_option_groups
from dlsched.cli.output.output_options import JsonOptions

if TYPE_CHECKING:
    from dlsched.cli.output.listing import Column
    from dlsched.client.records import Usage

SCHEMA = "dlsched.usage/1"


@with_option_groups
def usage_command(
    by_user: Annotated[bool, option("--by-user", "By user, not by account.")] = False,
    since: Annotated[str | None, option("--since -S TIME", "7d (ago), a day, a time.")] = None,
    *,
    output: JsonOptions,
    daemon: DaemonOptions,
) -> None:
    """GPU time by account (or user): hours, share, GPUs now, entitlement, jobs waiting."""
    from dlsched.cli.output.json_output import object_of, print_json, print_json_lines  # noqa: PLC0415
    from dlsched.cli.output.listing import print_listing  # noqa: PLC0415
    from dlsched.cli.output.terminal import terminal  # noqa: PLC0415
    from dlsched.cli.output.times import moment_or_ago  # noqa: PLC0415

    out = terminal(output.colour)
    start = moment_or_ago("--since", since) if since is not None else None
    with daemon.client() as cluster:
        found = cluster.usage(by_user=by_user, since=start)
    if output.as_lines:
        print_json_lines(map(object_of, found))
    elif output.as_json:
        print_json(SCHEMA, by="user" if by_user else "vc", usage=map(object_of, found))
    else:
        ordered = sorted(found, key=lambda each: (-each.gpu_s, each.name))
        print_listing(_columns(found, by_user=by_user), ordered, out)


def _columns(found: list[Usage], *, by_user: bool) -> list[Column[Usage]]:
    from dlsched.cli.output.listing import Column  # noqa: PLC0415

    total = sum(each.gpu_s for each in found)

    def share(each: Usage) -> str:
        return f"{100 * each.gpu_s / total:.1f} %" if total else "-"

    def entitled(each: Usage) -> str:
        return "-" if each.entitlement is None else f"{each.entitlement:g}"

    title = "USER" if by_user else "VC"
    return [
        Column("name", title, "name", lambda each: each.name or "-", least=8),
        Column("gpu_hours", "GPU-HOURS", "", lambda each: f"{each.gpu_s / 3600:.2f}", right=True),
        Column("share", "SHARE", "", share, right=True),
        Column("now", "GPUS NOW", "", lambda each: str(each.gpus_now), right=True),
        Column("entitled", "ENTITLED", "", entitled, right=True),
        Column("pending", "PENDING", "", lambda each: str(each.pending), right=True),
    ]
