"""The cells of a live cluster as an operator sees them, from a snapshot."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dlsched.core.cluster.occupancy import Occupancy
from dlsched.core.errors import BadInput
from dlsched.daemon.round.prepared_round import PreparedRound, prepare
from dlsched.daemon.round.snapshot import LiveSnapshot
from dlsched.policies.placement.hived.cells import FREE, Physical, Virtual
from dlsched.policies.placement.hived.cluster_cells import ClusterCells
from dlsched.policies.placement.hived.gangs import Gang
from dlsched.policies.placement.hived.placement import Hived


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedCell:
    """A cell that a virtual cluster owns.

    Attributes:
        vc: the virtual cluster; empty where nothing has owners.
        type: of the cell.
        address: in the virtual cluster.
        pinned: the name by which it is pinned; None for none.
        state: free, in use, bad (it stands for a bad cell), or doomed (and no healthy one is left).
        physical: the address of the cell that it stands for; None while it is free.
        nodes: the machines of that.
        gpus: how many it has.
        used: how many of them jobs of the virtual cluster use.
        jobs: their ids.
    """

    vc: str
    type: str
    address: str
    pinned: str | None
    state: str
    physical: str | None
    nodes: tuple[str, ...]
    gpus: int
    used: int
    jobs: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeCell:
    """A cell of the machines that stands for none of a virtual cluster.

    Attributes:
        type: of the cell.
        address: its own.
        nodes: its machines.
        gpus: how many it has.
        opportunistic: how many of them opportunistic jobs use.
        healthy: is none of its GPUs bad?
    """

    type: str
    address: str
    nodes: tuple[str, ...]
    gpus: int
    opportunistic: int
    healthy: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CellJob:
    """A job on cells.

    Attributes:
        job: its id.
        vc: its virtual cluster.
        kind: guaranteed, opportunistic, or downgraded (it gave its virtual cells up).
        state: runs; waits for victims; or gives way.
        priority: of its cells.
        gpus: GPU indices by machine.
    """

    job: int
    vc: str
    kind: str
    state: str
    priority: int
    gpus: dict[str, list[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class BadNode:
    """A machine that is bad.

    Attributes:
        node: its name.
        why: what is wrong.
        seen_by: virtual clusters one of whose cells stands for a cell of it; without any the
            failure is hidden from all.
    """

    node: str
    why: str
    seen_by: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CellsView:
    """All cells.

    Attributes:
        owned: cells of virtual clusters, in the order of the configuration.
        free: free cells of the machines.
        jobs: jobs on cells.
        bad: bad machines.
    """

    owned: tuple[OwnedCell, ...]
    free: tuple[FreeCell, ...]
    jobs: tuple[CellJob, ...]
    bad: tuple[BadNode, ...]


_STATES = {
    "Allocated": "runs",
    "Preempting": "waits for victims",
    "BeingPreempted": "gives way",
}


def cells_view(snapshot: LiveSnapshot) -> CellsView:
    """The cells at the moment of a snapshot.

    Raises:
        BadInput: the cluster's placement is not hived, or it has no nodes yet.
    """
    prepared = prepare(snapshot)
    if prepared is None:
        raise BadInput("no node has registered yet, so there are no cells")
    placement = prepared.cycle.parts.placement
    if not isinstance(placement, Hived):
        raise BadInput(
            f"placement {placement.name} has no cells; dlsched admin set-policy --placement hived "
            "switches to one that has"
        )
    occupancy = prepared.ctx.occupancy
    placement.follow(occupancy, prepared.ctx.table)
    cells = placement.cells
    return CellsView(
        owned=tuple(_owned(cells, prepared)),
        free=tuple(_free(cells)),
        jobs=tuple(_job(gang, prepared) for gang in cells.gangs.values()),
        bad=tuple(_bad(placement, cells, occupancy)),
    )


def _owned(cells: ClusterCells, prepared: PreparedRound) -> Iterator[OwnedCell]:
    for vc, roots in cells.roots.items():
        for root in roots:
            cell = root.bound
            gangs = {} if cell is None else _gangs_on(cell)
            mine = [name for name, gang in gangs.items() if _uses(gang, root)]
            yield OwnedCell(
                vc=vc,
                type=root.chain.types[root.level - 1],
                address=root.address,
                pinned=root.pin or None,
                state=_state(cells, root),
                physical=None if cell is None else cell.address,
                nodes=() if cell is None else tuple(dict.fromkeys(cell.nodes)),
                gpus=root.gpus,
                used=sum(root.used.values()),
                jobs=tuple(_id(name, prepared) for name in mine),
            )


def _state(cells: ClusterCells, root: Virtual) -> str:
    cell = root.bound
    if cell is None:
        return "free"
    if cells.ledgers[root.chain.name].is_doomed(cell, root.vc):
        return "doomed"
    if not cell.healthy:
        return "bad"
    return "free" if root.priority == FREE else "in use"


def _gangs_on(cell: Physical) -> dict[str, Gang]:
    gangs = (gpu.claimant or gpu.user for gpu in cell.leaves())
    return {gang.name: gang for gang in gangs if gang is not None}


def _uses(gang: Gang, root: Virtual) -> bool:
    return any(cell is not None and cell.root is root for _, cell in gang.pairs())


def _free(cells: ClusterCells) -> Iterator[FreeCell]:
    for ledger in cells.ledgers.values():
        for level in range(ledger.chain.top, 0, -1):
            for cell in ledger.free[level]:
                yield FreeCell(
                    type=ledger.chain.types[level - 1],
                    address=cell.address,
                    nodes=tuple(dict.fromkeys(cell.nodes)),
                    gpus=cell.gpus,
                    opportunistic=sum(cell.used.values()),
                    healthy=cell.healthy,
                )


def _id(name: str, prepared: PreparedRound) -> int:
    return int(prepared.snapshot.table.job[int(name)])


def _job(gang: Gang, prepared: PreparedRound) -> CellJob:
    gpus: dict[str, list[int]] = {}
    for gpu in gang.gpus:
        gpus.setdefault(gpu.node, []).append(gpu.index)
    guaranteed = gang.request.is_guaranteed
    kind = "downgraded" if guaranteed and gang.virtual is None else "guaranteed"
    return CellJob(
        job=_id(gang.name, prepared),
        vc=gang.request.vc,
        kind=kind if guaranteed else "opportunistic",
        state=_STATES[gang.state],
        priority=gang.request.priority,
        gpus={node: sorted(indices) for node, indices in gpus.items()},
    )


def _bad(placement: Hived, cells: ClusterCells, occupancy: Occupancy) -> Iterator[BadNode]:
    for node in sorted(cells.bad):
        seen = {
            root.vc
            for roots in cells.roots.values()
            for root in roots
            if root.bound is not None and node in root.bound.nodes
        }
        yield BadNode(
            node=node, why=placement.fault(cells, occupancy, node), seen_by=tuple(sorted(seen))
        )
