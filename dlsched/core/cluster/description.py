"""The cluster as a table: one row a node, GPUs numbered node by node.

A `Cluster` is immutable and holds every node that will ever be in service; whether a node is in
service *now* is kept by `Occupancy`. GPU ids are global: node order first, then the index inside
the node. GPU types keep the order in which they are declared.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, pairwise
from typing import Any

import numpy as np

from dlsched.core.arrays import Floats, Ints
from dlsched.core.cluster.cell_shapes import cells_by_topology
from dlsched.core.cluster.cell_tables import grants_of, pins_of, plan_from_tables
from dlsched.core.cluster.cells import CellPlan, Grant
from dlsched.core.cluster.gpus_by_type import masks_by_type
from dlsched.core.cluster.host_lists import expand
from dlsched.core.cluster.site_rules import SiteRules, rules_from_tables
from dlsched.core.errors import BadInput, not_known, plural, shorten
from dlsched.nodes.fields import ROWS, NodeFacts

ANY_TYPE = "gpu"  # the type of nodes whose spec names none
GIB = 2.0**30  # bytes
# Ten times the largest machines there are: more is a slip of the pen, and would fill the memory.
MOST_NODES, MOST_GPUS = 100_000, 1_024


@dataclass(frozen=True, slots=True, kw_only=True)
class Node(NodeFacts):
    """One machine with its GPUs; its memory of GPUs is that of each."""

    name: str
    gpus: int
    gpu_type: str = ANY_TYPE
    features: tuple[str, ...] = ()
    nvlink: tuple[int, ...] = ()  # the number of each GPU's NVLink domain
    gpu_types: tuple[str, ...] = ()  # of each GPU, in small letters, where they are of several


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualCluster:
    """A tenant's share: nodes of its own (a hard partition) or a number of GPUs (a quota).

    Attributes:
        name: as the jobs' `vc` column spells it.
        nodes: names of the nodes that are its own; empty for a quota.
        gpus: GPUs it may use at once; -1 for a partition.
        guaranteed: GPUs it gets back from borrowers on demand; equals `gpus` unless given.
        borrow: may it use what other tenants leave idle?
        parent: the quota that it is a part of; what it uses counts there too.
        cells: cells that it owns, wherever they are.
        pinned: names of the very cells that it owns.
    """

    name: str
    nodes: tuple[str, ...] = ()
    gpus: int = -1
    guaranteed: int = -1
    borrow: bool = False
    parent: str = ""
    cells: tuple[Grant, ...] = ()
    pinned: tuple[str, ...] = ()


class Cluster:
    """Nodes as columns.

    Attributes:
        nodes: the nodes, in declared order.
        gpus: GPUs per node.
        first_gpu: global id of each node's GPU 0.
        gpu_types: distinct types, in declared order; also those that a node may get later.
        node_type: index into `gpu_types` per node.
        switch_of: number of the node's leaf switch, in declared order of the switches.
        cpus, memory_gb: per node, NaN when unknown.
        gpu_memory: GiB of each GPU by type, NaN when unknown.
        mixed: by node with GPUs of several types, its GPUs of each as bits.
        tracks_host: are CPUs or memory of any node known?
        vcs: virtual clusters, by name.
        said_cells: the cells of its machines; None where nothing says them.
        rules: accounts, priority classes, and how usage fades.
        spec: the text it was made from, for tables; else its nodes as such a text.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        vcs: Iterable[VirtualCluster] = (),
        *,
        spec: str = "",
        gpu_types: Iterable[str] = (),
        cells: CellPlan | None = None,
        rules: SiteRules | None = None,
    ) -> None:
        if not nodes:
            raise BadInput("the cluster has no nodes: give at least one, for example 4x8:v100")
        names = [node.name for node in nodes]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise BadInput(f"cluster: two nodes are named {twice}; names must differ")
        self.nodes: tuple[Node, ...] = tuple(nodes)
        self.names: tuple[str, ...] = tuple(names)
        self.gpus: Ints = np.array([node.gpus for node in nodes], np.int64)
        self.first_gpu: Ints = np.concatenate([[0], np.cumsum(self.gpus)[:-1]]).astype(np.int64)
        types = (*(node.gpu_type for node in nodes), *gpu_types)
        self.gpu_types: tuple[str, ...] = tuple(dict.fromkeys(types))
        self.node_type: Ints = np.array([self.gpu_types.index(n.gpu_type) for n in nodes], np.int64)
        switches = tuple(dict.fromkeys(node.switch for node in nodes))
        self.switch_of: Ints = np.array([switches.index(n.switch) for n in nodes], np.int64)
        self.cpus: Floats = np.array([node.cpus for node in nodes], np.float64)
        self.memory_gb: Floats = np.array([node.memory_gb for node in nodes], np.float64)
        self.tracks_host = not (np.isnan(self.cpus).all() and np.isnan(self.memory_gb).all())
        self.gpu_memory: Floats = _memory_by_type(self.nodes, self.gpu_types)
        self.mixed: Mapping[int, Mapping[str, int]] = {
            k: masks_by_type(node.gpu_types) for k, node in enumerate(nodes) if node.gpu_types
        }
        self.vcs: Mapping[str, VirtualCluster] = {vc.name: vc for vc in vcs}
        self.said_cells = cells
        self.rules = rules or SiteRules()
        self.spec = spec or _spec_of(self.nodes)
        self._check_vcs()

    def node_of_gpu(self, gpu: int) -> int:
        """The node of a GPU, by its global id."""
        return int(self.first_gpu.searchsorted(gpu, side="right")) - 1

    def _check_vcs(self) -> None:
        owner: dict[str, str] = {}
        for vc in self.vcs.values():
            for name in vc.nodes:
                if name not in self.names:
                    raise BadInput(f"cluster: vc {vc.name} names node {name}, which does not exist")
                if name in owner:
                    raise BadInput(
                        f"cluster: node {name} belongs to vc {owner[name]} and {vc.name}"
                    )
                owner[name] = vc.name
            if vc.parent:
                self._check_parent(vc)
        for vc in self.vcs.values():
            parts = sum(other.guaranteed for other in self.vcs.values() if other.parent == vc.name)
            if parts > vc.guaranteed >= 0:
                raise BadInput(
                    f"cluster: the parts of vc {vc.name} are guaranteed {plural(parts, 'GPU')}, "
                    f"it has {vc.guaranteed}"
                )

    def _check_parent(self, vc: VirtualCluster) -> None:
        above, seen = self.vcs.get(vc.parent), {vc.name}
        if above is None:
            raise BadInput(f"cluster: vc {vc.name} is part of {vc.parent}, which does not exist")
        if vc.nodes or above.nodes:
            own = vc.name if vc.nodes else above.name
            raise BadInput(f"cluster: vc {own} has nodes of its own; only quotas have parts")
        while above is not None:
            if above.name in seen:
                raise BadInput(f"cluster: vc {above.name} is a part of itself")
            seen.add(above.name)
            above = self.vcs.get(above.parent)

    def __len__(self) -> int:
        return len(self.nodes)

    @property
    def total_gpus(self) -> int:
        """GPUs of all nodes, in service or not."""
        return int(self.gpus.sum())

    @property
    def largest_node(self) -> int:
        """GPUs of the largest node."""
        return int(self.gpus.max())

    @cached_property
    def cells(self) -> CellPlan:
        """The cells of its machines: those that were said, else those of its topology."""
        return cells_by_topology(self.nodes) if self.said_cells is None else self.said_cells

    @property
    def cell_owners(self) -> dict[str, tuple[tuple[Grant, ...], tuple[str, ...]]]:
        """By virtual cluster the cells that it owns, and the names of pinned ones."""
        vcs = self.vcs.values()
        return {vc.name: (vc.cells, vc.pinned) for vc in vcs if vc.cells or vc.pinned}

    def nodes_mask(self, chosen: Iterable[int]) -> int:
        """A set of nodes as the bits of one integer, bit k for node k."""
        mask = 0
        for node in chosen:
            mask |= 1 << node
        return mask


