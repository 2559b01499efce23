"""The placement `hived`: every job gets GPUs out of the cells of the cluster.

Which job comes next is the scheduling policy's word; whether it can start now, on exactly which
GPUs, and which jobs must leave them, is decided here. Guaranteed jobs are placed before
opportunistic ones, and those of higher priority before others, whatever their rank.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dlsched.core.allocation import Refused
from dlsched.core.arrays import Rows
from dlsched.core.cluster.description import Cluster
from dlsched.core.cluster.occupancy import Occupancy, Placement
from dlsched.core.errors import BadInput, InvariantBroken, plural
from dlsched.core.gpu_request import FreeGpus, GpuRequest
from dlsched.core.options import option
from dlsched.core.stage import Claim, ClaimingPlacement
from dlsched.core.units import UnitTable
from dlsched.policies.placement.hived.cells import HIGHEST, OPPORTUNISTIC
from dlsched.policies.placement.hived.cluster_cells import ClusterCells, fits_again
from dlsched.policies.placement.hived.gangs import Gang, Placed, Request
from dlsched.policies.placement.hived.requests import (
    PIN_COLUMN,
    cell_priority,
    cells_of,
    names_in,
    placement_of,
    pods_of,
    request_of,
)
from dlsched.policies.placement.hived.stored import request_stored, restore, root_types, stored

OF_TYPES = "the GPUs of a cell have one type, and it asks for several"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """HiveD."""

    lazy_preemption: bool = option(
        False,
        "a job that gives way inside its virtual cluster runs on as an opportunistic one",
    )


class Hived(ClaimingPlacement[Options]):
    """Cells of virtual clusters, buddy allocation, and evictions of opportunistic jobs."""

    name = "hived"
    summary = "cells that virtual clusters own, whatever the others do (HiveD)"

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._cells: ClusterCells | None = None
        self._stored: dict[str, Any] | None = None  # until the cluster is known
        self._cluster: Cluster | None = None
        self._index_of: dict[str, int] = {}
        self._where: dict[str, Placement] = {}  # of gangs that run
        self._left: dict[str, Gang] = {}  # gangs that lost their GPUs in this decision
        self._asked: dict[str, tuple[Request, Placed]] = {}
        self._partly: set[str] = set()  # gangs some of whose GPUs are other gangs' too
        self._occupancy: Occupancy | None = None
        self._machines: object = None  # what `_see_machines` has seen
        self._seen = -1  # the version of the occupancy that the cells agree with
        # the cells of registered nodes, and all of them
        self._empty: tuple[Cluster, ClusterCells, ClusterCells] | None = None

    # -- what does not depend on the present -------------------------------------------------------

    def place(self, request: GpuRequest, free: FreeGpus) -> Placement | Refused:
        """Where a row could be beside those that run, without any that would have to leave."""
        occupancy = free.occupancy
        if occupancy.held or occupancy.reserved or occupancy.closed:
            return self._place_beside(request, free)
        return self.place_alone(request, free)

    def _place_beside(self, request: GpuRequest, free: FreeGpus) -> Placement | Refused:
        """Where a row could be beside others of which only their GPUs are known."""
        twin, occupancy = Hived(self.options), free.occupancy
        cells = twin._cells_of(occupancy.cluster)
        twin._see_machines(cells, occupancy)
        for row, where in (*occupancy.held.items(), *occupancy.reserved.items()):
            pods = pods_of(where, occupancy.cluster.names, cells.gpus_of)
            cells.adopt(Request(name=f"other {row}", vc="", priority=OPPORTUNISTIC), pods, None)
        claim = twin.claim(request, free)
        if isinstance(claim, Refused):
            return claim
        return Refused("Resources", "its GPUs are not free") if claim.victims else claim.placement

    def place_alone(self, request: GpuRequest, free: FreeGpus) -> Placement | Refused:
        """Where a row could be if it had the cluster for itself."""
        if request.by_type:
            return Refused("Never", OF_TYPES)
        cluster = free.occupancy.cluster
        if self._empty is None or self._empty[0] is not cluster:
            self._empty = cluster, *_empty_cells(cluster)
        _, present, cells = self._empty
        asked = self._request(request, free)
        try:
            cells.check(asked)
        except BadInput as error:
            return Refused("Never", str(error))
        found = present.find(asked)
        if isinstance(found, Placed):
            return placement_of(found.pods, {name: k for k, name in enumerate(cluster.names)})
        if present is not cells:
            absent = cells.gpus_of.keys() - set(cluster.names)
            allowed = None if asked.allowed is None else asked.allowed | absent
            if isinstance(cells.find(replace(asked, allowed=allowed)), Placed):
                return Refused("Resources", "its cells are on nodes that have not registered")
        if asked.is_guaranteed and asked.allowed and not cells.has_cells_on(asked):
            kinds = {cluster.nodes[node].gpu_type for node in _bits(free.nodes)}
            types = " and ".join(sorted(kinds))
            return Refused("Never", f"vc {asked.vc} has no cells of {types} where it may run")
        return Refused("Never", f"{found.reason}, even while nothing runs")

    def sameness(self, request: GpuRequest) -> object:
        """What a request says; a row that has reserved GPUs is like no other."""
        name = str(request.row)
        own = name if self._cells is not None and name in self._cells.gangs else ""
        priority = cell_priority(request.priority)
        pin = request.extra(PIN_COLUMN)
        return own, request.vc, priority, request.gang, request.layout, pin

    def order(self, rows: Rows, table: UnitTable) -> Rows:
        """By priority, the highest first; rows of equal priority keep their ranks."""
        if not table.says_priorities:
            return rows
        said = table.priority[rows]
        priorities = np.where(np.isnan(said), 0.0, np.maximum(np.floor(said), OPPORTUNISTIC))
        return rows[np.argsort(-np.minimum(priorities, HIGHEST + 1), kind="stable")]

    def helps(self, row: int, victim: int, table: UnitTable) -> bool:
        """Whether both use the same cells: of one virtual cluster, or as opportunistic jobs."""
        cells = self._cells
        gang = None if cells is None else cells.gangs.get(str(victim))
        if gang is None:
            return False
        if cell_priority(table.priority.item(row)) < 0:
            return gang.virtual is None
        return gang.virtual is not None and table.vc[row] == table.vc[victim]

    def check_exact(self, cluster: Cluster) -> None:
        """Refuse exact GPUs of a policy where virtual clusters own cells.

        Raises:
            BadInput: they do.
        """
        if cluster.cell_owners:
            raise BadInput(
                "it chooses GPUs itself, but virtual clusters own cells, which only placement "
                f"{self.name} gives out: use a policy that ranks jobs, as fifo and las do"
            )

    def _request(self, request: GpuRequest, free: FreeGpus) -> Request:
        names = free.occupancy.cluster.names
        everything = free.nodes == (1 << len(names)) - 1
        allowed = None if everything else frozenset(names_in(free.nodes, names))
        cluster = free.occupancy.cluster
        return request_of(request, cluster, allowed, lazy=self.options.lazy_preemption)

    @property
    def cells(self) -> ClusterCells:
        """The cells, after `follow`."""
        assert self._cells is not None
        return self._cells

    def begin(self) -> None:
        """Forget what the last decision has left."""
        self._left.clear()
        self._asked.clear()

    # -- following the world -----------------------------------------------------------------------

    def follow(self, occupancy: Occupancy, table: UnitTable) -> None:
        """Release what has ended, adopt what runs, and see which machines are bad."""
        if occupancy is self._occupancy and occupancy.version == self._seen:
            return
        cells = self._cells_of(occupancy.cluster)
        running, where = [], self._where
        for name, gang in list(cells.gangs.items()):
            row = int(name)
            held = occupancy.held.get(row)
            if gang.state == "Preempting":
                if held is not None:
                    running.append((gang, held))
                elif row not in occupancy.reserved:
                    cells.cancel(gang)
            elif held is None or not _same(held, where.get(name)):
                cells.release(gang)
                self._left[name] = gang
                where.pop(name, None)
        for name in self._partly:  # the rows beside it may have left
            if name in cells.gangs:
                cells.release(cells.gangs[name])
                where.pop(name, None)
        self._partly.clear()
        for gang, held in running:
            if cells.victims_of(gang):
                raise InvariantBroken(f"unit {gang.name} runs on GPUs that its victims still have")
            cells.start(gang)
            where[gang.name] = held
        self._see_machines(cells, occupancy)
        is_whole = len(where) == len(occupancy.held) <= len(cells.gangs)
        for row, held in occupancy.held.items() if not is_whole else ():
            if str(row) not in cells.gangs:
                self._adopt(cells, row, held, table)
        self._occupancy, self._seen = occupancy, occupancy.version

    def _cells_of(self, cluster: Cluster) -> ClusterCells:
        if cluster is self._cluster and self._cells is not None:
            return self._cells
        before = self._stored
        if before is None and self._cells is not None:
            before = stored(self._cells)
        cells = ClusterCells(*cells_of(cluster))
        self._cluster, self._cells, self._stored = cluster, cells, None
        self._index_of = {name: k for k, name in enumerate(cluster.names)}
        self._where, self._left, self._seen = {}, {}, -1
        if before is None:
            return cells
        if restore(cells, before):
            here = self._index_of
            self._where = {
                name: placement_of(gang.pods, here)
                for name, gang in cells.gangs.items()
                if all(gpu.node in here for gpu in gang.gpus)
            }
        else:
            self._replay(cells, before)
        return cells

    def _replay(self, cells: ClusterCells, before: Mapping[str, Any]) -> None:
        """The cells are others now: gangs that run keep their GPUs, reservations are forgotten."""
        for each in before["gangs"]:
            if each["state"] == "Preempting":
                continue
            there = [
                [cells.gpus_of[node][k] for node, k in pod if k in cells.gpus_of.get(node, {})]
                for pod in each["where"]
            ]
            kept = [k for k, pod in enumerate(there) if pod]
            if not kept:
                continue
            request = request_stored(each["name"], each["said"])
            levels = None
            if each["roots"] is not None and request.vc in cells.owned:
                levels = [
                    [
                        gpu.chain.level_of(kind)
                        for gpu, kind in zip(there[k], each["roots"][k], strict=False)
                    ]
                    for k in kept
                ]
            gang = cells.adopt(request, [there[k] for k in kept], levels)
            self._where[gang.name] = placement_of(gang.pods, self._index_of)

    def _see_machines(self, cells: ClusterCells, occupancy: Occupancy) -> None:
        """Machines are bad as `fault` says."""
        now = cells, occupancy.in_service, dict(occupancy.closed)
        if now == self._machines:
            return
        self._machines = now
        for name in cells.gpus_of:
            if self.fault(cells, occupancy, name):
                cells.set_bad(name)
            else:
                cells.set_healthy(name)

    def fault(self, cells: ClusterCells, occupancy: Occupancy, name: str) -> str:
        """Why a machine is bad: it is away, or a GPU of its cells is; empty where it is healthy."""
        node = self._index_of.get(name, -1)
        if node < 0:
            return "has not registered"
        there, said = int(occupancy.cluster.gpus[node]), 1 + max(cells.gpus_of[name])
        if there < said:
            return f"has {plural(there, 'GPU')}, its cells have {said}"
        if not occupancy.in_service >> node & 1:
            return "is away"
        return "has a GPU that is out of service" if occupancy.closed.get(node) else ""

    def _adopt(self, cells: ClusterCells, row: int, held: Placement, table: UnitTable) -> None:
        """Enter a row that runs, in the cells that it had, or else that its virtual cluster has."""
        assert self._cluster is not None
        asked = GpuRequest(row, held.gpus, table)
        request = request_of(asked, self._cluster, None, lazy=self.options.lazy_preemption)
        self._where[request.name] = held
        before = self._left.pop(request.name, None)
        if before is not None and _same(held, placement_of(before.pods, self._index_of)):
            types = root_types(before)
            levels = None
            if types is not None:
                levels = [
                    [gpu.chain.level_of(kind) for gpu, kind in zip(*pair, strict=True)]
                    for pair in zip(before.pods, types, strict=True)
                ]
            cells.adopt(before.request, before.pods, levels)
            return
        pods = pods_of(held, self._cluster.names, cells.gpus_of)
        if sum(map(len, pods)) < held.gpus:
            self._partly.add(request.name)
        chains = {gpu.chain.name for pod in pods for gpu in pod}
        if request.is_guaranteed and request.vc in cells.owned and len(chains) == 1:
            for level in cells.root_levels(request, next(iter(chains))):
                gang = cells.adopt(
                    request, pods, [[level] * len(pod) for pod in pods], may_downgrade=False
                )
                if gang.virtual is not None:
                    return
                cells.release(gang)
        cells.adopt(request, pods, None)

    def can_return(self, row: int) -> bool:
        """Whether its GPUs, and the cells that they were, are in no use."""
        gang = self._left.get(str(row))
        return gang is not None and fits_again(gang)

    # -- claims ------------------------------------------------------------------------------------

    def claim(self, request: GpuRequest, free: FreeGpus) -> Claim | Refused:
        """Where a row can start now, and which rows must leave before."""
        cells = self._cells
        assert cells is not None
        if request.by_type:
            return Refused("Fragmented", OF_TYPES)
        asked = self._request(request, free)
        try:
            cells.check(asked)
        except BadInput as error:
            return Refused("Quota", str(error))
        found = cells.find(asked)
        if not isinstance(found, Placed):
            owned = asked.is_guaranteed and asked.vc
            return Refused("Quota" if owned else "Resources", found.reason)
        where = placement_of(found.pods, self._index_of)
        if request.shape and len(where.nodes) != len(request.shape):
            cells.undo(found)
            return Refused("Fragmented", "its cells lie on fewer nodes than it asks for")
        self._asked = {asked.name: (asked, found)}
        return Claim(where, _rows(found.victims), _rows(found.rivals))

    def reject(self, row: int) -> None:
        """Undo what the search has changed."""
        _, found = self._asked.pop(str(row))
        assert self._cells is not None
        self._cells.undo(found)

    def reserved(self, row: int) -> None:
        """The row's GPUs are its own, although others are still on them."""
        assert self._cells is not None
        self._cells.reserve(*self._asked.pop(str(row)))

    def taken(self, row: int) -> None:
        """The row runs; the cells have agreed with the occupancy before that."""
        assert self._cells is not None
        assert self._occupancy is not None
        self._cells.commit(*self._asked.pop(str(row)))
        self._where[str(row)] = self._occupancy.held[row]
        self._seen = self._occupancy.version

    # -- state -------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """The cells as plain values."""
        if self._cells is None:
            return dict(self._stored or {})
        return stored(self._cells)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state_dict`, as soon as the cluster is known."""
        self._stored = dict(state) or None
        self._cells = self._cluster = self._occupancy = None

    def renumber(self, old: Rows, finished_gone: int) -> None:
        """Gangs are named by their rows; those without one are gone."""
        state = self.state_dict()
        if not state:
            return
        new_of = {str(before): str(row) for row, before in enumerate(old.tolist()) if before >= 0}
        gangs = []
        for each in state["gangs"]:
            gone = str(-1 - abs(int(each["name"])))  # no row: it is released when it is seen
            name = new_of.get(each["name"], gone)
            by = new_of.get(each["downgraded_by"], each["downgraded_by"])
            gangs.append({**each, "name": name, "downgraded_by": by})
        self.load_state_dict({**state, "gangs": gangs})


def _empty_cells(cluster: Cluster) -> tuple[ClusterCells, ClusterCells]:
    """Cells without gangs: of the nodes that have registered, and of all nodes."""
    whole = ClusterCells(*cells_of(cluster))
    absent = whole.gpus_of.keys() - set(cluster.names)
    if not absent:
        return whole, whole
    present = ClusterCells(*cells_of(cluster))
    for name in sorted(absent):
        present.set_bad(name)
    return present, whole


def _bits(nodes: int) -> Iterator[int]:
    return (node for node in range(nodes.bit_length()) if nodes >> node & 1)


def _rows(gangs: Sequence[Gang]) -> tuple[int, ...]:
    return tuple(int(gang.name.rpartition(" ")[2]) for gang in gangs)


def _same(one: Placement, other: Placement | None) -> bool:
    """Are these the same GPUs, in whatever order?"""
    if other is None:
        return False
    return (
        one is other
        or one == other
        or dict(zip(*one, strict=True)) == dict(zip(*other, strict=True))
    )
