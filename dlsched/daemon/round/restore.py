"""From a snapshot back to what a round works on: units, occupancy, pools, parts and their state."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dlsched.composition.parts import replace_parts
from dlsched.core.arrays import Ints, Rows
from dlsched.core.cluster.calendar import Booking, Calendar
from dlsched.core.cluster.cell_rules import CellRules
from dlsched.core.cluster.description import Cluster, Node, VirtualCluster
from dlsched.core.cluster.occupancy import Occupancy, Placement
from dlsched.core.cluster.pools import Pools
from dlsched.core.cluster.reservations import NOWHERE, Reserved
from dlsched.core.cluster.site_rules import SiteRules
from dlsched.core.errors import InvariantBroken
from dlsched.core.round.steps import Parts
from dlsched.core.sharing.decayed_usage import DecayedUsage
from dlsched.core.stage import Stage
from dlsched.core.units import RUNNING, Status, UnitTable
from dlsched.daemon.live.job_columns import SeenJobs
from dlsched.daemon.round.codec import decode
from dlsched.daemon.round.parts import live_parts, live_semantics
from dlsched.daemon.round.policy_state import NO_JOB, PolicyState, placed
from dlsched.daemon.round.snapshot import LiveSnapshot, Quota
from dlsched.nodes.fields import ROWS

_log = logging.getLogger(__name__)
Made = tuple[bytes, tuple[Quota, ...], SiteRules, bytes, bool]  # of which a cluster was made
_CLUSTERS: dict[Made, Cluster] = {}  # the last one


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbering:
    """How the numbers of a stored state and those of a snapshot belong together.

    Attributes:
        old: per row its number in the state, -1 for none.
        same: every row of the state has its number still.
        names: what codes stand for from now on: those of the state, and then new ones.
        pools: texts of the pools from now on, likewise.
        pool_of: number of each of the snapshot's pools.
        finished_gone: how many of the state's oldest finished jobs are no longer there.
    """

    old: Rows
    same: bool
    names: dict[str, tuple[str, ...]]
    code_of: dict[str, Ints]
    pools: tuple[str, ...]
    pool_of: Ints
    finished_gone: int


def numbering_of(snapshot: LiveSnapshot, state: PolicyState) -> Numbering:
    """Compare a snapshot with the state that the last round left behind."""
    jobs = snapshot.table.job
    before = state.jobs
    same = len(before) <= len(jobs) and bool((jobs[: len(before)] == before).all())
    if same:
        old = np.concatenate(
            [np.arange(len(before)), np.full(len(jobs) - len(before), -1, np.int64)]
        )
    else:
        at = np.searchsorted(before, jobs)
        at[at == len(before)] = 0
        old = np.where(before[at] == jobs, at, -1) if len(before) else np.full(len(jobs), -1)
    names: dict[str, tuple[str, ...]] = {}
    code_of: dict[str, Ints] = {}
    for kind, present in snapshot.table.names.items():
        names[kind], code_of[kind] = _merged(state.names.get(kind, ()), present)
    pools, pool_of = _merged(state.pools, [key for key, _ in snapshot.pools])
    there = set(jobs[snapshot.finished].tolist())
    gone = next((k for k, job in enumerate(state.finished.tolist()) if job in there), None)
    return Numbering(
        old=old,
        same=same,
        names=names,
        code_of=code_of,
        pools=pools,
        pool_of=pool_of,
        finished_gone=len(state.finished) if gone is None else gone,
    )


def _merged(before: Sequence[str], present: Sequence[str]) -> tuple[tuple[str, ...], Ints]:
    numbers = {name: number for number, name in enumerate(before)}
    of = np.array([numbers.setdefault(name, len(numbers)) for name in present], np.int64)
    return tuple(numbers), of


def cluster_of(snapshot: LiveSnapshot) -> Cluster | None:
    """The nodes; None when there are none yet. The last one made is kept.

    Cores and memory are counted only while some job says how much it needs, or a part gives them.
    """
    table = snapshot.table
    live = table.status < Status.COMPLETED
    says = snapshot.settings.gives_host or any(
        (~np.isnan(column[live])).any() for column in (table.cpus, table.memory_gb)
    )
    key = (snapshot.cluster, snapshot.quotas, snapshot.rules, snapshot.cells, says)
    if key not in _CLUSTERS:
        facts = decode(snapshot.cluster)
        if not facts["names"]:
            return None
        sizes = facts.get("gpu_memory_gib", np.full(len(facts["names"]), np.nan)).tolist()
        least = _least_by_type(facts["types"], sizes)
        unknown = [()] * len(facts["names"])
        other = {"gpu_memory_gib", *(() if says else ("cpus", "memory_gb"))}
        known = [k for k, row in ROWS.items() if row.simulated and k in facts and k not in other]
        columns = [facts[k] if ROWS[k].form == "text" else facts[k].tolist() for k in known]
        rows = zip(
            facts["names"], facts["gpus"].tolist(), facts["types"],
            facts.get("nvlink", unknown), facts.get("gpu_types", unknown),
            zip(*columns, strict=True),
            strict=True,
        )  # fmt: skip
        nodes = [
            Node(
                name=name,
                gpus=gpus,
                gpu_type=kind,
                gpu_memory_gib=least.get(kind, np.nan),
                nvlink=tuple(links),
                gpu_types=tuple(types),
                **dict(zip(known, values, strict=True)),
            )
            for name, gpus, kind, links, types, values in rows
        ]
        vcs = [
            VirtualCluster(
                name=q.name,
                gpus=q.gpus,
                guaranteed=q.guaranteed,
                borrow=q.borrow,
                parent=q.parent,
            )
            for q in snapshot.quotas
        ]
        rules = CellRules.from_bytes(snapshot.cells)
        owners = rules.virtual_clusters("cells")
        _CLUSTERS.clear()
        cells, every = rules.plan("cells"), (*vcs, *owners)
        _CLUSTERS[key] = Cluster(nodes, every, rules=snapshot.rules, cells=cells)
    return _CLUSTERS[key]


def _least_by_type(types: Sequence[str], sizes: Sequence[float]) -> dict[str, float]:
    """GiB of the smallest GPU of each type: two sizes may be sold under one name."""
    known = [(kind, size) for kind, size in zip(types, sizes, strict=True) if not np.isnan(size)]
    return {kind: min(s for k, s in known if k == kind) for kind in {kind for kind, _ in known}}


# what users, jobs and nodes say, for policies and estimators
REPORTED = ("expected", "steps_done", "loss", "accuracy", "gpu_util")


def table_of(snapshot: LiveSnapshot, numbering: Numbering) -> SeenJobs:
    """The units, with the codes and pools of the state that the last round left."""
    table = snapshot.table.copy()
    for name in REPORTED:  # what was measured goes before what users say, row by row
        column, said = getattr(table, name).copy(), table.extra.get(name)
        if said is not None and said.dtype.kind == "f":
            column = np.where(np.isnan(column), said, column)
        table.extra[name] = column
    for kind, code_of in numbering.code_of.items():
        codes: Ints = getattr(table, kind)
        if len(code_of):
            setattr(table, kind, np.where(codes >= 0, code_of[codes], -1))
    nameless = ("group", "account", "priority_class", "reservation")
    table.names = {**dict.fromkeys(nameless, ()), **numbering.names}
    table.pool = numbering.pool_of[table.pool] if len(numbering.pool_of) else table.pool
    table.usage = _usage_of(snapshot, table)
    return table


def _usage_of(snapshot: LiveSnapshot, table: UnitTable) -> DecayedUsage:
    """What owners have used until now, and the GPUs that their units hold from now on."""
    usage = DecayedUsage(snapshot.rules.half_life_s, snapshot.owners, snapshot.now)
    usage.value[:] = snapshot.used
    runs = np.flatnonzero((table.status == RUNNING) & (table.owner >= 0))
    np.add.at(usage.gpus, table.owner[runs], table.gpus_now[runs] * table.parts(runs))
    return usage


def occupancy_of(
    snapshot: LiveSnapshot, cluster: Cluster, *, leaves_gpus_free: bool = False
) -> Occupancy:
    """The GPUs that each row holds, and those that are closed to all rows.

    Args:
        snapshot: of the live state.
        cluster: its nodes.
        leaves_gpus_free: rows that need no part of a GPU only use what others leave, as the policy
            will have it; else they hold their GPUs, where these are free.

    Raises:
        InvariantBroken: two rows hold one GPU that do not share it.
    """
    serving = np.packbits(snapshot.service > 0, bitorder="little").tobytes()
    occupancy = Occupancy(cluster, int.from_bytes(serving, "little"))
    share, first = snapshot.table.gpu_share, dict[Placement, int]()
    opportunistic: dict[int, Placement] = {}
    for row, placement in snapshot.held.placements().items():
        if share[row] == 0:
            opportunistic[row] = placement
        elif share[row] < 1 and placement in first:
            occupancy.join(row, first[placement])
        else:
            first[placement] = row
            occupancy.take(row, placement)
    for row, placement in opportunistic.items():
        occupancy.add_opportunistic(row, placement)
        if not leaves_gpus_free and occupancy.is_free(placement):
            occupancy.promote(row)
    for node in np.flatnonzero(snapshot.service == 1).tolist():
        occupancy.set_draining(node, draining=True)
    shut: dict[int, int] = {}
    for node, gpu in snapshot.closed.tolist():
        shut[node] = shut.get(node, 0) | 1 << gpu
    for node, mask in shut.items():
        occupancy.close(node, mask)
    return occupancy


def pools_of(snapshot: LiveSnapshot, numbering: Numbering, cluster: Cluster) -> Pools:
    """The pools; one that the state knows and the snapshot does not is empty."""
    nodes = [0] * len(numbering.pools)
    for number, (_, bits) in zip(numbering.pool_of.tolist(), snapshot.pools, strict=True):
        nodes[number] = int.from_bytes(bits, "little")
    return Pools.of_nodes(cluster, nodes)


def reserved_of(snapshot: LiveSnapshot, table: UnitTable, pools: Pools) -> Reserved | None:
    """The reservations that are not over; the codes of the table's column become theirs."""
    kept = [each for each in snapshot.reservations if each.end > snapshot.now]
    code_of = {each.name: code for code, each in enumerate(kept)}
    names = table.names["reservation"]
    codes = np.array([code_of.get(name, NOWHERE) for name in names] + [-1], np.int64)
    table.reservation = codes[table.reservation]
    return Reserved(kept, pools) if kept or (table.reservation == NOWHERE).any() else None


