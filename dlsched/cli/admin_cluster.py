"""`dlsched admin status`, `set-policy`, `reload`, `snapshot`, `node-down`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dlsched.cli.connect import (
    AsJson,
    ColourOption,
    DaemonOption,
    InsecureOption,
    client,
    report,
)
from dlsched.core.errors import BadInput, DlschedError

if TYPE_CHECKING:
    from dlsched.rpc.v1.control_pb2 import StatusReply

__all__ = [
    "node_down_command",
    "reload_command",
    "save",
    "set_policy_command",
    "snapshot_command",
    "status_command",
]

SCHEMA = "dlsched.status/1"


def status_command(
    as_json: AsJson = False,
    colour: ColourOption = "auto",
    daemon: DaemonOption = None,
    insecure: InsecureOption = False,
) -> None:
    """Leader, database, agents, last round, queue and policy; problems first."""
    from dlsched.cli.json_output import print_json  # noqa: PLC0415
    from dlsched.cli.terminal import shown, terminal  # noqa: PLC0415

    out = terminal(colour)
    with client(daemon, insecure) as cluster:
        found = cluster.status()
    if as_json:
        print_json(SCHEMA, status=_status(found))
        return
    style = {"green": "good", "yellow": "wait"}.get(found.health, "bad")
    typer.echo(
        f"health    {out.styled(shown(found.health or 'not known'), style)}", color=out.colour
    )
    for problem in found.problems:
        typer.echo(f"problem   {shown(problem)}")
    for key, value in _lines(found):
        typer.echo(f"{key:<8}  {shown(value)}")


def set_policy_command(
    policy: Annotated[
        str | None, typer.Argument(metavar="[POLICY]", help="A name of `dlsched policy list`.")
    ] = None,
    placement: Annotated[
        str | None, typer.Option("--placement", metavar="NAME", help="GPUs.")
    ] = None,
    admission: Annotated[
        str | None, typer.Option("--admission", metavar="NAME", help="Who enters.")
    ] = None,
    fairness: Annotated[
        str | None, typer.Option("--fairness", metavar="NAME", help="How tenants share.")
    ] = None,
    estimate: Annotated[
        str | None, typer.Option("--estimate", metavar="NAME", help="What is known of durations.")
    ] = None,
    option: Annotated[
        list[str] | None, typer.Option("--option", "-o", metavar="KEY=VALUE", help="As in replays.")
    ] = None,
    daemon: DaemonOption = None,
    insecure: InsecureOption = False,
) -> None:
    """Switch the policy, or parts of it, from the next round on. Operators only."""
    given = {
        "scheduling": policy,
        "placement": placement,
        "admission": admission,
        "fairness": fairness,
        "estimator": estimate,
    }
    parts = {stage: name for stage, name in given.items() if name is not None}
    if not parts and not option:
        raise BadInput("name a policy, a part or an option")
    for each in option or []:
        if "=" not in each or each.startswith("="):
            raise BadInput(f"-o: {each!r} is not KEY=VALUE")
    with client(daemon, insecure) as cluster:
        reply = cluster.set_policy(parts, option or [])
    told = [f"{stage} {name}" for stage, name in sorted(reply.parts.items())]
    typer.echo("now " + ", ".join([*told, *reply.options]))


def reload_command(daemon: DaemonOption = None, insecure: InsecureOption = False) -> None:
    """Read the daemon's configuration again: all of it, or none when it is wrong."""
    from dlsched.cli.terminal import shown  # noqa: PLC0415

    with client(daemon, insecure) as cluster:
        changes = cluster.reload()
    for line in changes:
        typer.echo(shown(line))
    if not changes:
        typer.echo("nothing has changed")


def snapshot_command(
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="Where to; -: standard output.")
    ],
    daemon: DaemonOption = None,
    insecure: InsecureOption = False,
) -> None:
    """Save what the policy sees, for looking into it elsewhere. Operators only."""
    with client(daemon, insecure) as cluster:
        chunks = cluster.snapshot()
        if output == "-":
            for chunk in chunks:
                sys.stdout.buffer.write(chunk)
            return
        size = save(chunks, output)
    typer.echo(f"{output}: {size} bytes")


def node_down_command(
    hosts: Annotated[list[str], typer.Argument(metavar="HOSTS…", help="n1 or n[1-3,7].")],
    confirmed: Annotated[
        bool, typer.Option("--confirmed", help="You know that nothing runs there any more.")
    ] = False,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Kept with it.")] = "",
    daemon: DaemonOption = None,
    insecure: InsecureOption = False,
) -> None:
    """Vouch that a silent node is down, so that its jobs may start elsewhere. Operators only."""
    from dlsched.client.submission.hosts import expand  # noqa: PLC0415
    from dlsched.client.submission.texts import check_text  # noqa: PLC0415

    if not confirmed:
        raise BadInput(
            "--confirmed is needed: if the node still runs its jobs, they will run twice"
        )
    check_text("--reason", reason, empty=True)
    names = [name for word in hosts for name in expand("node", word)]
    with client(daemon, insecure) as cluster:
        report(cluster.set_nodes("down", names, reason=reason), "declared down", kind="node")


def save(chunks: Iterator[bytes], output: str) -> int:
    """Write a file that appears whole or not at all; its size."""
    folder, name = os.path.split(output)
    part = os.path.join(folder, f".{name}.part")
    size = 0
    try:
        with open(part, "xb") as file:
            for chunk in chunks:
                size += file.write(chunk)
        os.replace(part, output)
    except OSError as error:
        raise DlschedError(f"{output}: can't be written ({error.strerror or error})") from None
    finally:
        if os.path.exists(part):
            os.unlink(part)
    return size


def _lines(found: StatusReply) -> Iterator[tuple[str, str]]:
    from dlsched.client.submission.durations import duration_text  # noqa: PLC0415

    yield "cluster", f"{found.cluster or '-'}, dlsched {found.version or '-'}"
    yield "leader", f"{found.leader or '-'}, epoch {found.epoch}, up {duration_text(found.up_s)}"
    yield "database", found.database or "-"
    parts = ", ".join(
        f"{stage} {name}" for stage, name in sorted(found.parts.items()) if stage != "scheduling"
    )
    yield "policy", (found.policy or "-") + (f" ({parts})" if parts else "")
    if found.policy_failures:
        yield "failures", f"{found.policy_failures} of the policy, one after the other"
    yield "round", f"{found.round}, {found.round_s * 1000:.0f} ms" if found.round else "none yet"
    yield (
        "nodes",
        f"{found.nodes_up} up, {found.nodes_late} late, {found.nodes_down} down",
    )
    yield "jobs", f"{found.running} running, {found.pending} pending"


def _status(found: StatusReply) -> dict[str, Any]:
    texts = ("health", "leader", "database", "policy", "version", "cluster")
    numbers = ("epoch", "policy_failures", "nodes_up", "nodes_late", "nodes_down")
    return {
        **{key: getattr(found, key) or None for key in texts},
        **{key: getattr(found, key) for key in (*numbers, "pending", "running")},
        "problems": list(found.problems),
        "parts": dict(sorted(found.parts.items())),
        "round": found.round or None,
        "round_s": round(found.round_s, 6) if found.round else None,
        "up_s": round(found.up_s, 3),
    }
