"""What jobs ask for beyond numbers: which nodes, how their GPUs must lie, and what else they say.

Nodes that a job may use form a pool. A pool is known by a text made of what was asked, so that it
is the same pool after a restart; its number is given once and kept.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlsched.daemon.round.columns import JobColumns
from dlsched.daemon.round.machines import ClusterRules, Machines
from dlsched.daemon.speeds import Kind, kind_of
from dlsched.db.records import JobBody

__all__ = ["Asks"]

PoolKey = tuple[str, str, tuple[str, ...], tuple[str, ...], tuple[str, ...]]


class Asks:
    """Pools, shapes and further columns of live jobs.

    Attributes:
        rules: partitions and virtual clusters.
        shapes: GPUs a node, by job, where it says.
        whole_nodes: jobs that share their nodes with nobody.
        kinds: what live jobs are trainings of.
    """

    def __init__(self, rules: ClusterRules) -> None:
        self.rules = rules
        self.shapes: dict[int, tuple[int, ...]] = {}
        self.whole_nodes: set[int] = set()
        self.kinds: dict[int, Kind] = {}
        self._pools: dict[PoolKey, int] = {}
        self._extra: dict[str, dict[int, Any]] = {}
        self._made: tuple[tuple[int, int], tuple[tuple[str, bytes], ...]] | None = None

    def anew(self) -> None:
        """The rules have changed."""
        self._made = None

    def enter(self, job: int, body: JobBody) -> int:
        """Note what a job asks for; returns the number of its pool."""
        self.forget(job)
        if body.gang is not None:
            self.shapes[job] = tuple(max(int(gpus), 1) for gpus in body.gang)
        if body.exclusive:
            self.whole_nodes.add(job)
        self.kinds[job] = kind_of(body)
        told = {"model": body.model or None, "batch_size": body.batch_size}
        told |= {"total_iterations": body.total_iterations}
        for name, value in {**told, **body.extra}.items():
            if value is not None:
                self._extra.setdefault(name, {})[job] = value
        key = (
            body.vc,
            body.partition,
            tuple(sorted(body.gpu_types)),
            tuple(sorted(body.only_nodes)),
            tuple(sorted(body.not_nodes)),
        )
        return self._pools.setdefault(key, len(self._pools))

    def forget(self, job: int) -> None:
        """A job has ended."""
        self.shapes.pop(job, None)
        self.whole_nodes.discard(job)
        self.kinds.pop(job, None)
        for values in self._extra.values():
            values.pop(job, None)

    def extra_columns(self, jobs: JobColumns) -> dict[str, NDArray[Any]]:
        """What some live jobs say further, as columns: numbers where all of them are."""
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

    def pools(self, machines: Machines) -> tuple[tuple[str, bytes], ...]:
        """Every pool's text and nodes, in order of number."""
        version = (machines.version, len(self._pools))
        if self._made is None or self._made[0] != version:
            found = tuple(
                (json.dumps(key), _bits(self._nodes(key, machines))) for key in self._pools
            )
            self._made = (version, found)
        return self._made[1]

    def _nodes(self, key: PoolKey, machines: Machines) -> Iterator[bool]:
        """Per node: may such a job use it?"""
        vc, partition, types, only, without = key
        owner = {name: tenant.name for tenant in self.rules.vcs for name in tenant.nodes}
        mine = vc if vc in owner.values() else None
        members = self.rules.partitions.get(partition) if partition else None
        for index in range(len(machines)):
            machine = machines[index]
            yield (
                owner.get(machine.name) == mine
                and (members is None or machine.name in members)
                and (not types or machine.gpu_type in types)
                and (not only or machine.name in only)
                and machine.name not in without
            )

    def usable(self, body: JobBody, machines: Machines) -> list[int]:
        """The nodes, by place, that a job with this body may ever use."""
        key = (body.vc, body.partition, body.gpu_types, body.only_nodes, body.not_nodes)
        return [index for index, may in enumerate(self._nodes(key, machines)) if may]

    @staticmethod
    def facts(text: str) -> dict[str, Any]:
        """What a node said that it is, in the words of a cluster file."""
        try:
            facts = json.loads(text)
        except ValueError:
            return {}
        if not isinstance(facts, Mapping):
            return {}
        found = dict(facts)
        memory = _number(facts.get("memory_bytes"))  # 64-bit numbers are texts in JSON
        if memory:
            found["memory_gb"] = memory / 1e9
        devices = facts.get("gpus")
        if isinstance(devices, list):
            types = {d.get("type", "") for d in devices if isinstance(d, Mapping)} - {""}
            if len(types) == 1:
                found["gpu_type"] = types.pop()
        return found


def _bits(flags: Iterator[bool]) -> bytes:
    return np.packbits(np.fromiter(flags, np.bool_), bitorder="little").tobytes()


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None
