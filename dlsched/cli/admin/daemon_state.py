"""`dlsched admin status`, `set-policy`, `reload`, `snapshot`, `node-down`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dlsched.cli.admin.part_options import PartOptions
from dlsched.cli.completions import policies
from dlsched.cli.daemon_options import DaemonOptions, report
from dlsched.cli.option_groups import option
from dlsched.cli.output.output_options import AsJson, ColourOption
from dlsched.core.errors import BadInput, plural

if TYPE_CHECKING:
    from dlsched.rpc.v1.control_pb2 import StatusReply

SCHEMA = "dlsched.status/1"


def status_command(
    as_json: AsJson = False,
    colour: ColourOption = "auto",
    *,
    daemon: DaemonOptions,
) -> None:
    """Leader, database, agents, last round, queue and policy; problems first."""
    from dlsched.cli.output.json_output import print_json  # noqa: PLC0415
    from dlsched.cli.output.terminal import shown, terminal  # noqa: PLC0415

    out = terminal(colour)
    with daemon.client() as cluster:
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
    for alarm in found.past:
        typer.echo(f"over      {shown(alarm)}")
    for key, value in _lines(found):
        typer.echo(f"{key:<8}  {shown(value)}")


def set_policy_command(
    policy: Annotated[
        str | None,
        typer.Argument(
            metavar="[POLICY]", help="A name of `dlsched policy list`.", autocompletion=policies
        ),
    ] = None,
    *,
    chosen: PartOptions,
    daemon: DaemonOptions,
) -> None:
    """Switch the policy, or parts of it, from the next round on. Operators only."""
    parts = chosen.parts(policy)
    if not parts and not chosen.option:
        raise BadInput("name a policy, a part or an option")
    with daemon.client() as cluster:
        reply = cluster.set_policy(parts, chosen.option or [])
    told = [f"{stage} {name}" for stage, name in sorted(reply.parts.items())]
    typer.echo("now " + ", ".join([*told, *reply.options]))


def reload_command(*, daemon: DaemonOptions) -> None:
    """Read the daemon's configuration again: all of it, or none when it is wrong."""
    from dlsched.cli.output.terminal import shown  # noqa: PLC0415

    with daemon.client() as cluster:
        changes = cluster.reload()
    for line in changes:
        typer.echo(shown(line))
    if not changes:
        typer.echo("nothing has changed")


def snapshot_command(
    output: Annotated[str, option("--output -o FILE", "A file to write; -: stdout.")],
    *,
    daemon: DaemonOptions,
) -> None:
    """Save what the policy sees, for `replay --snapshot`. Operators only."""
    with daemon.client() as cluster:
        chunks = cluster.snapshot()
        if output == "-":
            for chunk in chunks:
                sys.stdout.buffer.write(chunk)
            return
        from dlsched.cli.output.file_output import save  # noqa: PLC0415

        size = save(chunks, output)
    typer.echo(f"{output}: {size} bytes")


def node_down_command(
    hosts: Annotated[list[str], typer.Argument(metavar="HOSTS…", help="n1 or n[1-3,7].")],
    confirmed: Annotated[
        bool, option("--confirmed", "Confirm that nothing runs there any more.")
    ] = False,
    reason: Annotated[str, option("--reason TEXT", "Stored with the node.")] = "",
    *,
    daemon: DaemonOptions,
) -> None:
    """Confirm that a silent node is down, so that its jobs may start elsewhere. Operators only."""
    from dlsched.client.submission.texts import check_text  # noqa: PLC0415
    from dlsched.core.cluster.host_lists import node_names  # noqa: PLC0415

    if not confirmed:
        raise BadInput(
            "--confirmed is needed: if the node still runs its jobs, they will run twice"
        )
    check_text("--reason", reason, empty=True)
    names = node_names("node", hosts)
    with daemon.client() as cluster:
        report(cluster.set_nodes("down", names, reason=reason), "declared down", kind="node")


def _lines(found: StatusReply) -> Iterator[tuple[str, str]]:
    from dlsched.client.submission.durations import duration_text  # noqa: PLC0415

    yield "cluster", f"{found.cluster or '-'}, dlsched {found.version or '-'}"
    leader = f"{found.leader or '-'}, epoch {found.epoch}"
    if found.standby:
        yield (
            "role",
            f"standby, up {duration_text(found.up_s)}: jobs, nodes and rounds are the leader's",
        )
        yield "leader", leader
        yield "database", found.database or "-"
        return
    yield "role", f"leads, up {duration_text(found.up_s)}"
    yield "leader", leader
    if found.standbys:
        yield "standbys", ", ".join(found.standbys)
    yield "database", found.database or "-"
    parts = ", ".join(
        f"{stage} {name}" for stage, name in sorted(found.parts.items()) if stage != "scheduling"
    )
    yield "policy", (found.policy or "-") + (f" ({parts})" if parts else "")
    if found.policy_failures:
        yield (
            "failures",
            f"{plural(found.policy_failures, 'round')} failed since the daemon's start",
        )
    yield "round", f"{found.round}, {found.round_s * 1000:.0f} ms" if found.round else "none yet"
    yield (
        "nodes",
        f"{found.nodes_up} up, {found.nodes_late} late, {found.nodes_down} down"
        + (f", {found.nodes_unheard} not heard yet" if found.nodes_unheard else ""),
    )
    yield "jobs", f"{found.running} running, {found.pending} pending"


def _status(found: StatusReply) -> dict[str, Any]:
    texts = ("health", "leader", "database", "policy", "version", "cluster")
    numbers = ("epoch", "policy_failures", "nodes_up", "nodes_late", "nodes_down", "nodes_unheard")
    return {
        **{key: getattr(found, key) or None for key in texts},
        **{key: getattr(found, key) for key in (*numbers, "pending", "running")},
        "standby": found.standby,
        "standbys": list(found.standbys),
        "problems": list(found.problems),
        "past": list(found.past),
        "parts": dict(sorted(found.parts.items())),
        "round": found.round or None,
        "round_s": round(found.round_s, 6) if found.round else None,
        "up_s": round(found.up_s, 3),
    }
