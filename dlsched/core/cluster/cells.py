"""Cells: the shapes of GPUs that a cluster is made of, and those that virtual clusters own.

A cell is a set of GPUs of one shape: a pair, a node, a rack. Types of cells are nested; a type that
nothing declares is a type of GPU. The hierarchy of one top-level type is a *chain*, which has the
name of that type; its level 1 is a single GPU. A virtual cluster owns so many cells of a type,
anywhere in the chain, and cells that are pinned to it by name.

Source: Zhao et al., "HiveD: Sharing a GPU Cluster for Deep Learning with Guarantees", OSDI 2020.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from dlsched.core.errors import BadInput, plural


@dataclass(frozen=True, slots=True, kw_only=True)
class CellType:
    """A declared shape.

    Attributes:
        name: of the type.
        child: the type of its children; one that is not declared is a type of GPU.
        count: how many children it has.
        node: is it one machine?
    """

    name: str
    child: str
    count: int
    node: bool = False


@dataclass(frozen=True, kw_only=True)
class Chain:
    """The hierarchy of one top-level type; levels count from 1, a single GPU.

    Attributes:
        name: of the top-level type.
        types: names of the types, from the GPU upwards.
        counts: children that a cell of each level has; 0 for a GPU.
        node_level: the level of a machine.
    """

    name: str
    types: tuple[str, ...]
    counts: tuple[int, ...]
    node_level: int

    @property
    def top(self) -> int:
        """The level of the whole chain."""
        return len(self.types)

    @property
    def gpu_type(self) -> str:
        """The type of its GPUs."""
        return self.types[0]

    def children(self, level: int) -> int:
        """How many children a cell of a level has."""
        return self.counts[level - 1]

    @cached_property
    def gpus(self) -> tuple[int, ...]:
        """GPUs of a cell, by level less one."""
        sizes = [1]
        for count in self.counts[1:]:
            sizes.append(sizes[-1] * count)
        return tuple(sizes)

    def level_of(self, name: str) -> int:
        """The level of a type; 0 where the chain has none of that name."""
        return self.types.index(name) + 1 if name in self.types else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PhysicalCell:
    """One cell of the machines.

    Attributes:
        address: of a machine its name, of a GPU its index inside the machine.
        pinned: the name by which a virtual cluster owns this very cell; empty for none.
        children: in order; none for a GPU.
    """

    address: str
    pinned: str = ""
    children: tuple[PhysicalCell, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """So many cells of a type that a virtual cluster owns.

    Attributes:
        type: types from the top of the chain down to that of the cell, joined by dots; those
            between may be left out.
        count: how many.
    """

    type: str
    count: int

    @property
    def chain(self) -> str:
        """The chain's name."""
        return self.type.partition(".")[0]

    @property
    def cell(self) -> str:
        """The type of the cells."""
        return self.type.rpartition(".")[2]


