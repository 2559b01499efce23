"""Cells that nothing says: the shapes that machines, switches and racks have by themselves.

For each GPU type T and size of machine there is a chain, from the top: `T-rack` and `T-switch`
where all of them have equally many machines, `T-node`, `T-nvlink` where the GPUs of every machine
fall into equal NVLink domains, and T. Types of a second size of machine carry it: `T-4-node`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from dlsched.core.cluster.cells import CellPlan, Chain, PhysicalCell


class Machine(Protocol):
    """What is known of a machine."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def gpus(self) -> int:
        """How many GPUs it has."""
        ...

    @property
    def gpu_type(self) -> str:
        """Their type."""
        ...

    @property
    def switch(self) -> str:
        """Its leaf switch or rail; empty when unknown."""
        ...

    @property
    def rack(self) -> str:
        """Its rack; empty when unknown."""
        ...

    @property
    def nvlink(self) -> tuple[int, ...]:
        """The number of the NVLink domain of each GPU; empty when unknown."""
        ...


def cells_by_topology(machines: Sequence[Machine]) -> CellPlan:
    """The cells of machines, by what is known of their links."""
    kinds: dict[tuple[str, int], list[Machine]] = {}
    for machine in machines:
        kinds.setdefault((machine.gpu_type, machine.gpus), []).append(machine)
    chains: dict[str, Chain] = {}
    tops: list[tuple[str, PhysicalCell]] = []
    named: set[str] = set()
    for (kind, gpus), members in kinds.items():
        prefix = kind if kind not in named else f"{kind}-{gpus}"
        named.add(kind)
        chain, cells = _chain(prefix, kind, gpus, members)
        chains[chain.name] = chain
        tops += [(chain.name, cell) for cell in cells]
    return CellPlan(chains=chains, tops=tuple(tops))


def _chain(
    prefix: str, kind: str, gpus: int, members: Sequence[Machine]
) -> tuple[Chain, list[PhysicalCell]]:
    domains = _domains(members, gpus)
    types, counts = [kind], [0]
    if domains > 1:
        types.append(f"{prefix}-nvlink")
        counts.append(gpus // domains)
    types.append(f"{prefix}-node")
    counts.append(domains if domains > 1 else gpus)
    node_level = len(types)
    cells = [_machine(each, domains) for each in members]
    owners: list[Sequence[Machine]] = [[each] for each in members]
    for word, of in (("switch", _switch), ("rack", _rack)):
        groups = _grouped(owners, of)
        if groups is None:
            continue
        types.append(f"{prefix}-{word}")
        counts.append(len(next(iter(groups.values()))))
        cells = [
            PhysicalCell(address=name, children=tuple(cells[k] for k in places))
            for name, places in groups.items()
        ]
        owners = [[m for k in places for m in owners[k]] for places in groups.values()]
    return Chain(
        name=types[-1], types=tuple(types), counts=tuple(counts), node_level=node_level
    ), cells


def _switch(machine: Machine) -> str:
    return machine.switch


def _rack(machine: Machine) -> str:
    return machine.rack


def _grouped(
    owners: Sequence[Sequence[Machine]], of: Callable[[Machine], str]
) -> dict[str, list[int]] | None:
    """The places of cells by a common name; None where they do not fall into equal groups."""
    groups: dict[str, list[int]] = {}
    for place, machines in enumerate(owners):
        names = {of(machine) for machine in machines}
        if len(names) != 1 or "" in names:
            return None
        groups.setdefault(names.pop(), []).append(place)
    sizes = {len(places) for places in groups.values()}
    return groups if len(sizes) == 1 and sizes != {1} else None


def _domains(members: Sequence[Machine], gpus: int) -> int:
    """Into how many equal NVLink domains the GPUs of every machine fall; 1 where they do not."""
    found = set()
    for machine in members:
        sizes = {machine.nvlink.count(domain) for domain in machine.nvlink}
        if len(machine.nvlink) != gpus or len(sizes) != 1:
            return 1
        found.add(gpus // sizes.pop())
    count = found.pop() if len(found) == 1 else 1
    return count if count < gpus else 1


def _machine(machine: Machine, domains: int) -> PhysicalCell:
    leaves = [PhysicalCell(address=str(k)) for k in range(machine.gpus)]
    if domains == 1:
        return PhysicalCell(address=machine.name, children=tuple(leaves))
    parts = [
        PhysicalCell(
            address=str(number),
            children=tuple(leaves[k] for k, at in enumerate(machine.nvlink) if at == domain),
        )
        for number, domain in enumerate(dict.fromkeys(machine.nvlink))
    ]
    return PhysicalCell(address=machine.name, children=tuple(parts))