def calendar_of(state: PolicyState, row_of: Mapping[int, int], gpus: int) -> Calendar:
    """What policies have planned ahead on the cluster's GPUs, for jobs that are still known."""
    calendar = Calendar(gpus)
    for job, count, start, end in state.bookings:
        row = row_of.get(job, -1)
        if row >= 0 or job == NO_JOB:
            calendar.book(Booking(row=row, gpus=count, start=start, end=end))
    return calendar


def parts_of(snapshot: LiveSnapshot, state: PolicyState, numbering: Numbering) -> Parts:
    """The parts, as the last round left them.

    Raises:
        BadInput: the settings name what is not there.
    """
    has_quotas = bool(snapshot.quotas)
    parts = live_parts(snapshot.settings, has_quotas=has_quotas)
    if state.chosen:
        parts = replace_parts(parts, state.chosen, live_semantics(snapshot.settings))
    if not state.parts:
        return parts
    for stage, error in parts.load_state_dict(state.parts).items():
        name = parts.stages()[stage].name
        _log.warning("%s %s begins anew: its state has another form (%s)", stage, name, error)
    if numbering.same and not numbering.finished_gone:
        return parts
    for part in parts.stages().values():
        kind = type(part)
        stores_itself = kind.state_dict is not Stage.state_dict
        cannot_follow = kind.renumber is Stage.renumber and not (part.memories or kind.declared)
        if stores_itself and cannot_follow and part.state_dict():
            parts.begin_anew(part)
    parts.renumber(numbering.old, numbering.finished_gone)
    return parts


def restore_reserved(
    occupancy: Occupancy, state: PolicyState, row_of: Mapping[int, int], table: UnitTable
) -> None:
    """Keep what the policy holds in reserve, where it still can be.

    Args:
        occupancy: gets the reservations.
        state: what the last round left behind.
        row_of: the row of each job.
        table: the units.
    """
    index: dict[str, Any] = {name: node for node, name in enumerate(occupancy.cluster.names)}
    for job, pairs in state.reserved:
        row, placement = row_of.get(job), placed(pairs, index)
        if row is None or placement is None or table.status[row] != 2 or row in occupancy.held:
            continue
        try:
            occupancy.reserve(row, placement)
        except InvariantBroken:
            continue  # a GPU of it is gone
