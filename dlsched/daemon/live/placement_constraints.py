"""Where jobs may run: their pools of nodes and the shapes of their gangs, and their extra columns.

The nodes that a job may use form a pool. A text made of what the job asks for names the pool, so
that it is the same pool after a restart; its number is given once and kept.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlsched.core.cluster.description import GIB
from dlsched.core.cluster.features import alternatives_of, features_of, holds
from dlsched.core.cluster.gpus_by_type import ByType, by_type_of
from dlsched.daemon.live.job_columns import JobColumns
from dlsched.daemon.live.nodes import ClusterRules, LiveNodes
from dlsched.daemon.reported.speeds import Kind, kind_of
from dlsched.db.records import JobBody
from dlsched.jobs.fields import FURTHER

GB = 1e9
SPARES = "spares"  # follows in the key of a pool that has the spare nodes, too
# virtual cluster, partition, GPU types, only these nodes, not these, a constraint, bytes of /tmp,
# and what few jobs say: GPUs by type
PoolKey = tuple[
    str, str, tuple[str, ...], tuple[str, ...], tuple[str, ...], str, int, *tuple[str, ...]
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What jobs with one body ask for, before they have ids.

    Attributes:
        pool: what names their pool of nodes.
        shape: GPUs on each node; empty: anywhere.
        by_type: how many of each type these are; empty: of any.
        most_nodes: of a range of nodes; 0: it asks for none.
        host_nodes: the fewest and the most nodes of jobs without GPUs; 0: they have GPUs.
        whole_nodes: do they share their nodes with no other job?
        kind: of their training.
        extra: names and values of extra columns.
    """

    pool: PoolKey
    shape: tuple[int, ...]
    by_type: ByType
    most_nodes: int
    host_nodes: tuple[int, int]
    whole_nodes: bool
    kind: Kind
    extra: tuple[tuple[str, Any], ...]


def wishes_of(body: JobBody) -> Wishes:
    """What a body asks for."""
    gang = body.gang if body.gang is not None else (body.gpus,)
    asked = {name: getattr(body, row.name) for name, row in FURTHER.items()}
    extra = {**asked, **body.extra}
    return Wishes(
        pool=(
            body.vc,
            body.partition,
            tuple(sorted(body.gpu_types)),
            tuple(sorted(body.only_nodes)),
            tuple(sorted(body.not_nodes)),
            body.constraint,
            body.tmp_bytes or 0,
            *filter(None, [body.gpus_by_type]),
        ),
        shape=tuple(max(int(gpus), 1) for gpus in body.layout or ()),
        by_type=by_type_of(body.gpus_by_type),
        most_nodes=(body.max_nodes or 0) if sum(gang) else 0,
        host_nodes=(0, 0) if sum(gang) else (len(gang), body.max_nodes or len(gang)),
        whole_nodes=body.exclusive,
        kind=kind_of(body),
        extra=tuple(each for each in extra.items() if each[1] is not None and each[1] != ""),
    )


