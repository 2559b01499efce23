"""What servers have, what their jobs use of it, and what is overloaded.

A job's use is what was measured or stated of it (`gpu_util`, `cpus_used`, `memory_used_gb`,
`network_gbps`); where nothing was, what is reserved for it counts. A reservation cannot be
exceeded. So a resource is overloaded when what is measured comes to more than a part of what
reservations leave of it. The paper measures all tasks, where this is its rule. A GPU that one job
has to itself is never overloaded, and neither is a server with one job: moving that job would
relieve nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlsched.core.arrays import Bools, Floats, Ints, numbers
from dlsched.core.cluster.description import Cluster
from dlsched.core.cluster.occupancy import Placement
from dlsched.core.units import UnitTable
from dlsched.policies.scheduling.mlfs.hosts import load_of_cluster

GPU = 0
PER_CENT = 100.0


MEASURED = ("gpu_util", "cpus_used", "memory_used_gb", "network_gbps")


def says_use(table: UnitTable) -> bool:
    """Is the use of any resource measured, so that servers may become overloaded?"""
    return not table.extra.keys().isdisjoint(MEASURED)


class Uses:
    """What each GPU's part of a row uses of resources, and whether that is a measurement."""

    def __init__(self, table: UnitTable) -> None:
        self._table = table
        self._stated: dict[str, Floats] = {
            name: numbers(table.extra[name]) for name in MEASURED if name in table.extra
        }

    def of(self, row: int) -> tuple[Floats, Bools]:
        """Use for each GPU of a row's gang, and which of it is measured; shapes (resources,)."""
        table, gang = self._table, max(self._table.gang.item(row), 1)
        share = table.gpu_share.item(row)
        reserved = (
            share if 0 < share < 1 else 1.0,
            table.cpus.item(row) / gang,
            table.memory_gb.item(row) / gang,
            0.0,
        )
        stated = (
            self._said("gpu_util", row) / PER_CENT,
            self._said("cpus_used", row) / gang,
            self._said("memory_used_gb", row) / gang,
            self._said("network_gbps", row) / gang,
        )
        known = ~np.isnan(stated)
        return np.where(known, stated, np.nan_to_num(reserved)), known

    def _said(self, name: str, row: int) -> float:
        values = self._stated.get(name)
        return np.nan if values is None else values.item(row)


class Servers:
    """The load of all servers, as jobs come and go.

    Attributes:
        uses: what each row uses.
        capacity: of each server's resources; infinite where unknown. Shape (servers, resources).
        load: what the jobs there use.
        rows: the jobs on each server, with how many of its GPUs they hold.
    """

    def __init__(self, cluster: Cluster, table: UnitTable, limit: float) -> None:
        self.uses = Uses(table)
        self._limit = limit
        nics = [node.nic_gbps for node in cluster.nodes]
        capacity = np.column_stack([cluster.gpus, cluster.cpus, cluster.memory_gb, nics])
        self.capacity: Floats = np.where(capacity > 0, capacity, np.inf)
        self.load: Floats = np.zeros_like(self.capacity)
        self.rows: list[dict[int, int]] = [{} for _ in cluster.gpus]
        self._measured: Floats = np.zeros_like(self.capacity)
        self._count: Ints = np.zeros(len(self.rows), np.int64)  # of rows on each server
        self._on: dict[Placement, list[int]] = {}  # the rows that hold the very same GPUs

    def come(self, row: int, placement: Placement) -> None:
        """A row uses these GPUs from now on."""
        self._on.setdefault(placement, []).append(row)
        self._change(row, placement, +1)

    def leave(self, row: int, placement: Placement) -> None:
        """A row has left these GPUs."""
        self._on[placement].remove(row)
        self._change(row, placement, -1)

    def _change(self, row: int, placement: Placement, sign: int) -> None:
        use, known = self.uses.of(row)
        for node, mask in zip(placement.nodes, placement.masks, strict=True):
            gpus = mask.bit_count()
            self.load[node] += sign * gpus * use
            self._measured[node] += sign * gpus * use * known
            self._count[node] += sign
            if sign > 0:
                self.rows[node][row] = gpus
            else:
                del self.rows[node][row]

    @property
    def utilisation(self) -> Floats:
        """The load over the capacity, at most 1; 0 where the capacity is unknown."""
        return np.minimum(self.load / self.capacity, 1.0)

    @property
    def load_of_all(self) -> float:
        """How loaded the cluster is by what is measured, 0 to 1, where the capacity is known."""
        known = np.isfinite(self.capacity).any(axis=0)
        parts = np.minimum(self._measured / self.capacity, 1.0)
        return load_of_cluster(parts[:, known])

    @property
    def over(self) -> Bools:
        """Which resources of which servers are overloaded; shape (servers, resources)."""
        over = self._exceeds(self.load, self._measured, self.capacity)
        over[:, GPU] = False
        for where, rows in self._on.items():
            if self._gpu_exceeds(rows):
                over[list(where.nodes), GPU] = True
        return over & (self._count > 1)[:, None]

    def would_be_over(self, nodes: Ints, row: int, gpus: Ints) -> Bools:
        """Which of some servers would be overloaded with so many GPUs of a row that has none yet.

        Their GPUs apart: they are free, or asked about by `would_share_too_much`.
        """
        use, known = self.uses.of(row)
        more = gpus[:, None] * use
        load, measured = self.load[nodes] + more, self._measured[nodes] + more * known
        over = self._exceeds(load, measured, self.capacity[nodes])
        found: Bools = over[:, GPU + 1 :].any(axis=1) & (self._count[nodes] > 0)
        return found

    def _exceeds(self, load: Floats, measured: Floats, capacity: Floats) -> Bools:
        left = np.maximum(capacity - (load - measured), 0.0)
        return (measured > 0) & (measured > self._limit * left)

    # -- single GPUs ------------------------------------------------------------------------------

    def would_share_too_much(self, row: int, where: Placement) -> bool:
        """Would these GPUs be overloaded if a row joined the jobs on them?"""
        return self._gpu_exceeds([*self._on.get(where, []), row])

    def _gpu_exceeds(self, rows: Sequence[int]) -> bool:
        if len(rows) < 2:
            return False
        found = [self.uses.of(row) for row in rows]
        measured = sum(use[GPU] for use, known in found if known[GPU])
        reserved = sum(use[GPU] for use, known in found if not known[GPU])
        return bool(measured > 0 and measured > self._limit * max(1.0 - reserved, 0.0))

    def on_overloaded_gpus(self, node: int) -> set[int]:
        """The jobs of a server whose GPUs are overloaded."""
        return {
            row
            for where, rows in self._on.items()
            if node in where.nodes and self._gpu_exceeds(rows)
            for row in rows
        }

    def gpu_load(self, where: Placement) -> float:
        """What the jobs on these GPUs use of each."""
        return float(sum(self.uses.of(row)[0][GPU] for row in self._on.get(where, [])))
