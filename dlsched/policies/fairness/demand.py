"""The present demand of accounts (virtual clusters), as vectors of resources."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dlsched.core.arrays import Floats, Ints, Rows
from dlsched.core.context import RoundContext
from dlsched.core.units import Units

LEAST_WEIGHT = Fraction(1, 1000)  # of an account without a guarantee; one guaranteed GPU weighs 1


@dataclass(frozen=True, slots=True)
class Accounts:
    """The accounts that have jobs, and the capacity of the cluster.

    Attributes:
        codes: codes of the accounts that have jobs, ascending.
        count: number of all accounts.
        capacity: GPUs in service, then CPUs and GB of memory where they are known.
        demands: by account, resources per GPU of its jobs, in the order of `capacity`.
        wanted: by account, GPUs of all its jobs, waiting and running.
        guaranteed: by account, GPUs that the cluster file guarantees.
    """

    codes: list[int]
    count: int
    capacity: list[Fraction]
    demands: list[list[Fraction]]
    wanted: list[Fraction]
    guaranteed: list[int]

    def weights(self, *, by_quota: bool) -> list[Fraction]:
        """The weight of each account: 1, or with `by_quota` its guaranteed GPUs."""
        if not by_quota:
            return [Fraction(1)] * len(self.codes)
        return [max(Fraction(gpus), LEAST_WEIGHT) for gpus in self.guaranteed]


def accounts_of(units: Units, ctx: RoundContext) -> Accounts | None:
    """The accounts that have jobs; None when no job belongs to any."""
    names = ctx.table.names["vc"]
    codes = sorted(set(units.vc[units.vc >= 0].tolist()))
    if not codes:
        return None
    gang = units.counted_gpus
    columns = resources_of(ctx, units.rows, gang)
    demands, wanted = [], []
    for code in codes:
        own = units.vc == code
        gpus = Fraction(gang[own].sum())
        demands.append([Fraction(asked[own].sum()) / gpus for _, asked in columns])
        wanted.append(gpus)
    vcs = [ctx.occupancy.cluster.vcs.get(names[code]) for code in codes]
    return Accounts(
        codes=codes,
        count=len(names),
        capacity=[Fraction(total) for total, _ in columns],
        demands=demands,
        wanted=wanted,
        guaranteed=[0 if vc is None else max(vc.guaranteed, 0) for vc in vcs],
    )


def resources_of(ctx: RoundContext, rows: Rows, gpus: Ints | Floats) -> list[tuple[float, Floats]]:
    """What the nodes in service have of each resource, and what rows ask for of it.

    GPUs are the first resource; then CPUs and GB of memory, where they are known of all nodes.

    Args:
        ctx: the snapshot.
        rows: of the table.
        gpus: of each of them.
    """
    cluster, occupancy = ctx.occupancy.cluster, ctx.occupancy
    serving = np.array([occupancy.in_service >> node & 1 for node in range(len(cluster))], np.bool_)
    columns = [(float(cluster.gpus[serving].sum()), np.asarray(gpus, np.float64))]
    for nodes, asked in (
        (cluster.cpus, ctx.table.cpus[rows]),
        (cluster.memory_gb, ctx.table.memory_gb[rows]),
    ):
        if not np.isnan(nodes[serving]).any():
            columns.append((float(nodes[serving].sum()), np.nan_to_num(asked)))
    return columns
