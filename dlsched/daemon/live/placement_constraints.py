"""Where jobs may run: their pools of nodes and the shapes of their gangs, and their extra columns.

The nodes that a job may use form a pool. A text made of what the job asks for names the pool, so
that it is the same pool after a restart; its number is given once and kept.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlsched.core.cluster.description import GIB
from dlsched.core.cluster.gpus_by_type import ByType, by_type_of
from dlsched.daemon.live.job_columns import JobColumns
from dlsched.daemon.live.nodes import ClusterRules, LiveNodes
from dlsched.daemon.live.pool_nodes import NOT_NODES, SPARES, PoolKey, PoolNodes
from dlsched.daemon.reported.speeds import Kind, kind_of
from dlsched.db.records import JobBody
from dlsched.jobs.fields import FURTHER
from dlsched.nodes.fields import of_report


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


class _Pools:
    """The pools of live jobs, by number. A number is used again when no job has it any more."""

    def __init__(self) -> None:
        self._number: dict[tuple[Any, ...], int] = {}  # by `PoolKey`, and `SPARES` or not
        self._keys: list[tuple[Any, ...]] = []
        self._texts: list[str] = []  # empty: the number is free
        self._jobs: list[int] = []  # how many
        self._free: list[int] = []
        self._of_job: dict[int, int] = {}
        self._masks: dict[int, int] = {}
        self._present: tuple[int, ClusterRules, PoolNodes] | None = None
        self._all: tuple[tuple[str, bytes], ...] | None = None

    def enter(self, jobs: Collection[int], key: tuple[Any, ...]) -> int:
        """The number of the pool of some jobs."""
        number = self._number.get(key)
        if number is None:
            if not self._free:
                self._free.append(len(self._keys))
                self._keys.append(())
                self._texts.append("")
                self._jobs.append(0)
            number = self._number[key] = self._free.pop()
            self._keys[number], self._texts[number] = key, json.dumps(key)
            self._changed(number)
        self._jobs[number] += len(jobs)
        self._of_job.update(dict.fromkeys(jobs, number))
        return number

    def forget(self, job: int) -> None:
        """Remove a job from its pool."""
        number = self._of_job.pop(job, None)
        if number is None:
            return
        self._jobs[number] -= 1
        if not self._jobs[number]:
            del self._number[self._keys[number]]
            self._keys[number], self._texts[number] = (), ""
            self._free.append(number)
            self._changed(number)

    def _changed(self, number: int) -> None:
        self._masks.pop(number, None)
        self._all = None

    def nodes(self, number: int, nodes: LiveNodes, rules: ClusterRules) -> int:
        """The nodes of a pool, as bits by index; none of a number that is free."""
        present = self._present
        if present is None or present[0] != nodes.version or present[1] is not rules:
            present = self._present = (nodes.version, rules, PoolNodes(nodes, rules))
            self._masks.clear()
            self._all = None
        mask = self._masks.get(number)
        if mask is None:
            key = self._keys[number]
            mask = self._masks[number] = present[2].of(key) if key else 0
        return mask

    def all(self, nodes: LiveNodes, rules: ClusterRules) -> tuple[tuple[str, bytes], ...]:
        """Every pool's text and nodes, by number."""
        masks = [self.nodes(number, nodes, rules) for number in range(len(self._keys))]
        if self._all is None:
            size = (len(nodes) + 7) // 8
            each = (mask.to_bytes(size, "little") for mask in masks)
            self._all = tuple(zip(self._texts, each, strict=True))
        return self._all


