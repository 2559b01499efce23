"""Cells as a file says them: `[cell_types.NAME]`, `[[physical_cells]]`, and `cells` of `[[vcs]]`.

What is left out of a cell is filled in: its children, and addresses by position.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dlsched.core.cluster.cells import CellPlan, CellType, Chain, Grant, PhysicalCell
from dlsched.core.cluster.host_lists import expand
from dlsched.core.errors import BadInput, not_known

_TYPE_KEYS = ("child", "count", "node")
_TOP_KEYS = ("type", "address", "pinned", "children", "nodes")
_CELL_KEYS = ("address", "pinned", "children")
_GRANT_KEYS = ("type", "count")
MOST_LEVELS = 12
MOST_GPUS = 1_000_000  # in one top-level cell: more is a slip of the pen


def plan_from_tables(document: Mapping[str, Any], *, where: str) -> CellPlan | None:
    """The cells of a parsed file; None where it has none.

    Raises:
        BadInput: one line that names the file and the key.
    """
    if "cell_types" not in document and "physical_cells" not in document:
        return None
    types = _types(document.get("cell_types", {}), where)
    entries = document.get("physical_cells", [])
    if not isinstance(entries, list) or not entries:
        raise BadInput(f"{where}: physical_cells: give at least one [[physical_cells]]")
    chains: dict[str, Chain] = {}
    tops: list[tuple[str, PhysicalCell]] = []
    pins: set[str] = set()
    addresses: set[str] = set()
    for number, entry in enumerate(entries, 1):
        at = f"{where}: [[physical_cells]] {number}"
        if not isinstance(entry, Mapping):
            raise BadInput(f"{at}: must be a table")
        _refuse_keys(entry, _TOP_KEYS, at)
        name = entry.get("type")
        if name not in types:
            raise not_known(f"{at}: type", str(name), types)
        if name not in chains:
            chains[name] = _chain(name, types, at)
        names = expand(f"{at}: nodes", str(entry["nodes"])) if "nodes" in entry else None
        while True:  # a list of machines may be enough for several
            top = _Builder(chains[name], at, names).build(entry, chains[name].top, len(tops))
            if top.address in addresses:
                raise BadInput(f"{at}: address {top.address!r} is used twice")
            addresses.add(top.address)
            for pin in _pins(top):
                if pin in pins:
                    raise BadInput(f"{at}: two cells are pinned as {pin!r}")
                pins.add(pin)
            tops.append((name, top))
            if not names:
                break
    return CellPlan(chains=chains, tops=tuple(tops))


def grants_of(entries: Any, where: str) -> tuple[Grant, ...]:
    """The cells that a virtual cluster owns: a list of `{type, count}`.

    Raises:
        BadInput: one line that begins with `where`.
    """
    if not isinstance(entries, list) or not all(isinstance(each, Mapping) for each in entries):
        raise BadInput(f"{where} must be a list of {{ type = ..., count = ... }}")
    found = []
    for entry in entries:
        _refuse_keys(entry, _GRANT_KEYS, where)
        name, count = entry.get("type", ""), entry.get("count", 1)
        if not isinstance(name, str) or not name:
            raise BadInput(f"{where}: type is missing")
        _check_whole(count, 0, f"{where}: {name}: count")
        found.append(Grant(type=name, count=count))
    return tuple(found)


def pins_of(entries: Any, where: str) -> tuple[str, ...]:
    """The names of the pinned cells that a virtual cluster owns.

    Raises:
        BadInput: one line that begins with `where`.
    """
    if not isinstance(entries, list) or not all(isinstance(each, str) for each in entries):
        raise BadInput(f"{where} must be a list of names of pinned cells")
    return tuple(entries)


def _refuse_keys(entry: Mapping[str, Any], known: Sequence[str], where: str) -> None:
    for key in entry:
        if key not in known:
            raise not_known(f"{where}: key", key, known)


def _check_whole(value: object, least: int, where: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= MOST_GPUS:
        raise BadInput(f"{where} must be a whole number of at least {least}, not {value!r}")


def _types(tables: Any, where: str) -> dict[str, CellType]:
    if not isinstance(tables, Mapping):
        raise BadInput(f"{where}: cell_types must be tables [cell_types.NAME]")
    found = {}
    for name, entry in tables.items():
        at = f"{where}: [cell_types.{name}]"
        if not isinstance(entry, Mapping):
            raise BadInput(f"{at}: must be a table")
        _refuse_keys(entry, _TYPE_KEYS, at)
        child, node = entry.get("child", ""), entry.get("node", False)
        if not isinstance(child, str) or not child:
            raise BadInput(f"{at}: child is missing: a cell type, or a type of GPU")
        if "." in name:
            raise BadInput(f"{at}: a name must have no dot")
        if not isinstance(node, bool):
            raise BadInput(f"{at}: node must be true or false, not {node!r}")
        _check_whole(entry.get("count", 0), 1, f"{at}: count")
        found[name] = CellType(name=name, child=child, count=entry["count"], node=node)
    return found


def _chain(top: str, types: Mapping[str, CellType], where: str) -> Chain:
    names, counts = [top], [types[top].count]
    gpus = 1
    while names[-1] in types:
        kind = types[names[-1]]
        gpus *= kind.count
        if kind.child in names:
            raise BadInput(f"{where}: type {kind.child} would be inside itself")
        if len(names) >= MOST_LEVELS or gpus > MOST_GPUS:
            raise BadInput(
                f"{where}: type {top}: more than {MOST_LEVELS} levels or {MOST_GPUS:,} GPUs"
            )
        names.append(kind.child)
        counts.append(types[kind.child].count if kind.child in types else 0)
    names.reverse()
    counts.reverse()
    node_levels = [k + 1 for k, name in enumerate(names) if name in types and types[name].node]
    if len(node_levels) != 1:
        path, count = ".".join(reversed(names)), len(node_levels)
        raise BadInput(
            f"{where}: type {top}: exactly one of {path} must say node = true, {count} do"
        )
    return Chain(name=top, types=tuple(names), counts=tuple(counts), node_level=node_levels[0])


class _Builder:
    """Builds one top-level cell; machines take their names from a list where there is one."""

    def __init__(self, chain: Chain, where: str, names: list[str] | None) -> None:
        self._chain = chain
        self._where = where
        self._names = names

    def build(self, entry: Mapping[str, Any], level: int, index: int) -> PhysicalCell:
        """A cell and all below it; `index` stands for an address that is not given."""
        chain, where = self._chain, self._where
        kind = chain.types[level - 1]
        address, pinned = entry.get("address", ""), entry.get("pinned", "")
        if isinstance(address, int) and not isinstance(address, bool):
            address = str(address)
        if not isinstance(address, str) or not isinstance(pinned, str):
            raise BadInput(f"{where}: address and pinned of a {kind} must be texts")
        if level == chain.node_level and not address:
            if self._names is None:
                raise BadInput(
                    f"{where}: a {kind} is a machine: its address must be the node's name"
                )
            if not self._names:
                raise BadInput(f"{where}: nodes: too few names for the machines of the cell")
            address = self._names.pop(0)
        address = address or str(index)
        if level == 1:
            if not address.isdecimal():
                raise BadInput(f"{where}: the address of a GPU must be its index, not {address!r}")
            return PhysicalCell(address=address, pinned=pinned)
        count = chain.children(level)
        given = entry.get("children", [])
        if not isinstance(given, list) or not all(isinstance(each, Mapping) for each in given):
            raise BadInput(f"{where}: children of a {kind} must be tables")
        if given and len(given) != count:
            raise BadInput(f"{where}: a {kind} has {count} children, {len(given)} are given")
        if level == chain.node_level:
            first = 0
        else:
            first = (int(address) if address.isdecimal() else index) * count
        children = []
        for k, child in enumerate(given or [{}] * count):
            _refuse_keys(child, _CELL_KEYS, where)
            children.append(self.build(child, level - 1, first + k))
        return PhysicalCell(address=address, pinned=pinned, children=tuple(children))


def _pins(cell: PhysicalCell) -> list[str]:
    mine = [cell.pinned] if cell.pinned else []
    return mine + [pin for child in cell.children for pin in _pins(child)]