def _memory_by_type(nodes: Iterable[Node], types: Sequence[str]) -> Floats:
    """GiB of a GPU of each type.

    Raises:
        BadInput: GPUs of one type have two sizes of memory.
    """
    found = np.full(len(types), np.nan)
    for node in nodes:
        code, size = types.index(node.gpu_type), node.gpu_memory_gib
        if not np.isnan(found[code]) and not np.isnan(size) and found[code] != size:
            raise BadInput(
                f"cluster: GPUs of type {node.gpu_type} have {found[code]:g} and {size:g} GiB of "
                "memory; give the two kinds types of their own"
            )
        found[code] = size if np.isnan(found[code]) else found[code]
    return found


_PART = re.compile(
    r"(?P<count>[0-9]{1,12})x(?P<gpus>[0-9]{1,12})(?::(?P<type>[A-Za-z0-9_.\-]+))?"
    r"(?:@(?P<gib>[0-9]{1,6}(?:\.[0-9]{1,3})?))?"
)


def parse_cluster_spec(spec: str) -> Cluster:
    """Read a spec such as `16x8:v100` or `4x4:v100+4x4:k80`: COUNTxGPUS[:TYPE], joined by `+`.

    `@16` behind a part gives its GPUs 16 GiB of memory. Nodes are named n1, n2, … in order; all
    hang on one switch.

    Raises:
        BadInput: a part does not read COUNTxGPUS[:TYPE], or a number is zero.
    """
    nodes: list[Node] = []
    for part in spec.split("+"):
        match = _PART.fullmatch(part.strip())
        if match is None:
            raise BadInput(
                f"cluster {shorten(spec)!r}: {shorten(part.strip())!r} does not read "
                "COUNTxGPUS[:TYPE][@GIB], for example 16x8:v100 or 4x4:v100@16+4x4:k80@12"
            )
        count, gpus = int(match["count"]), int(match["gpus"])
        if count == 0 or gpus == 0:
            raise BadInput(
                f"cluster {spec!r}: {part!r} has no GPUs; both numbers must be at least 1"
            )
        if len(nodes) + count > MOST_NODES or gpus > MOST_GPUS:
            raise BadInput(
                f"cluster {spec!r}: at most {MOST_NODES:,} nodes of at most {MOST_GPUS:,} GPUs"
            )
        for _ in range(count):
            name = f"n{len(nodes) + 1}"
            nodes.append(
                Node(
                    name=name,
                    gpus=gpus,
                    gpu_type=match["type"] or ANY_TYPE,
                    gpu_memory_gib=float(match["gib"] or np.nan),
                )
            )
    return Cluster(nodes, spec=spec)


