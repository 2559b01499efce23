"""What can be known before a run starts: columns that are missing, jobs that can never run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dlsched.core.allocation import Refused
from dlsched.core.cluster.description import Cluster
from dlsched.core.cluster.occupancy import Occupancy
from dlsched.core.cluster.pools import Pools
from dlsched.core.errors import BadInput, plural
from dlsched.core.gpu_request import FreeGpus, GpuRequest, HostResources
from dlsched.core.host_shares import HostPolicy
from dlsched.core.parts import parts_of
from dlsched.core.round.steps import Parts
from dlsched.core.semantics import Semantics
from dlsched.core.sharing.gpu_limits import REASONS, ROUNDED, too_many
from dlsched.core.stage import ClaimingPlacement
from dlsched.core.units import Status, UnitTable
from dlsched.core.walk.shape import place_shaped
from dlsched.policies.node.salus.lane_table import (
    EPHEMERAL,
    MIB_OF_GIB,
    PERSISTENT,
    TakesTurns,
    memories,
)
from simulate.clusters.cluster_events import ClusterEvent
from simulate.traces.trace import Trace


def check_needs(parts: Parts, units: UnitTable, trace: Trace) -> None:
    """Refuse a run whose parts need a column that some job lacks, or that has wrong values."""
    for stage, part in parts.stages().items():
        for column in sorted(part.needs - {"predicted_work"}):
            missing = np.flatnonzero(~units.has(column))
            if missing.size:
                first = trace.job_id[missing[0]]
                raise BadInput(
                    f"{stage} {part.name} needs the column {column}, which {missing.size} of "
                    f"{plural(len(units), 'job')} of {trace.name} lack (first: job {first})"
                )
    if isinstance(parts.scheduling, TakesTurns):
        wrong, _ = np.nonzero(memories(units) < 0)
        if wrong.size:
            raise BadInput(
                f"{trace.name}: job {trace.job_id[wrong[0]]} has {PERSISTENT} or {EPHEMERAL} below "
                "0"
            )


def refuse_host_part(parts: Parts, cluster: Cluster, semantics: Semantics) -> None:
    """Refuse a part that gives processors and memory where nodes do not say how many they have.

    Raises:
        BadInput: says what is missing.
    """
    if parts.host is None:
        return
    own = isinstance(parts.scheduling, HostPolicy)  # it ranks all the same
    if not own and not cluster.tracks_host:
        raise BadInput(
            f"host {parts.host.name} gives processors and memory, which the cluster's nodes do not "
            "say: a cluster file has `cpus` and `memory_gb` of [[nodes]]"
        )
    if semantics.drift:
        raise BadInput(
            f"host {parts.host.name}: in semantics {semantics.name} jobs do whole steps in rounds, "
            "in which processors and memory do not change"
        )


def pools_ever(pools: Pools, scripted: Sequence[ClusterEvent]) -> Pools:
    """The pools with every node that a retype will ever put into them."""
    retypes = [event for event in scripted if event.kind == "retype"]
    if not retypes:
        return pools
    ever, types = Pools(pools.cluster, pools.keys), pools.cluster.node_type.copy()
    nodes = ever.nodes
    for event in retypes:
        types[event.node] = event.gpu_type
        ever.refresh(types)
        nodes = [before | now for before, now in zip(nodes, ever.nodes, strict=True)]
    ever.nodes = nodes
    return ever


def refuse_impossible(
    units: UnitTable, pools: Pools, parts: Parts, cluster: Cluster
) -> dict[int, Refused]:
    """Refuse units that could not run even on the empty cluster with every node in service.

    Args:
        units: all units; the status of those that are refused changes.
        pools: with every node that they will ever have.
        parts: the placement and the quotas that decide.
        cluster: all its nodes.

    Returns:
        reasons, by row.
    """
    refusals = (
        _unplaceable(units, pools, parts, cluster)
        | _unentitled(units, parts, cluster)
        | _too_large(units, pools, cluster)
        | _larger_in_a_step(units, parts, cluster)
        | _beyond_limits(units)
    )
    units.status[list(refusals)] = Status.REFUSED
    return refusals


def _beyond_limits(units: UnitTable) -> dict[int, Refused]:
    """Units that need more GPUs than their priority class, or a user in it, may have at once."""
    limits, found = units.gpu_limits, dict[int, Refused]()
    if not limits:
        return found
    needs = units.gang * parts_of(units.gpu_share)
    for number, holders in enumerate(limits.sets):
        rows = np.flatnonzero(limits.set_of == number)
        for k in holders[::-1]:  # the first that has too few is told
            holder, most = limits.holders[k], limits.most.item(k)
            for row in rows[needs[rows] > most + ROUNDED].tolist():
                why = too_many(holder, units.gang.item(row), most)
                found[row] = Refused(REASONS[holder[0]], why)
    return found


def _unplaceable(
    units: UnitTable, pools: Pools, parts: Parts, cluster: Cluster
) -> dict[int, Refused]:
    """Units that the placement refuses on the empty cluster."""
    empty = Occupancy(cluster)
    host = HostResources(empty, units) if cluster.tracks_host else None
    answers: dict[object, Refused | None] = {}
    shapes = np.stack([units.pool, units.gang])
    needs = np.zeros((2, len(units)))
    if host is not None:
        needs = np.nan_to_num(np.stack([units.cpus, units.memory_gb]), nan=-1.0)
    plain = parts.placement.spans

    def question(row: int) -> tuple[GpuRequest, object]:
        request = GpuRequest(row, int(units.gang[row]), units)
        pool, sameness = int(units.pool[row]), parts.placement.sameness(request)
        return request, (pool, sameness, request.layout, *needs[:, row].tolist())

    asked: Sequence[int] = range(len(units))
    if plain:
        laid_out = {*units.shapes, *units.whole_nodes}
        asked = [*_representatives(np.vstack([shapes, needs])), *laid_out]
    for row in asked:
        request, key = question(row)
        if key not in answers:
            pool = int(units.pool[row])
            free = FreeGpus(empty, pools.nodes[pool])
            if host is not None:
                free.limit(request, host)
            if request.is_shaped and not isinstance(parts.placement, ClaimingPlacement):
                placed = place_shaped(parts.placement, request, free)
            else:
                placed = parts.placement.place(request, free)
            if isinstance(placed, Refused) and host is not None and free.total < request.gang:
                placed = _with_host_needs(placed, request, free.total)
            answers[key] = (
                _never(placed, request, pools, pool) if isinstance(placed, Refused) else None
            )
    if not any(answers.values()):
        return {}
    whys = ((row, answers[question(row)[1]]) for row in range(len(units)))
    return {row: why for row, why in whys if why is not None}


def _unentitled(units: UnitTable, parts: Parts, cluster: Cluster) -> dict[int, Refused]:
    """Units larger than what their virtual cluster may ever hold."""
    if parts.fairness is None or not units.names["vc"]:
        return {}
    names = units.names["vc"]
    most = np.array([*(parts.fairness.most(name, cluster) for name in names), np.inf])
    over = np.flatnonzero(units.gang > most[units.vc])  # no virtual cluster is code -1, the last
    return {
        row: Refused(
            "Never",
            f"asks for {plural(units.gang[row], 'GPU')}, vc {names[units.vc[row]]} may use "
            f"{most[units.vc[row]]:g}",
        )
        for row in over.tolist()
    }


def _larger_in_a_step(units: UnitTable, parts: Parts, cluster: Cluster) -> dict[int, Refused]:
    """Units of a policy with turns that need more memory within a step than any GPU has.

    Raises:
        BadInput: the cluster does not say what its GPUs have.
    """
    policy = parts.scheduling
    if not isinstance(policy, TakesTurns):
        return {}
    needs = memories(units).sum(axis=1)
    if np.isnan(cluster.gpu_memory).any() and not np.isnan(needs).all():
        raise BadInput(
            f"{policy.name} needs the memory of the GPUs: --cluster 4x8:v100@16, or gpu_memory_gib "
            "of [[nodes]] in a cluster file"
        )
    most = float(cluster.gpu_memory.max()) - policy.turns.reserved_mib / MIB_OF_GIB
    return {
        row: Refused("Never", f"needs {needs[row]:g} GiB within a step, a GPU has {most:g}")
        for row in np.flatnonzero(needs > most).tolist()
    }


def _too_large(units: UnitTable, pools: Pools, cluster: Cluster) -> dict[int, Refused]:
    """Units that need more memory than any GPU that they may use has."""
    found: dict[int, Refused] = {}
    for row in np.flatnonzero(units.gpu_memory > np.fmin.reduce(cluster.gpu_memory)).tolist():
        types = pools.keys[units.pool[row]][1].split("|")
        sizes = [
            size
            for name, size in zip(cluster.gpu_types, cluster.gpu_memory.tolist(), strict=True)
            if name in types or types == [""]
        ]
        if sizes and units.gpu_memory[row] > np.max(sizes):  # False where one is not known
            found[row] = Refused(
                "Never",
                f"needs {units.gpu_memory[row]:g} GiB of memory on each GPU, the largest has "
                f"{np.max(sizes):g}",
            )
    return found


def _representatives(shapes: np.ndarray[Any, np.dtype[Any]]) -> list[int]:
    """One row for each distinct column of shapes."""
    found: list[int] = np.unique(shapes, axis=1, return_index=True)[1].tolist()
    return found


def _with_host_needs(refused: Refused, request: GpuRequest, fitting: int) -> Refused:
    """A refusal that says what a unit needs beside its GPUs, and how many GPUs have it."""
    needs = [
        f"{need:g} {what}"
        for need, what in zip(request.host_needs, ("CPUs", "GB of memory"), strict=True)
        if need > 0
    ]
    if not needs:
        return refused
    gpus = f"{plural(request.gang, 'GPU')} with {' and '.join(needs)}"
    each = " for each" if request.gang > 1 else ""
    return Refused(
        refused.reason, f"needs {gpus}{each}, the cluster has {plural(fitting, 'such GPU')}"
    )


def _never(refused: Refused, request: GpuRequest, pools: Pools, pool: int) -> Refused:
    vc, types, *constraint = pools.keys[pool]
    where = f" of vc {vc}" if vc else ""
    where += f" of type {types}" if types else ""
    where += f" with {constraint[0]}" if any(constraint) else ""
    most = pools.largest_gang(pool)
    if request.gang > most:
        return Refused(
            "Never", f"asks for {plural(request.gang, 'GPU')}, the cluster has {most}{where}"
        )
    return Refused("Never", f"cannot be placed even on the empty cluster: {refused.detail}")