@dataclass(frozen=True, kw_only=True)
class CellPlan:
    """All cells of a cluster.

    Attributes:
        chains: by name, in the order in which the top-level cells first name them.
        tops: the top-level cells with the names of their chains, in order.
    """

    chains: Mapping[str, Chain] = field(default_factory=dict)
    tops: tuple[tuple[str, PhysicalCell], ...] = ()

    @cached_property
    def pins(self) -> Mapping[str, tuple[str, int]]:
        """Of each pinned cell its chain and its level."""
        found: dict[str, tuple[str, int]] = {}
        for name, top in self.tops:
            for level, cell in _walk(top, self.chains[name].top):
                if cell.pinned:
                    found[cell.pinned] = (name, level)
        return found

    def machines(self) -> Iterator[tuple[Chain, PhysicalCell]]:
        """Every machine with its chain, in order."""
        for name, top in self.tops:
            chain = self.chains[name]
            for level, cell in _walk(top, chain.top):
                if level == chain.node_level:
                    yield chain, cell

    def check_nodes(
        self, gpus: Mapping[str, tuple[int, str]], *, where: str, all_known: bool = True
    ) -> None:
        """Check that the cells tile the machines: each GPU of each is in exactly one.

        Args:
            gpus: of each machine its number of GPUs and their type; empty: not known.
            where: the file, for the message.
            all_known: machines that cells name exist, and have cells if they do. Otherwise only
                what both say is compared.

        Raises:
            BadInput: one line that names the machine.
        """
        found: dict[str, list[int]] = {}
        for chain, machine in self.machines():
            name = machine.address
            if name not in gpus:
                if not all_known:
                    continue
                raise BadInput(f"{where}: physical_cells name node {name}, which does not exist")
            if gpus[name][1] not in ("", chain.gpu_type):
                raise BadInput(
                    f"{where}: physical_cells: node {name} has GPUs of type {gpus[name][1]}, "
                    f"its cell type {chain.types[chain.node_level - 1]} is made of {chain.gpu_type}"
                )
            found.setdefault(name, []).extend(
                int(cell.address) for level, cell in _walk(machine, chain.node_level) if level == 1
            )
        for name, (count, _) in gpus.items():
            if name not in found and not all_known:
                continue
            there = sorted(found.get(name, []))
            if there != list(range(count)):
                raise BadInput(
                    f"{where}: physical_cells do not tile node {name}: it has {_gpus(range(count))}"
                    f", its cells have {_gpus(there)}"
                )

    def check_owners(
        self, owned: Mapping[str, tuple[Sequence[Grant], Sequence[str]]], *, where: str
    ) -> None:
        """Check that virtual clusters own only cells that exist, in what the others leave.

        Args:
            owned: by virtual cluster the cells that it owns, and names of pinned ones.
            where: the file, for the message.

        Raises:
            BadInput: one line that names the virtual cluster or the level.
        """
        wanted = {name: [0] * (chain.top + 1) for name, chain in self.chains.items()}
        owners: dict[str, str] = {}
        for vc, (grants, pinned) in owned.items():
            for grant in grants:
                chain = self._chain_of(grant, f"{where}: [[vcs]] {vc}: cells")
                wanted[chain.name][chain.level_of(grant.cell)] += grant.count
            for pin in pinned:
                if pin not in self.pins:
                    raise BadInput(
                        f"{where}: [[vcs]] {vc}: pinned: no cell is pinned as {pin!r}; "
                        f"known: {', '.join(self.pins) or 'none'}"
                    )
                if pin in owners:
                    raise BadInput(
                        f"{where}: [[vcs]] {vc}: pinned: {pin!r} belongs to vc {owners[pin]}"
                    )
                owners[pin] = vc
                name, level = self.pins[pin]
                wanted[name][level] += 1
        for name, chain in self.chains.items():
            available = sum(top == name for top, _ in self.tops)
            for level in range(chain.top, 0, -1):
                left = available - wanted[name][level]
                if left < 0:
                    raise BadInput(
                        f"{where}: [[vcs]] own {plural(wanted[name][level], 'cell')} of type "
                        f"{chain.types[level - 1]} in {name}, {available} are there"
                    )
                available = left * chain.children(level)

    def _chain_of(self, grant: Grant, where: str) -> Chain:
        path = grant.type.split(".")
        chain = self.chains.get(path[0])
        if chain is None:
            raise BadInput(
                f"{where}: {grant.type!r} must begin with the type of a top-level cell: "
                f"{', '.join(self.chains)}"
            )
        levels = [chain.level_of(name) for name in path]
        if not all(levels) or sorted(set(levels), reverse=True) != levels:
            raise BadInput(
                f"{where}: {grant.type!r} is no path of types in {path[0]}, whose types are "
                f"{'.'.join(chain.types[::-1])}"
            )
        return chain


def _walk(cell: PhysicalCell, level: int) -> Iterator[tuple[int, PhysicalCell]]:
    yield level, cell
    for child in cell.children:
        yield from _walk(child, level - 1)


def _gpus(indices: Sequence[int]) -> str:
    return f"GPUs {', '.join(map(str, indices))}" if indices else "no GPUs"
