"""Replays in two runs: a profiling stage over the whole trace, then the cluster.

Lucid's simulator lets each job of few GPUs run on the nodes that profile until it ends or its time
is over, and then runs all jobs that have not ended on the other nodes, from their own submit times
and with all their work. Nothing of the first run is charged in the second one. While the stage is
short of nodes it borrows one of a virtual cluster, which gives an idle one, if it has any.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from dlsched.core.arrays import Floats, Rows
from dlsched.core.cluster.description import Cluster, Node
from dlsched.core.cluster.occupancy import Occupancy
from dlsched.core.errors import BadInput
from dlsched.core.scheduling import FirstStage, Staged
from dlsched.core.units import Status, UnitTable
from simulate.clusters.cluster_events import ClusterEvent
from simulate.engine import Engine
from simulate.settings import RunSettings
from simulate.traces.trace import Trace
from simulate.world import World

NOTICED_S = 1.0  # a node that is lent or given back is noticed a second later
Prepare = Callable[..., Engine]
Begin = Callable[[UnitTable, Occupancy, Floats], None]


def nothing_before(units: UnitTable, occupancy: Occupancy, work: Floats) -> None:
    """A run begins with an empty cluster."""


class LentNodes:
    """The nodes of the virtual cluster that lends, with the numbers by which it chooses.

    A node that comes back is the last of the list and has the highest number. If another node is
    lent before this one is lent again, the two exchange their numbers.
    """

    def __init__(self, own: Sequence[int], spares: Sequence[int]) -> None:
        self.spares = list(spares)
        self._number = {node: number for number, node in enumerate(own)}  # of those in service
        self._newest: int | None = None

    def lend(self, occupancy: Occupancy) -> None:
        """Take the idle node with the highest number out of service, if one is idle."""
        idle = [node for node in self._number if not occupancy.rows_on(node)]
        if not idle:
            return
        chosen = max(idle, key=self._number.__getitem__)
        number = self._number.pop(chosen)
        if self._newest is not None:
            if chosen != self._newest:
                self._number[self._newest] = number
            self._newest = None
        occupancy.set_service(chosen, serving=False)

    def give_back(self, occupancy: Occupancy) -> None:
        """A node comes into service, unless one has come back and none was lent since."""
        if self._newest is None:
            self._newest = node = self.spares.pop(0)
            self._number[node] = len(occupancy.cluster)
            occupancy.set_service(node, serving=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLent(ClusterEvent):
    """The profiling stage borrows a node or gives it back."""

    nodes: LentNodes
    by: int

    def apply(
        self, world: World, now: float
    ) -> Literal["node-up", "node-down", "node-drain", "retype"] | None:
        """Change which nodes of the lender are in service."""
        if self.by > 0:
            self.nodes.lend(world.occupancy)
            return "node-down"
        self.nodes.give_back(world.occupancy)
        return "node-up"


def prepare_in_two(
    trace: Trace,
    cluster: Cluster,
    settings: RunSettings,
    stage: FirstStage,
    prepare: Prepare,
    events: Sequence[ClusterEvent] = (),
) -> Engine:
    """Run the profiling stage, and set up the run after it.

    Args:
        trace: the jobs.
        cluster: the nodes of both runs.
        settings: of both runs.
        stage: what is profiled, where, and for how long.
        prepare: sets up one run, as `replay.prepare`.
        events: cluster events of the second run.

    Raises:
        BadInput: no node is left, or the lender has no nodes of its own.
    """
    profiles = [n for n in range(len(cluster)) if stage.nodes >> n & 1]
    if len(profiles) == len(cluster):
        raise BadInput(f"all {len(cluster)} nodes profile; one at least must be left")
    rows = np.flatnonzero(np.ceil(trace.num_gpus) <= stage.most_gpus)
    first = _first_run(trace, rows, [cluster.nodes[n] for n in profiles], settings, stage, prepare)
    table = first.world.table
    changes = first.parts.scheduling.changes if isinstance(first.parts.scheduling, Staged) else ()
    back = sum(by < 0 for _, by in changes)
    whole, lent = _with_spares(cluster, stage.lender, back)
    lending = [
        NodeLent(time=time + NOTICED_S, kind="leave", node=0, nodes=lent, by=by)
        for time, by in changes
        if stage.lender
    ]
    done = trace.duration[rows] <= stage.limit_s
    absent = [*profiles, *lent.spares]  # at the beginning

    def begin(units: UnitTable, occupancy: Occupancy, work: Floats) -> None:
        for node in absent:
            occupancy.set_service(node, serving=False)
        _enter_done(units, rows[done], table, done, work)

    engine = prepare(trace, whole, settings, events=[*events, *lending], stage="main", begin=begin)
    waits = table.first_start - table.submit_time
    engine.columns["profiled"] = dict.fromkeys(rows.tolist(), 1.0)
    engine.columns["profiling_wait"] = dict(zip(rows.tolist(), waits.tolist(), strict=True))
    return engine


def _first_run(
    trace: Trace,
    rows: Rows,
    nodes: Sequence[Node],
    settings: RunSettings,
    stage: FirstStage,
    prepare: Prepare,
) -> Engine:
    """The profiling stage, until all jobs have left it."""
    more = [replace(nodes[-1], name="borrowed")] if stage.scales else []
    short = replace(
        trace,
        **{name: getattr(trace, name)[rows] for name in ("job_id", "submit_time", "num_gpus")},
        **{name: getattr(trace, name)[rows] for name in ("user", "status")},
        duration=np.minimum(trace.duration[rows], stage.limit_s),
        vc=np.full(len(rows), "", np.object_),
        columns={name: column[rows] for name, column in trace.columns.items()},
    )
    kept = [each for each in settings.options if not each.startswith("semantics=")]
    options = (*kept, f"semantics={stage.semantics}")
    engine = prepare(
        short,
        Cluster([*nodes, *more]),
        replace(settings, options=options),
        stage="profiling",
        performance=None,
    )
    engine.run()
    return engine


def _enter_done(
    units: UnitTable, rows: Rows, first: UnitTable, which: np.ndarray[Any, Any], work: Floats
) -> None:
    """Jobs that ended while they were profiled."""
    units.status[rows] = Status.COMPLETED
    for name in ("first_start", "finish", "held_s", "attained", "starts", "executed", "since"):
        getattr(units, name)[rows] = getattr(first, name)[which]
    units.admitted_at[rows] = units.submit_time[rows]
    units.predicted_work[rows] = work[rows]


def _with_spares(cluster: Cluster, lender: str, count: int) -> tuple[Cluster, LentNodes]:
    """The cluster with nodes of the lender that come back one after the other."""
    if not lender:
        return cluster, LentNodes([], [])
    vc = cluster.vcs.get(lender)
    if vc is None or not vc.nodes:
        raise BadInput(f"lender: the cluster has no virtual cluster {lender!r} with nodes")
    own = [cluster.names.index(name) for name in vc.nodes]
    spares = [replace(cluster.nodes[own[-1]], name=f"{lender}-again-{k}") for k in range(count)]
    vcs = [
        replace(each, nodes=(*each.nodes, *(node.name for node in spares)))
        if each.name == lender
        else each
        for each in cluster.vcs.values()
    ]
    whole = Cluster([*cluster.nodes, *spares], vcs)
    return whole, LentNodes(own, list(range(len(cluster), len(whole))))
