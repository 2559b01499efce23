"""The cells of a cluster in use: those of the machines, and those that virtual clusters own.

A *virtual* cell is one that a virtual cluster owns, or a part of one; its topmost ancestor is the
granted cell, its *root*. While it is in use it is bound to a physical cell of the same level. A
cell's priority is the largest of its GPUs' (`FREE` where none is used); `used` counts its GPUs in
use by priority.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from dlsched.core.cluster.cells import CellPlan, Chain
from dlsched.core.cluster.cells import PhysicalCell as Description

if TYPE_CHECKING:
    from dlsched.policies.placement.hived.gangs import Gang

FREE = -2  # the priority of a cell that is not in use
OPPORTUNISTIC = -1
GUARANTEED = 0  # the least priority of a guaranteed gang
HIGHEST = 1000

C = TypeVar("C", bound="Cell[Any]")


class Cell(Generic[C]):
    """What physical and virtual cells have in common.

    Attributes:
        chain: the hierarchy that it belongs to.
        level: in the chain, from 1 for a GPU.
        address: its path from the top.
        parent: the cell that it is a part of; None at the top.
        children: its parts, in order.
        priority: the largest of its GPUs'.
        used: how many of its GPUs are used, by priority.
        in_use: how many of them are used at all.
    """

    __slots__ = ("address", "chain", "children", "in_use", "level", "parent", "priority", "used")

    def __init__(self, chain: Chain, level: int, address: str, parent: C | None) -> None:
        self.chain = chain
        self.level = level
        self.address = address
        self.parent = parent
        self.children: list[C] = []
        self.priority = FREE
        self.used: dict[int, int] = {}
        self.in_use = 0

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.address})"

    @property
    def gpus(self) -> int:
        """How many GPUs it has."""
        return self.chain.gpus[self.level - 1]

    def used_at(self, priority: int) -> int:
        """GPUs that are used at a priority."""
        return self.used.get(priority, 0)

    def leaves(self: C) -> Iterator[C]:
        """Its GPUs, in order."""
        if not self.children:
            yield self
        for child in self.children:
            yield from child.leaves()

    def everything(self: C) -> Iterator[C]:
        """The cell and all below it, each before its children."""
        yield self
        for child in self.children:
            yield from child.everything()

    def set_priority(self, priority: int) -> None:
        """Set a GPU's priority, and with it those of all above it."""
        cell: Cell[Any] | None = self
        while cell is not None:
            before, cell.priority = cell.priority, priority
            above = cell.parent
            if above is None:
                return
            if priority > above.priority:
                pass
            elif before == above.priority and priority < before:
                priority = max(sibling.priority for sibling in above.children)
            else:
                return
            cell = above

    def count(self, priority: int, change: int) -> None:
        """So many GPUs more (or less) are used at a priority, here and in all above."""
        cell: Cell[Any] | None = self
        while cell is not None:
            cell.in_use += change
            left = cell.used.get(priority, 0) + change
            if left:
                cell.used[priority] = left
            else:
                cell.used.pop(priority, None)
            cell = cell.parent


class Physical(Cell["Physical"]):
    """A cell of the machines.

    Attributes:
        nodes: names of its machines; of a part of a machine that one.
        index: of a GPU, its index inside the machine; -1 of larger cells.
        pin: the name by which it is pinned; empty for none.
        bound: the virtual cell that it stands for now.
        split: are its children in the lists of free cells, or in use, by themselves?
        healthy: is none of its GPUs bad?
        user: of a GPU, the gang that uses it.
        claimant: of a GPU, the gang that waits for the user to leave.
    """

    __slots__ = ("bound", "claimant", "healthy", "index", "nodes", "pin", "split", "user")

    def __init__(
        self, chain: Chain, level: int, address: str, parent: Physical | None, pin: str
    ) -> None:
        super().__init__(chain, level, address, parent)
        self.nodes: tuple[str, ...] = ()
        self.index = -1
        self.pin = pin
        self.bound: Virtual | None = None
        self.split = False
        self.healthy = True
        self.user: Gang | None = None
        self.claimant: Gang | None = None

    @property
    def node(self) -> str:
        """Its machine, of which it is a part."""
        return self.nodes[0]


class Virtual(Cell["Virtual"]):
    """A cell that a virtual cluster owns, or a part of one.

    Attributes:
        vc: the virtual cluster.
        bound: the physical cell that stands for it now.
        root: the granted cell that it is a part of.
        pin: the name of the granted cell, where it is pinned.
    """

    __slots__ = ("bound", "pin", "root", "vc")

    def __init__(
        self, chain: Chain, level: int, address: str, parent: Virtual | None, vc: str, pin: str
    ) -> None:
        super().__init__(chain, level, address, parent)
        self.vc = vc
        self.pin = pin
        self.bound: Physical | None = None
        self.root: Virtual = self if parent is None else parent.root


def physical_cells(plan: CellPlan) -> list[Physical]:
    """The top-level cells of a plan, each with all below it."""
    return [_physical(plan.chains[name], each, None, "") for name, each in plan.tops]


def _physical(chain: Chain, said: Description, parent: Physical | None, node: str) -> Physical:
    level = chain.top if parent is None else parent.level - 1
    address = said.address if parent is None else f"{parent.address}/{said.address}"
    cell = Physical(chain, level, address, parent, said.pinned)
    if level == chain.node_level:
        node = said.address
    cell.children = [_physical(chain, child, cell, node) for child in said.children]
    if level <= chain.node_level:
        cell.nodes = (node,)
    else:
        cell.nodes = tuple(name for child in cell.children for name in child.nodes)
    if level == 1:
        cell.index = int(said.address)
    return cell


def virtual_cell(chain: Chain, level: int, address: str, vc: str, pin: str = "") -> Virtual:
    """A granted cell with all below it."""
    return _virtual(chain, level, address, None, vc, pin)


def _virtual(
    chain: Chain, level: int, address: str, parent: Virtual | None, vc: str, pin: str
) -> Virtual:
    cell = Virtual(chain, level, address, parent, vc, pin)
    if level > 1:
        cell.children = [
            _virtual(chain, level - 1, f"{address}/{k}", cell, vc, pin)
            for k in range(chain.children(level))
        ]
    return cell


def is_usable(cell: Physical, allowed: frozenset[str] | None) -> bool:
    """May an unbound cell be bound now, or some of the cells below it?

    Args:
        cell: of the machines.
        allowed: the machines that may be used; None for all.
    """
    if cell.bound is not None:
        return False
    if len(cell.nodes) == 1 and not cell.healthy:
        return False
    return allowed is None or any(node in allowed for node in cell.nodes)