def _spec_of(nodes: Iterable[Node]) -> str:
    """The nodes as `parse_cluster_spec` reads them: `2x4:v100+1x2:a100`."""
    parts = []
    for (gpus, kind, memory), alike in groupby(
        nodes, key=lambda node: (node.gpus, node.gpu_type, f"{node.gpu_memory_gib:g}")
    ):
        count = sum(1 for _ in alike)
        part = f"{count}x{gpus}" + (f":{kind}" if kind != ANY_TYPE else "")
        parts.append(part + (f"@{memory}" if memory != "nan" else ""))
    return "+".join(parts)


_NODE_KEYS = {
    "count", "gpus", "gpu_type", "name", "features",
    *(name for name, row in ROWS.items() if row.simulated),
}  # fmt: skip
_VC_KEYS = {"name", "gpus", "nodes", "guaranteed", "borrow", "parent", "cells", "pinned"}


def cluster_from_tables(document: Mapping[str, Any], *, where: str) -> Cluster:
    """Build a cluster from the parsed TOML of the file `where`, with `[[nodes]]`, `[[vcs]]`, ….

    Raises:
        BadInput: an unknown key, a missing one, or a value of the wrong kind.
    """
    known = {"nodes", "vcs", "partitions", "topology", "cell_types", "physical_cells"}
    known |= {"accounts", "classes", "fair_share"}
    for key in document:
        if key not in known:
            raise not_known(f"{where}: table", key, sorted(known))
    nodes: list[Node] = []
    for number, entry in enumerate(_entries(document, "nodes", where), 1):
        nodes.extend(_nodes_of(entry, f"{where}: [[nodes]] {number}", len(nodes)))
    names = {node.name for node in nodes}
    vcs = [
        _vc_of(entry, f"{where}: [[vcs]] {number}", names)
        for number, entry in enumerate(_entries(document, "vcs", where), 1)
    ]
    for before, after in pairwise(sorted(vcs, key=lambda vc: vc.name)):
        if before.name == after.name:
            raise BadInput(f"{where}: two [[vcs]] are named {after.name}")
    if not nodes:
        raise BadInput(f"{where}: no [[nodes]]; give at least one with gpus = N")
    plan = plan_from_tables(document, where=where)
    rules = rules_from_tables(document, where=where)
    cluster = Cluster(nodes, vcs, spec=where, cells=plan, rules=rules)
    if plan is not None:
        plan.check_nodes({n.name: (n.gpus, n.gpu_type) for n in nodes}, where=where)
    if cluster.cell_owners:
        cluster.cells.check_owners(cluster.cell_owners, where=where)
    return cluster


