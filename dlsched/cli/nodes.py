"""`dlsched nodes`, `drain`, `resume-node`: machines, their GPUs, and who takes them out."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from dlsched.cli.connect import (
    AsJson,
    AsJsonLines,
    ColourOption,
    DaemonOption,
    InsecureOption,
    client,
    report,
)
from dlsched.core.errors import BadInput

if TYPE_CHECKING:
    from dlsched.client.cluster import Client

__all__ = ["drain_command", "nodes_command", "resume_node_command"]

SCHEMA = "dlsched.nodes/1"
Hosts = Annotated[list[str], typer.Argument(metavar="HOSTS…", help="n1 or n[1-3,7].")]


def nodes_command(
    hosts: Annotated[
        list[str] | None, typer.Argument(metavar="[HOSTS…]", help="n1 or n[1-3,7]. [default: all]")
    ] = None,
    reasons: Annotated[
        bool, typer.Option("--reasons", "-R", help="Those that are out, why, by whom, since when.")
    ] = False,
    gpus: Annotated[bool, typer.Option("--gpus", help="A line a GPU.")] = False,
    columns: Annotated[
        str | None, typer.Option("--format", "-o", metavar="NAME,…", help="Columns by name.")
    ] = None,
    about_columns: Annotated[
        str | None, typer.Option("--columns", metavar="help", help="List the columns and exit.")
    ] = None,
    no_header: Annotated[bool, typer.Option("--noheader", "-h", help="No titles.")] = False,
    as_json: AsJson = False,
    as_lines: AsJsonLines = False,
    colour: ColourOption = "auto",
    daemon: DaemonOption = None,
    insecure: InsecureOption = False,
) -> None:
    """List nodes: state, GPUs busy of all, jobs; `*` after a state: does not respond."""
    from dlsched.cli.json_output import object_of, print_json, print_json_lines  # noqa: PLC0415
    from dlsched.cli.listing import chosen_columns, described, listing  # noqa: PLC0415
    from dlsched.cli.node_columns import (  # noqa: PLC0415
        GPU_COLUMNS,
        GPUS,
        NODES,
        REASONS,
        GpuRow,
        node_columns,
    )
    from dlsched.cli.terminal import terminal  # noqa: PLC0415

    out = terminal(colour)
    known = node_columns(out)
    if about_columns is not None:
        typer.echo("\n".join(described(GPU_COLUMNS) if gpus else described(known)))
        return
    if columns is not None and (as_json or as_lines):
        raise BadInput("-o: JSON has all fields; leave it out")
    if reasons and gpus:
        raise BadInput("-R and --gpus: only one of them")
    names = _names(hosts or [])
    with client(daemon, insecure) as cluster:
        found = cluster.nodes(names)
    if reasons:
        found = [node for node in found if node.reason]
    if as_lines:
        print_json_lines(map(object_of, found))
    elif as_json:
        print_json(SCHEMA, nodes=map(object_of, found))
    elif gpus:
        chosen = chosen_columns(GPU_COLUMNS, columns or GPUS)
        rows = [GpuRow(node, gpu) for node in found for gpu in node.devices]
        _write(listing(chosen, rows, out, header=not no_header))
    else:
        wanted = columns or (REASONS if reasons else NODES)
        _write(listing(chosen_columns(known, wanted), found, out, header=not no_header))


def drain_command(
    hosts: Hosts,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; is needed.")],
    now: Annotated[
        bool, typer.Option("--now", help="Preempt what runs there, with grace.")
    ] = False,
    by: Annotated[
        str | None, typer.Option("--by", metavar="TIME", help="Preempt what still runs then.")
    ] = None,
    daemon: DaemonOption = None,
    insecure: InsecureOption = False,
) -> None:
    """Start nothing more on nodes; lists the jobs that still hold them. Operators only."""
    from datetime import datetime  # noqa: PLC0415

    from dlsched.client.submission.moments import moment  # noqa: PLC0415
    from dlsched.client.submission.texts import check_text  # noqa: PLC0415

    if now and by is not None:
        raise BadInput("--now and --by: only one of them")
    check_text("--reason", reason)
    names = _names(hosts)
    at = moment("--by", by, now=datetime.now().astimezone()) if by is not None else None
    if at is not None and at < time.time():
        raise BadInput(f"--by: {by} has passed")
    with client(daemon, insecure) as cluster:
        acted = cluster.set_nodes("drain", names, reason=reason, now=now, by_at=at)
        held = list(_held(cluster, list(acted.done)))
        for line in held:
            typer.echo(line)
        report(acted, "draining", kind="node")


def resume_node_command(
    hosts: Hosts, daemon: DaemonOption = None, insecure: InsecureOption = False
) -> None:
    """Take drained or down nodes back into service. Operators only."""
    names = _names(hosts)
    with client(daemon, insecure) as cluster:
        report(cluster.set_nodes("resume", names), "resumed", kind="node")


def _names(hosts: list[str]) -> list[str]:
    from dlsched.client.submission.hosts import expand  # noqa: PLC0415

    return list(dict.fromkeys(name for word in hosts for name in expand("node", word)))


def _held(cluster: Client, names: list[str]) -> Iterator[str]:
    """What still runs on nodes, a line a node."""
    if not names:
        return
    for node in cluster.nodes(names):
        if node.jobs:
            count = len(node.jobs)
            told = ", ".join(map(str, node.jobs))
            yield f"{node.name}: still held by {count} job{'' if count == 1 else 's'}: {told}"


def _write(lines: Iterator[str]) -> None:
    for line in lines:
        sys.stdout.write(line + "\n")