class PlacementConstraints:
    """Pools, shapes and extra columns of live jobs.

    Attributes:
        rules: partitions and virtual clusters.
        shapes: GPUs on each node, of jobs that ask for a layout.
        by_type: how many of each type these are, of jobs that say it.
        ranges: the most nodes that jobs take that ask for a range.
        whole_nodes: jobs that share their nodes with no other job.
        host_only: jobs that have no GPUs; the fewest and the most nodes on which each runs.
        kinds: model and batch size of live jobs, as `kind_of` has them.
    """

    def __init__(self, rules: ClusterRules) -> None:
        self.rules = rules
        self.shapes: dict[int, tuple[int, ...]] = {}
        self.by_type: dict[int, ByType] = {}
        self.ranges: dict[int, int] = {}
        self.whole_nodes: set[int] = set()
        self.host_only: dict[int, tuple[int, int]] = {}
        self.kinds: dict[int, Kind] = {}
        self._pools: dict[tuple[Any, ...], int] = {}  # by `PoolKey`, and `SPARES` or not
        self._on_spares: set[int] = set()
        self._extra: dict[str, dict[int, Any]] = {}
        self._made: tuple[tuple[int, int], tuple[tuple[str, bytes], ...]] | None = None

    def set_rules(self, rules: ClusterRules) -> None:
        """Set other partitions and virtual clusters."""
        self.rules = rules
        self._made = None

    def enter(self, jobs: Collection[int], wishes: Wishes) -> int:
        """Note what jobs ask for; returns the number of their pool."""
        if any(wishes.host_nodes):
            self.host_only.update(dict.fromkeys(jobs, wishes.host_nodes))
        elif wishes.shape:
            self.shapes.update(dict.fromkeys(jobs, wishes.shape))
        if wishes.by_type:
            self.by_type.update(dict.fromkeys(jobs, wishes.by_type))
        if wishes.most_nodes:
            self.ranges.update(dict.fromkeys(jobs, wishes.most_nodes))
        if wishes.whole_nodes:
            self.whole_nodes.update(jobs)
        self.kinds.update(dict.fromkeys(jobs, wishes.kind))
        for name, value in wishes.extra:
            self._extra.setdefault(name, {}).update(dict.fromkeys(jobs, value))
        pool: tuple[Any, ...] = wishes.pool
        if not self._on_spares.isdisjoint(jobs):  # one job, which is described anew
            pool = (*pool, SPARES)
        return self._pools.setdefault(pool, len(self._pools))

    def may_use_spares(self, job: int, may: bool) -> bool:
        """Let a job use spare nodes, or no longer; returns whether that changes its pool."""
        changes = may != (job in self._on_spares) and bool(self.rules.spares)
        if may and changes:
            self._on_spares.add(job)
        elif changes:
            self._on_spares.discard(job)
        return changes

    def end(self, job: int) -> None:
        """Remove a job that has ended."""
        self._on_spares.discard(job)
        self.forget(job)

    def forget(self, job: int) -> None:
        """Remove what a job asks for, as it asks for something else now."""
        self.shapes.pop(job, None)
        self.by_type.pop(job, None)
        self.ranges.pop(job, None)
        self.whole_nodes.discard(job)
        self.host_only.pop(job, None)
        self.kinds.pop(job, None)
        for values in self._extra.values():
            values.pop(job, None)

    def extra_columns(self, jobs: JobColumns) -> dict[str, NDArray[Any]]:
        """Extra columns of live jobs, `extra:NAME`: floats if every value is a number, or texts."""
        made: dict[str, NDArray[Any]] = {}
        for name, values in sorted(self._extra.items()):
            numbers = {job: _number(value) for job, value in values.items()}
            if not numbers:
                continue
            rows = [jobs.row_of[job] for job in values]
            if all(number is not None for number in numbers.values()):
                column: NDArray[Any] = np.full(jobs.count, np.nan)
                column[rows] = list(numbers.values())
            else:
                column = np.full(jobs.count, "", np.object_)
                column[rows] = [str(value) for value in values.values()]
            made[f"extra:{name}"] = column
        return made

    def pools(self, nodes: LiveNodes) -> tuple[tuple[str, bytes], ...]:
        """Every pool's text and nodes, one bit each, by the pool's number."""
        version = (nodes.version, len(self._pools))
        if self._made is None or self._made[0] != version:
            found = tuple((json.dumps(key), _bits(self._nodes(key, nodes))) for key in self._pools)
            self._made = (version, found)
        return self._made[1]

    def pool_mask(self, pool: int, nodes: LiveNodes) -> int:
        """The nodes of a pool, as bits by index."""
        return int.from_bytes(self.pools(nodes)[pool][1], "little")

    def _nodes(self, key: tuple[Any, ...], nodes: LiveNodes) -> Iterator[bool]:
        """Whether such a job may use each node, by index."""
        vc, partition, types, only, without, constraint, tmp_bytes, *more = key
        wanted, features = alternatives_of(constraint), self.rules.features
        by_type = by_type_of("".join(said for said in more if said != SPARES))
        owner = {name: tenant.name for tenant in self.rules.vcs for name in tenant.nodes}
        mine = vc if vc in owner.values() else None
        members = self.rules.partitions.get(partition) if partition else None
        for index in range(len(nodes)):
            node = nodes[index]
            yield (
                owner.get(node.name) == mine
                and (SPARES in more or node.name not in self.rules.spares)
                and (members is None or node.name in members)
                and (not types or node.gpu_type in types)
                and (not by_type or node.may_give(by_type))
                and (not only or node.name in only)
                and node.name not in without
                and not node.tmp_gb * GB < tmp_bytes  # NaN: not known
                and holds(wanted, features_of(features.get(node.name, ()), node.gpu_type))
            )

    @staticmethod
    def facts(text: str) -> dict[str, Any]:
        """The facts of a node's report, which is JSON, under the names that a cluster file uses."""
        try:
            facts = json.loads(text)
        except ValueError:
            return {}
        if not isinstance(facts, Mapping):
            return {}
        found = dict(facts)
        memory = _number(facts.get("memory_bytes"))  # 64-bit numbers are texts in JSON
        if memory:
            found["memory_gb"] = memory / GB
        tmp = _number(facts.get("tmp_bytes"))
        if tmp:
            found["tmp_gb"] = tmp / GB
        devices = facts.get("gpus")
        if isinstance(devices, list):
            types = {d.get("type", "") for d in devices if isinstance(d, Mapping)} - {""}
            if len(types) == 1:
                found["gpu_type"] = types.pop()
            found["gpu_types"] = {
                d.get("uuid", ""): str(d.get("type", "")).lower()
                for d in devices
                if isinstance(d, Mapping)
            }
            sizes = [_number(d.get("memory_bytes")) for d in devices if isinstance(d, Mapping)]
            if known := [size for size in sizes if size]:
                found["gpu_memory_gib"] = min(known) / GIB
            found["nvlink"] = _domains([d for d in devices if isinstance(d, Mapping)])
        return found


def _domains(devices: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """The number of each GPU's NVLink domain, by UUID; GPUs without links are alone in theirs."""
    number: dict[frozenset[str], int] = {}
    found = {}
    for device in devices:
        linked = device.get("linked", ())
        members = frozenset(map(str, [device.get("uuid", ""), *linked]))
        found[str(device.get("uuid", ""))] = number.setdefault(members, len(number))
    return found


def _bits(flags: Iterator[bool]) -> bytes:
    return np.packbits(np.fromiter(flags, np.bool_), bitorder="little").tobytes()


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None
