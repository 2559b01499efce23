"""The rules that hold in both worlds, checked after every round in tests.

No GPU twice; gangs whole or absent; capacity kept; terminal units hold nothing; work conserved:
what a unit executed is the time it ran, less overhead and what it lost.
"""

from __future__ import annotations

import numpy as np

from dlsched.core.cluster.occupancy import Occupancy
from dlsched.core.errors import InvariantBroken, plural
from dlsched.core.units import Status, UnitTable

TOLERANCE_S = 1e-6  # clocks are sums of float seconds
TOLERANCE_SHARE = 1e-6  # of a processor or a GB


def check_world(table: UnitTable, occupancy: Occupancy, now: float) -> None:
    """Check everything.

    Raises:
        InvariantBroken: names the rule and the row or node that breaks it.
    """
    check_occupancy(occupancy)
    check_units(table, occupancy, now)
    check_shares(table, occupancy)


def check_occupancy(occupancy: Occupancy) -> None:
    """No GPU twice, none lost, and the index by level agrees with the bits.

    Rows that share all their GPUs hold them once.
    """
    cluster, held = occupancy.cluster, _held_bits(occupancy)
    reserved = [0] * len(cluster)
    for placement in occupancy.reserved.values():
        for node, mask in zip(placement.nodes, placement.masks, strict=True):
            reserved[node] |= mask
    for node, gpus in enumerate(cluster.gpus.tolist()):
        everything = (1 << gpus) - 1
        if held[node] & ~everything:
            raise InvariantBroken(f"node {cluster.names[node]} has only {plural(gpus, 'GPU')}")
        serving = occupancy.in_service >> node & 1
        reserved[node] |= occupancy.closed.get(node, 0)
        expected = everything & ~held[node] & ~reserved[node] if serving else 0
        if occupancy.free[node] != expected:
            raise InvariantBroken(
                f"node {cluster.names[node]}: free GPUs are {occupancy.free[node]:#x}, "
                f"expected {expected:#x}"
            )
        levels = [k for k, members in enumerate(occupancy.level) if members >> node & 1]
        if levels != ([expected.bit_count()] if serving else []):
            raise InvariantBroken(f"node {cluster.names[node]} is filed under {levels}")
    if occupancy.free_total != sum(mask.bit_count() for mask in occupancy.free):
        raise InvariantBroken("the count of free GPUs is off")


def _held_bits(occupancy: Occupancy) -> list[int]:
    """The GPUs of each node that are held, each by one row or by rows that share all theirs."""
    for row, placement in occupancy.opportunistic.items():
        if occupancy.held.get(row) != placement:
            raise InvariantBroken(f"row {row} is opportunistic on GPUs that it does not have")
    cluster = occupancy.cluster
    held = [0] * len(cluster)
    for row, placement in occupancy.held.items():
        if row in occupancy.opportunistic or _is_counted_with_another(occupancy, row):
            continue
        for node, mask in zip(placement.nodes, placement.masks, strict=True):
            if held[node] & mask:
                raise InvariantBroken(
                    f"a GPU of node {cluster.names[node]} is held twice (row {row})"
                )
            if not occupancy.in_service >> node & 1:
                raise InvariantBroken(
                    f"row {row} holds GPUs of node {cluster.names[node]}, out of service"
                )
            held[node] |= mask
    return held


def _is_counted_with_another(occupancy: Occupancy, row: int) -> bool:
    """Does a row of a lower number hold the very same GPUs?"""
    others = occupancy.beside.get(row, ())
    if any(occupancy.held.get(other) != occupancy.held[row] for other in others):
        raise InvariantBroken(f"row {row} shares GPUs with rows that have others")
    return any(other < row for other in others)


def check_units(table: UnitTable, occupancy: Occupancy, now: float) -> None:
    """Gangs whole or absent, terminal units hold nothing, work conserved."""
    status = table.status
    running = np.flatnonzero(status == Status.RUNNING)
    if set(running.tolist()) != set(occupancy.held):
        odd = sorted(set(running.tolist()) ^ set(occupancy.held))
        raise InvariantBroken(f"rows {odd[:5]} hold GPUs without running, or run without GPUs")
    for row in running.tolist():
        gpus = occupancy.held[row].gpus
        low = table.min_gpus[row] if table.min_gpus[row] >= 0 else table.gang[row]
        high = table.max_gpus[row] if table.max_gpus[row] >= 0 else table.gang[row]
        if row in table.whole_nodes:
            high = max(high, gpus)
        if gpus != table.gpus_now[row] or not low <= gpus <= high:
            raise InvariantBroken(f"row {row} holds {gpus} of a gang of {table.gang[row]}")
    done = status == Status.COMPLETED
    if np.isnan(table.finish[done]).any():
        raise InvariantBroken("a completed row has no finish time")
    early = table.first_start < table.submit_time - TOLERANCE_S
    if early.any():
        raise InvariantBroken(f"row {int(np.flatnonzero(early)[0])} started before its submit")
    # a suspension may cost a young row more work than it has done (preemption `redo`)
    waiting_left = (table.executed < -TOLERANCE_S) & (table.lost_s <= 0)
    if waiting_left.any():
        raise InvariantBroken(f"row {int(np.flatnonzero(waiting_left)[0])} has negative progress")
    past = table.since[running] > now + TOLERANCE_S
    if past.any():
        raise InvariantBroken(f"row {int(running[past][0])} started in the future")


def check_shares(table: UnitTable, occupancy: Occupancy) -> None:
    """What rows are given of their nodes' processors and memory is there."""
    cluster = occupancy.cluster
    for given, there, what in (
        (table.gpu_cpus, cluster.cpus, "processors"),
        (table.gpu_memory_gb, cluster.memory_gb, "GB of memory"),
    ):
        used = [0.0] * len(cluster)
        for row, placement in occupancy.held.items():
            if (share := given.item(row)) > 0:  # NaN: it is given none
                for node, mask in zip(placement.nodes, placement.masks, strict=True):
                    used[node] += share * mask.bit_count()
        over = np.flatnonzero(np.asarray(used) > there + TOLERANCE_SHARE)
        if over.size and not occupancy.beside:
            node = int(over[0])
            raise InvariantBroken(
                f"node {cluster.names[node]} gives {used[node]:g} of {there[node]:g} {what}"
            )
