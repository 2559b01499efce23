"""Cluster events from a CSV file: `time,event,node` and, where needed, `gpu_type,gpus`.

    time,event,node,gpu_type,gpus
    3600,fail,n3,,
    7200,join,n3,,
    9000,join,n[9-10],a100,8
    9000,retype,n1,a100,

Times are seconds from the trace's start and need no order. A node whose first event is a join is
absent until then; if the cluster does not know it, it is added, and needs its GPUs.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from dlsched.core.cluster.description import ANY_TYPE, Cluster, Node
from dlsched.core.cluster.host_lists import expand
from dlsched.core.errors import BadInput, not_known, plural
from simulate.clusters.cluster_events import ClusterEvent, Kind
from simulate.traces.textfile import open_text

KINDS: tuple[Kind, ...] = get_args(Kind)
REQUIRED = ("time", "event", "node")
COLUMNS = (*REQUIRED, "gpu_type", "gpus")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A line of the file, checked without the other lines."""

    where: str  # file:line
    time: float
    kind: Kind
    hosts: tuple[str, ...]
    gpu_type: str
    gpus: int  # 0 when not given


def read_events(path: str | Path, cluster: Cluster) -> tuple[Cluster, tuple[ClusterEvent, ...]]:
    """Read events (CSV, plain or gzip); extend the cluster by nodes and GPU types they bring.

    Returns:
        the cluster with every node that is ever in service, and the events by time (those of one
        time in the file's order).

    Raises:
        BadInput: one line with file and line number: a malformed row, an unknown node or event, a
            negative time, a join of a node in service, or anything else of one that is not.
    """
    rows = sorted(_rows(Path(path)), key=lambda row: row.time)
    extended = _extended(cluster, rows)
    events = tuple(
        ClusterEvent(
            time=row.time,
            kind=row.kind,
            node=extended.names.index(host),
            gpu_type=extended.gpu_types.index(row.gpu_type) if row.kind == "retype" else -1,
        )
        for row in rows
        for host in row.hosts
    )
    return extended, events


def _rows(path: Path) -> list[Row]:
    rows: list[Row] = []
    with open_text(path) as text:
        lines = csv.reader(text)
        header = [name.strip() for name in next(lines, [])]
        if not header:
            raise BadInput(f"{path}: the file is empty; it begins with time,event,node")
        for name in REQUIRED:
            if name not in header:
                raise BadInput(f"{path}:1: the column {name} is missing; needed: time,event,node")
        for name in header:
            if name not in COLUMNS or header.count(name) > 1:
                what = "comes twice" if name in COLUMNS else "is not known"
                raise BadInput(f"{path}:1: column {name!r} {what}; known: {', '.join(COLUMNS)}")
        for fields in lines:
            if not any(field.strip() for field in fields):
                continue
            where = f"{path}:{lines.line_num}"
            if len(fields) > len(header):
                raise BadInput(
                    f"{where}: {plural(len(fields), 'field')}, but the header has {len(header)}"
                )
            rows.append(_row(where, dict(zip(header, map(str.strip, fields), strict=False))))
    return rows


def _row(where: str, fields: Mapping[str, str]) -> Row:
    try:
        time = float(fields.get("time", ""))
    except ValueError:
        time = math.nan
    if not 0 <= time < math.inf:
        raise BadInput(f"{where}: time must be seconds from 0 on, not {fields.get('time', '')!r}")
    word = fields.get("event", "")
    kind = next((kind for kind in KINDS if kind == word), None)
    if kind is None:
        raise not_known(f"{where}: event", word, KINDS)
    if not fields.get("node"):
        raise BadInput(f"{where}: node is missing")
    hosts = tuple(expand(f"{where}: node", fields["node"]))
    gpu_type, gpus = fields.get("gpu_type", ""), fields.get("gpus", "")
    if kind == "retype" and not gpu_type:
        raise BadInput(f"{where}: a retype needs gpu_type")
    if gpu_type and kind not in ("join", "retype"):
        raise BadInput(f"{where}: {kind} takes no gpu_type")
    if gpus and kind != "join":
        raise BadInput(f"{where}: {kind} takes no gpus")
    if gpus and not (gpus.isascii() and gpus.isdigit() and 0 < int(gpus) < 1 << 20):
        raise BadInput(f"{where}: gpus must be a whole number of at least 1, not {gpus!r}")
    return Row(
        where=where, time=time, kind=kind, hosts=hosts, gpu_type=gpu_type, gpus=int(gpus or 0)
    )


def _extended(cluster: Cluster, rows: Sequence[Row]) -> Cluster:
    """The cluster with the nodes and GPU types that the events add; checks the events in order."""
    known = {node.name: node for node in cluster.nodes}
    first = {host: row.kind for row in reversed(rows) for host in row.hosts}
    serving = {name: first.get(name) != "join" for name in known}
    added: list[Node] = []
    for row in rows:
        for host in row.hosts:
            if host not in known:
                known[host] = _new_node(row, host)
                added.append(known[host])
                serving[host] = False
            _follow(row, host, known[host], serving)
    types = [row.gpu_type for row in rows if row.kind == "retype"]
    if not added and set(types) <= set(cluster.gpu_types):
        return cluster
    return Cluster(
        [*cluster.nodes, *added],
        cluster.vcs.values(),
        spec=cluster.spec + (f" and {len(added)} that join" if added else ""),
        gpu_types=[*cluster.gpu_types, *types],
    )


def _new_node(row: Row, host: str) -> Node:
    if row.kind != "join":
        raise BadInput(f"{row.where}: node {host} is not in the cluster")
    if not row.gpus:
        raise BadInput(f"{row.where}: node {host} is new, so its join needs gpus (and gpu_type)")
    return Node(name=host, gpus=row.gpus, gpu_type=row.gpu_type or ANY_TYPE)


def _follow(row: Row, host: str, node: Node, serving: dict[str, bool]) -> None:
    """Follow one event on one node.

    Raises:
        BadInput: it cannot happen to a node in this state.
    """
    if row.kind == "join":
        if serving[host]:
            raise BadInput(f"{row.where}: node {host} joins but is in service already")
        if row.gpus not in (0, node.gpus) or row.gpu_type not in ("", node.gpu_type):
            raise BadInput(
                f"{row.where}: node {host} has {plural(node.gpus, 'GPU')} of type "
                f"{node.gpu_type}; a join cannot change that (retype changes the type)"
            )
        serving[host] = True
    elif not serving[host]:
        raise BadInput(f"{row.where}: {row.kind} of node {host}, which is not in service then")
    elif row.kind in ("leave", "fail"):
        serving[host] = False