class _Values:
    """The values of one extra column, by job, in the order in which the jobs came."""

    def __init__(self) -> None:
        self.all: dict[int, Any] = {}
        self.numbers: dict[int, float] = {}  # of those that are numbers

    def enter(self, jobs: Collection[int], value: Any) -> None:
        """Note the value of some jobs."""
        self.all.update(dict.fromkeys(jobs, value))
        number = _number(value)
        if number is not None:
            self.numbers.update(dict.fromkeys(jobs, number))

    def forget(self, job: int) -> None:
        """Remove a job's value."""
        self.all.pop(job, None)
        self.numbers.pop(job, None)


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
        avoided: the nodes that jobs are kept from, as their starts have failed there.
    """

    def __init__(self, rules: ClusterRules) -> None:
        self.rules = rules
        self.shapes: dict[int, tuple[int, ...]] = {}
        self.by_type: dict[int, ByType] = {}
        self.ranges: dict[int, int] = {}
        self.whole_nodes: set[int] = set()
        self.host_only: dict[int, tuple[int, int]] = {}
        self.kinds: dict[int, Kind] = {}
        self._pools = _Pools()
        self._on_spares: set[int] = set()
        self.avoided: dict[int, frozenset[str]] = {}  # nodes, by job
        self._extra: dict[str, _Values] = {}

    def set_rules(self, rules: ClusterRules) -> None:
        """Set other partitions and virtual clusters."""
        self.rules = rules

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
            self._extra.setdefault(name, _Values()).enter(jobs, value)
        pool: tuple[Any, ...] = wishes.pool
        if not self._on_spares.isdisjoint(jobs):  # one job, which is described anew
            pool = (*pool, SPARES)
        for job in self.avoided.keys() & jobs if self.avoided else ():  # likewise
            without = pool[NOT_NODES]
            kept_from = tuple(sorted({*without, *self.avoided[job]}))
            pool = (*pool[:NOT_NODES], kept_from, *pool[NOT_NODES + 1 :])
        return self._pools.enter(jobs, pool)

    def avoid(self, job: int, nodes: frozenset[str]) -> bool:
        """Keep a job from some nodes and from no other ones; returns whether that changes."""
        changes = self.avoided.get(job, frozenset()) != nodes
        self.avoided.pop(job, None)
        if nodes:
            self.avoided[job] = nodes
        return changes

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
        self.avoided.pop(job, None)
        self.forget(job)

    def forget(self, job: int) -> None:
        """Remove what a job asks for, as it asks for something else now."""
        self.shapes.pop(job, None)
        self.by_type.pop(job, None)
        self.ranges.pop(job, None)
        self.whole_nodes.discard(job)
        self.host_only.pop(job, None)
        self.kinds.pop(job, None)
        self._pools.forget(job)
        for name, values in list(self._extra.items()):
            values.forget(job)
            if not values.all:
                del self._extra[name]

    def extra_columns(self, jobs: JobColumns) -> dict[str, NDArray[Any]]:
        """Extra columns of live jobs: floats if every value is a number, or texts."""
        made: dict[str, NDArray[Any]] = {}
        for name, values in sorted(self._extra.items()):
            rows = np.fromiter(map(jobs.row_of.__getitem__, values.all), np.intp, len(values.all))
            if len(values.numbers) == len(values.all):
                column: NDArray[Any] = np.full(jobs.count, np.nan)
                column[rows] = np.fromiter(values.numbers.values(), np.float64, len(rows))
            else:
                column = np.full(jobs.count, "", np.object_)
                column[rows] = [str(value) for value in values.all.values()]
            made[name] = column
        return made

    @property
    def named_columns(self) -> set[str]:
        """The names of the columns that users have given live jobs."""
        return self._extra.keys() - FURTHER.keys()

    def pools(self, nodes: LiveNodes) -> tuple[tuple[str, bytes], ...]:
        """Every pool's text and nodes, one bit each, by the pool's number."""
        return self._pools.all(nodes, self.rules)

    def pool_mask(self, pool: int, nodes: LiveNodes) -> int:
        """The nodes of a pool, as bits by index."""
        return self._pools.nodes(pool, nodes, self.rules)

    @staticmethod
    def facts(text: str) -> dict[str, Any]:
        """The facts of a node's report, which is JSON, under the names that a cluster file uses."""
        try:
            facts = json.loads(text)
        except ValueError:
            return {}
        if not isinstance(facts, Mapping):
            return {}
        found: dict[str, Any] = dict(of_report(facts.get))
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


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None