def _entries(document: Mapping[str, Any], name: str, where: str) -> list[Mapping[str, Any]]:
    """The entries of an array of tables."""
    entries = document.get(name, [])
    if not isinstance(entries, list) or not all(isinstance(entry, Mapping) for entry in entries):
        raise BadInput(f"{where}: {name} must be tables that begin with [[{name}]]")
    return entries


def _nodes_of(entry: Mapping[str, Any], where: str, already: int) -> list[Node]:
    for key in entry:
        if key not in _NODE_KEYS:
            raise not_known(f"{where}: key", key, sorted(_NODE_KEYS))
    gpus = entry.get("gpus", 0)
    for key, value, most in (
        ("gpus", gpus, MOST_GPUS),
        ("count", entry.get("count", 1), MOST_NODES),
    ):
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
            raise BadInput(
                f"{where}: {key} must be a whole number from 1 to {most:,}, not {value!r}"
            )
    count = entry.get("count")
    if "name" in entry:
        names = expand(f"{where}: name", str(entry["name"]))
        if count is not None and count != len(names):
            raise BadInput(
                f"{where}: count is {count} but name {entry['name']!r} lists {len(names)}"
            )
    else:
        names = [f"n{already + k + 1}" for k in range(count or 1)]
    facts: dict[str, Any] = {
        key: str(entry[key]) if ROWS[key].form == "text" else _number(entry, key, where)
        for key in ROWS.keys() & entry.keys()
    }
    facts.setdefault("switch", facts.get("rack", ""))
    return [
        Node(
            name=name,
            gpus=gpus,
            gpu_type=str(entry.get("gpu_type", ANY_TYPE)),
            features=_features(entry, where),
            **facts,
        )
        for name in names
    ]


def _features(entry: Mapping[str, Any], where: str) -> tuple[str, ...]:
    listed = entry.get("features", [])
    if not isinstance(listed, list) or not all(isinstance(each, str) and each for each in listed):
        raise BadInput(f"{where}: features must be a list of names, not {listed!r}")
    return tuple(listed)


def _number(entry: Mapping[str, Any], key: str, where: str) -> float:
    value = entry.get(key, np.nan)
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        raise BadInput(f"{where}: {key} must be a number of at least 0, not {value!r}")
    return float(value)


def _vc_of(entry: Mapping[str, Any], where: str, names: set[str]) -> VirtualCluster:
    for key in entry:
        if key not in _VC_KEYS:
            raise not_known(f"{where}: key", key, sorted(_VC_KEYS))
    name = str(entry.get("name", ""))
    if not name:
        raise BadInput(f"{where}: name is missing")
    borrow = entry.get("borrow", False)
    if not isinstance(borrow, bool):
        raise BadInput(f"{where}: borrow must be true or false, not {borrow!r}")
    parent = entry.get("parent", "")
    if not isinstance(parent, str):
        raise BadInput(f"{where}: parent must be the name of a virtual cluster, not {parent!r}")
    forms = ("gpus" in entry) + ("nodes" in entry) + ("cells" in entry or "pinned" in entry)
    if forms != 1:
        raise BadInput(f"{where}: give either gpus (a quota) or nodes (its own machines), or cells")
    if "gpus" not in entry and "nodes" not in entry:
        return VirtualCluster(
            name=name,
            cells=grants_of(entry.get("cells", []), f"{where}: cells"),
            pinned=pins_of(entry.get("pinned", []), f"{where}: pinned"),
        )
    if "nodes" in entry:
        hosts = entry["nodes"]
        listed = hosts if isinstance(hosts, str) else ",".join(map(str, hosts))
        own = expand(f"{where}: nodes", listed) if listed else []
        for host in own:
            if host not in names:
                raise BadInput(f"{where}: node {host} does not exist")
        return VirtualCluster(name=name, nodes=tuple(own), borrow=borrow, parent=parent)
    gpus, guaranteed = entry["gpus"], entry.get("guaranteed", entry["gpus"])
    for key, value in (("gpus", gpus), ("guaranteed", guaranteed)):
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise BadInput(f"{where}: {key} must be a whole number of at least 0, not {value!r}")
    return VirtualCluster(name=name, gpus=gpus, guaranteed=guaranteed, borrow=borrow, parent=parent)
