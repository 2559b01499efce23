"""`dlsched nodes`, `drain`, `resume-node`: nodes and GPUs, taken out of service and returned."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from dlsched.cli.completions import nodes
from dlsched.cli.daemon_options import DaemonOptions, report
from dlsched.cli.option_groups import option
from dlsched.cli.output.output_options import ListingOptions
from dlsched.core.errors import BadInput, plural

if TYPE_CHECKING:
    from dlsched.client.daemon_client import Client

SCHEMA = "dlsched.nodes/1"
Hosts = Annotated[
    list[str], typer.Argument(metavar="HOSTS…", help="n1 or n[1-3,7].", autocompletion=nodes)
]


def nodes_command(
    hosts: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[HOSTS…]", help="n1 or n[1-3,7]. [default: all]", autocompletion=nodes
        ),
    ] = None,
    reasons: Annotated[
        bool, option("--reasons -R", "Nodes out of service, with the reason.")
    ] = False,
    gpus: Annotated[bool, option("--gpus", "A line for each GPU.")] = False,
    *,
    output: ListingOptions,
    daemon: DaemonOptions,
) -> None:
    """List nodes: state, busy and all GPUs, jobs. `*` after a state: the node does not respond."""
    from dlsched.cli.nodes.node_columns import (  # noqa: PLC0415
        GPU_COLUMNS,
        GPUS,
        NODES,
        REASONS,
        GpuRow,
        node_columns,
    )
    from dlsched.cli.output.json_output import object_of, print_json, print_json_lines  # noqa: PLC0415
    from dlsched.cli.output.listing import chosen_columns, described, print_listing  # noqa: PLC0415
    from dlsched.cli.output.terminal import terminal  # noqa: PLC0415

    out = terminal(output.colour)
    known = node_columns(out)
    if output.about_columns is not None:
        typer.echo("\n".join(described(GPU_COLUMNS) if gpus else described(known)))
        return
    output.check()
    if reasons and gpus:
        raise BadInput("-R and --gpus: only one of them")
    names = _names(hosts or [])
    with daemon.client() as cluster:
        found = cluster.nodes(names)
    if reasons:
        found = [node for node in found if node.reason]
    if output.as_lines:
        print_json_lines(map(object_of, found))
    elif output.as_json:
        print_json(SCHEMA, nodes=map(object_of, found))
    elif gpus:
        chosen = chosen_columns(GPU_COLUMNS, output.columns or GPUS)
        rows = [GpuRow(node, gpu) for node in found for gpu in node.devices]
        print_listing(chosen, rows, out, header=not output.no_header)
    else:
        wanted = output.columns or (REASONS if reasons else NODES)
        print_listing(chosen_columns(known, wanted), found, out, header=not output.no_header)


def drain_command(
    hosts: Hosts,
    reason: Annotated[str, option("--reason TEXT", "Why; required.")],
    now: Annotated[bool, option("--now", "Preempt the jobs that run there.")] = False,
    by: Annotated[str | None, option("--by TIME", "Preempt jobs that still run then.")] = None,
    *,
    daemon: DaemonOptions,
) -> None:
    """Start no more jobs on nodes, and list the jobs that still run there. Operators only."""
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
    with daemon.client() as cluster:
        acted = cluster.set_nodes("drain", names, reason=reason, now=now, by_at=at)
        held = list(_held(cluster, list(acted.done)))
        for line in held:
            typer.echo(line)
        report(acted, "draining", kind="node")


def resume_node_command(hosts: Hosts, *, daemon: DaemonOptions) -> None:
    """Return drained or down nodes to service. Operators only."""
    names = _names(hosts)
    with daemon.client() as cluster:
        report(cluster.set_nodes("resume", names), "resumed", kind="node")


def _names(hosts: list[str]) -> list[str]:
    from dlsched.core.cluster.host_lists import node_names  # noqa: PLC0415

    return node_names("node", hosts)


def _held(cluster: Client, names: list[str]) -> Iterator[str]:
    """Describe the jobs that still run on nodes, in one line for each node."""
    if not names:
        return
    for node in cluster.nodes(names):
        if node.jobs:
            told = ", ".join(node.shown_ids(node.jobs))
            yield f"{node.name}: still held by {plural(len(node.jobs), 'job')}: {told}"
