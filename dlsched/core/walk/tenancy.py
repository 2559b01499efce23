"""What tenants hold in a walk, against what they are entitled to and may hold at most.

Tenants may be parts of others. What a part holds counts for all above it, so a ceiling bounds all
that is below. An account that wants more than its own entitlement borrows, first from the other
parts of its parent, then from those of the parent's parent, and so on.
"""

from __future__ import annotations

import numpy as np

from dlsched.core.allocation import Refused
from dlsched.core.arrays import Floats, Rows
from dlsched.core.cluster.occupancy import Occupancy
from dlsched.core.parts import part_of
from dlsched.core.stage import Entitlements
from dlsched.core.units import UnitTable

ROUNDED = 1e-9  # of a GPU: ten tenths must make one


class Tenancy:
    """GPUs held per tenant (virtual cluster code), kept up to date by the walk; parts as parts.

    Attributes:
        has_refused: a ceiling has refused a row.
    """

    def __init__(self, entitlements: Entitlements, table: UnitTable, occupancy: Occupancy) -> None:
        self.has_refused = False
        self._entitlements = entitlements
        self._table = table
        self._used: Floats = np.zeros(len(entitlements.ceiling))
        self._paths = _paths(entitlements)
        for row, placement in occupancy.held.items():
            if row in occupancy.opportunistic:  # what others leave is no tenant's
                continue
            self.count(row, placement.gpus)

    def count(self, row: int, gpus: int) -> None:
        """A row's tenant holds so many GPUs more (or less, when negative)."""
        tenant = int(self._table.vc[row])
        if tenant >= 0:
            counted = gpus * part_of(self._table.gpu_share.item(row))
            for account in self._paths[tenant]:
                self._used[account] += counted

    def over_ceiling(self, row: int, gang: int) -> Refused | None:
        """Why a row's tenant may not hold so many GPUs more, if so."""
        tenant = int(self._table.vc[row])
        if tenant < 0:
            return None
        counted = gang * part_of(self._table.gpu_share.item(row))
        for account in self._paths[tenant]:
            ceiling = self._entitlements.ceiling[account]
            if self._used[account] + counted > ceiling + ROUNDED:
                self.has_refused = True
                names = self._entitlements.names or self._table.names["vc"]
                used = f"{self._used[account]:.9g}"
                room = f"{ceiling:g} GPU{'' if ceiling == 1 else 's'}"
                return Refused("Quota", f"vc {names[account]}: {used} of {room} used")
        return None

    def entitled_first(self, rows: Rows, *, reclaims: bool) -> Rows:
        """Rows inside their tenant's entitlement before those that would borrow.

        Of borrowers, those who borrow from near come before those who borrow from far. `reclaims`:
        running rows are among them and may lose their GPUs, so counting begins at nothing; else
        what tenants hold is theirs already.
        """
        entitlement = self._entitlements.entitlement
        taken = np.zeros(len(entitlement)) if reclaims else self._used.copy()
        distance = np.zeros(len(rows), np.int64)
        borrowers = list(enumerate(rows.tolist()))
        level = 0
        while borrowers:
            still = []
            for position, row in borrowers:
                tenant, gang = int(self._table.vc[row]), int(self._table.gang[row])
                counted = gang * part_of(self._table.gpu_share.item(row))
                path = self._paths[tenant] if tenant >= 0 else ()
                if level >= len(path):
                    distance[position] = level
                elif taken[path[level]] + counted <= entitlement[path[level]] + ROUNDED:
                    distance[position] = level
                    for account in path:
                        taken[account] += counted
                else:
                    still.append((position, row))
            borrowers = still
            level += 1
        return rows[np.argsort(distance, kind="stable")]


def _paths(entitlements: Entitlements) -> list[tuple[int, ...]]:
    """Each account with those above it, upwards."""
    count = len(entitlements.ceiling)
    if entitlements.parent is None:
        return [(account,) for account in range(count)]
    parent = entitlements.parent.tolist()
    paths = []
    for account in range(count):
        path = [account]
        while parent[path[-1]] >= 0:
            path.append(parent[path[-1]])
        paths.append(tuple(path))
    return paths
