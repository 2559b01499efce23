"""Cells as a configuration says them, as bytes that travel with a snapshot."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dlsched.core.cluster.cell_tables import grants_of, pins_of, plan_from_tables
from dlsched.core.cluster.cells import CellPlan
from dlsched.core.cluster.description import VirtualCluster
from dlsched.core.errors import BadInput


@dataclass(frozen=True, kw_only=True)
class CellRules:
    """Types, top-level cells, and what virtual clusters own, as tables of a file.

    Attributes:
        types: the tables `[cell_types.NAME]`.
        tops: the tables `[[physical_cells]]`; without any, cells follow the topology.
        owners: by virtual cluster its `cells` and its `pinned`.
    """

    types: Mapping[str, Any] = field(default_factory=dict)
    tops: Sequence[Mapping[str, Any]] = ()
    owners: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """Equal rules give equal bytes; nothing said gives none."""
        if not (self.types or self.tops or self.owners):
            return b""
        return json.dumps([self.types, self.tops, self.owners]).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> CellRules:
        """The rules of `to_bytes`."""
        if not data:
            return cls()
        types, tops, owners = json.loads(data)
        return cls(types=types, tops=tops, owners={vc: (*own,) for vc, own in owners.items()})

    def plan(self, where: str) -> CellPlan | None:
        """The cells of the machines; None where they follow the topology.

        Raises:
            BadInput: one line that names the table and the key.
        """
        if not self.tops and not self.types:
            return None
        return plan_from_tables(
            {"cell_types": self.types, "physical_cells": self.tops}, where=where
        )

    def virtual_clusters(self, where: str) -> Iterable[VirtualCluster]:
        """The virtual clusters that own cells.

        Raises:
            BadInput: as `plan`.
        """
        for vc, (cells, pinned) in self.owners.items():
            yield VirtualCluster(
                name=vc,
                cells=grants_of(list(cells), f"{where}: [[vcs]] {vc}: cells"),
                pinned=pins_of(list(pinned), f"{where}: [[vcs]] {vc}: pinned"),
            )

    def check(self, *, where: str) -> None:
        """Check what can be known before machines have registered.

        Raises:
            BadInput: one line that names the table and the key.
        """
        plan, vcs = self.plan(where), list(self.virtual_clusters(where))
        if plan is not None:
            plan.check_owners({vc.name: (vc.cells, vc.pinned) for vc in vcs}, where=where)
        elif any(vc.pinned for vc in vcs):
            raise BadInput(f"{where}: [[vcs]]: pinned needs [[physical_cells]]")
