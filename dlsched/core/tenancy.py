"""What tenants hold in a walk, against what they are entitled to and may hold at most."""

from __future__ import annotations

import numpy as np

from dlsched.core.allocation import Refused
from dlsched.core.arrays import Ints, Rows
from dlsched.core.occupancy import Occupancy
from dlsched.core.stage import Entitlements
from dlsched.core.units import UnitTable

__all__ = ["Tenancy"]


class Tenancy:
    """GPUs held per tenant (virtual cluster code), kept up to date by the walk."""

    def __init__(self, entitlements: Entitlements, table: UnitTable, occupancy: Occupancy) -> None:
        self._entitlements = entitlements
        self._table = table
        self._used: Ints = np.zeros(len(entitlements.ceiling), np.int64)
        for row, placement in occupancy.held.items():
            self.count(row, placement.gpus)

    def count(self, row: int, gpus: int) -> None:
        """A row's tenant holds so many GPUs more (or less, when negative)."""
        tenant = int(self._table.vc[row])
        if tenant >= 0:
            self._used[tenant] += gpus

    def over_ceiling(self, row: int, gang: int) -> Refused | None:
        """Why a row's tenant may not hold so many GPUs more, if so."""
        tenant = int(self._table.vc[row])
        if tenant < 0:
            return None
        ceiling = self._entitlements.ceiling[tenant]
        if self._used[tenant] + gang <= ceiling:
            return None
        name = self._table.names["vc"][tenant]
        return Refused("Quota", f"vc {name}: {self._used[tenant]} of {ceiling:g} GPUs used")

    def entitled_first(self, rows: Rows, *, reclaims: bool) -> Rows:
        """Rows inside their tenant's entitlement before those that would borrow.

        Args:
            rows: in order.
            reclaims: running rows are among them and may lose their GPUs, so counting begins at
                nothing; else what tenants hold is theirs already.
        """
        entitlement = self._entitlements.entitlement
        taken = np.zeros(len(entitlement)) if reclaims else self._used.astype(np.float64)
        borrows = np.zeros(len(rows), np.bool_)
        for position, row in enumerate(rows.tolist()):
            tenant, gang = int(self._table.vc[row]), int(self._table.gang[row])
            if tenant < 0:
                continue
            if taken[tenant] + gang <= entitlement[tenant]:
                taken[tenant] += gang
            else:
                borrows[position] = True
        return rows[np.argsort(borrows, kind="stable")]
