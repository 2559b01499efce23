"""`dlsched usage`: GPU time by account or user, beside what each is entitled to."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from dlsched.cli.connect import (
    AsJson,
    AsJsonLines,
    ColourOption,
    DaemonOption,
    InsecureOption,
    client,
)

if TYPE_CHECKING:
    from dlsched.cli.listing import Column
    from dlsched.client.views import Usage

__all__ = ["usage_command"]

SCHEMA = "dlsched.usage/1"


def usage_command(
    by_user: Annotated[bool, typer.Option("--by-user", help="By user, not by account.")] = False,
    since: Annotated[
        str | None, typer.Option("--since", "-S", metavar="TIME", help="7d (ago), a day, a time.")
    ] = None,
    as_json: AsJson = False,
    as_lines: AsJsonLines = False,
    colour: ColourOption = "auto",
    daemon: DaemonOption = None,
    insecure: InsecureOption = False,
) -> None:
    """GPU time by account (or user): used, now, share of all, entitled, and waiting."""
    from dlsched.cli.json_output import object_of, print_json, print_json_lines  # noqa: PLC0415
    from dlsched.cli.listing import listing  # noqa: PLC0415
    from dlsched.cli.since import moment_or_ago  # noqa: PLC0415
    from dlsched.cli.terminal import terminal  # noqa: PLC0415

    out = terminal(colour)
    start = moment_or_ago("--since", since) if since is not None else None
    with client(daemon, insecure) as cluster:
        found = cluster.usage(by_user=by_user, since=start)
    if as_lines:
        print_json_lines(map(object_of, found))
    elif as_json:
        print_json(SCHEMA, by="user" if by_user else "vc", usage=map(object_of, found))
    else:
        ordered = sorted(found, key=lambda each: (-each.gpu_s, each.name))
        for line in listing(_columns(found, by_user=by_user), ordered, out):
            sys.stdout.write(line + "\n")


def _columns(found: list[Usage], *, by_user: bool) -> list[Column[Usage]]:
    from dlsched.cli.listing import Column  # noqa: PLC0415

    total = sum(each.gpu_s for each in found)

    def share(each: Usage) -> str:
        return f"{100 * each.gpu_s / total:.1f} %" if total else "-"

    def entitled(each: Usage) -> str:
        return "-" if each.entitlement is None else f"{each.entitlement:g}"

    return [
        Column(
            name="name",
            title="USER" if by_user else "VC",
            doc="who",
            text=lambda each: each.name or "-",
            least=8,
        ),
        Column(
            name="gpu_hours",
            title="GPU-HOURS",
            doc="used",
            text=lambda each: f"{each.gpu_s / 3600:.2f}",
            align="right",
        ),
        Column(name="share", title="SHARE", doc="of all", text=share, align="right"),
        Column(
            name="now",
            title="GPUS NOW",
            doc="held",
            text=lambda each: str(each.gpus_now),
            align="right",
        ),
        Column(name="entitled", title="ENTITLED", doc="GPUs", text=entitled, align="right"),
        Column(
            name="pending",
            title="PENDING",
            doc="jobs",
            text=lambda each: str(each.pending),
            align="right",
        ),
    ]
