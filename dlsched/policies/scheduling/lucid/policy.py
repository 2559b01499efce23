"""Lucid: profile a job for a short while, then start it by predicted GPU time, perhaps packed.

Decides which waiting jobs start, on GPUs of their own or beside a running job (*packing*). A new
job of few GPUs first runs on the nodes that profile, for a bounded time; what is measured there
says whether it bears a partner. Waiting jobs go by predicted seconds x GPUs, smallest first.
While jobs are packed, a job that does not fit is passed; else it blocks those behind it. A job that
has left the profiling stage is never interrupted.

The paper's "VC" is our virtual cluster with nodes of its own, its "sharing score" our packing
class, and its estimate of the duration the prediction of `--estimate`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dlsched.core.allocation import Refused
from dlsched.core.arrays import Bools, Floats, Rows
from dlsched.core.cluster.description import Cluster
from dlsched.core.cluster.host_lists import expand
from dlsched.core.cluster.occupancy import Occupancy, Placement
from dlsched.core.context import RoundContext
from dlsched.core.errors import BadInput
from dlsched.core.scheduling import FirstStage, SchedulingPolicy, Staged
from dlsched.core.units import Units, UnitTable
from dlsched.core.walk.room_under_limits import OVER_LIMIT
from dlsched.core.walk.walk import TOGETHER_UNKNOWN, Walk
from dlsched.policies.scheduling.lucid.arrivals import ArrivalForecast, GivenSeries
from dlsched.policies.scheduling.lucid.classes import classes_of_use
from dlsched.policies.scheduling.lucid.load import LearnedLoad
from dlsched.policies.scheduling.lucid.options import LucidOptions
from dlsched.policies.scheduling.lucid.partners import Partners, Traits
from dlsched.policies.scheduling.lucid.profiling import (
    PROFILED,
    PROFILING,
    UNPROFILED,
    ProfiledRows,
    ProfilingQueue,
    after,
    are_idle,
)
from dlsched.policies.scheduling.ordering import TwoLists

ANYWHERE = -1  # every node, as bits
OWN_USE_UNKNOWN = "what it uses of a GPU is not known"
THEIR_USE_UNKNOWN = "what the others use of a GPU is not known"
UNKNOWN = (OWN_USE_UNKNOWN, THEIR_USE_UNKNOWN, TOGETHER_UNKNOWN)


class Lucid(SchedulingPolicy[LucidOptions], Staged):
    """Profiling, packing, and the least predicted GPU time first."""

    name = "lucid"
    summary = "profiles new jobs, packs those that bear it, least predicted GPU time first"
    at_limits = "tries"
    needs = frozenset({"predicted_work"})
    preemptive = True  # the end of profiling takes GPUs from a job
    rests = False  # profiling ends though no job waits
    wakes_idle = True  # an idle profiling stage gives back what it borrowed

    def __init__(self, options: LucidOptions) -> None:
        super().__init__(options)
        self.profiling = ProfilingQueue()
        self._lists = TwoLists()
        self._profiled = ProfiledRows()
        self.memories = (self.profiling, self._lists, self._profiled)
        self._load = LearnedLoad()
        self.memories = (*self.memories, self._load)
        self._forecast: ArrivalForecast = self._load
        if options.predicted_jobs or options.predicted_gpus:
            self._forecast = GivenSeries(
                options.predicted_jobs, options.predicted_gpus, options.slots_from
            )

    @property
    def pairs_units(self) -> bool:
        """It decides which jobs share GPUs."""
        return True

    def first_stage(self, cluster: Cluster) -> FirstStage | None:
        """None: both stages run at the same time, on nodes that the cluster must have."""
        self.profiling_nodes(cluster)
        return None

    @property
    def changes(self) -> Sequence[tuple[float, int]]:
        """When the profiling stage borrowed a node or gave it back."""
        return self.profiling.changes

    # -- the decision -----------------------------------------------------------------------------

    def allocate(self, units: Units, ctx: RoundContext, walk: Walk) -> None:
        """End what was profiled long enough, profile, then start what waits for the cluster."""
        self.profiling.begin(ctx.now)
        walk.stable_until(math.inf)
        nodes = 0 if self.stage == "main" else self.profiling_nodes(ctx.occupancy.cluster)
        self._profiled.reach(len(ctx.table))
        everyone = ctx.units
        self._lists.order(everyone, running_first=True)  # newly seen rows join the queue
        new = self._profiled.see(everyone.rows)
        if len(new):
            self._load.arrived(ctx.table.submit_time[new], ctx.table.gang[new])
        if self.stage == "both" and ctx.mode == "full":
            self._end_profiling(everyone, walk)
        waiting = everyone[~walk.runs(everyone)]
        if self.stage != "main" and nodes:
            waiting = self._profile(waiting, nodes, walk)
        if self.stage != "profiling":
            self._start(waiting, walk, ~nodes & ~self.profiling.extra)
        self._lists.moved([*walk.suspended, *walk.launched])
        if walk.launched or walk.suspended:
            walk.stable_until(-math.inf)  # a row may join another that has just started

    def profiling_nodes(self, cluster: Cluster) -> int:
        """The nodes that profile, as bits.

        Raises:
            BadInput: a host that the cluster has not.
        """
        chosen = self.options
        if self.stage == "profiling":  # the last node is the one that it may borrow
            return (1 << (len(cluster) - chosen.scaling)) - 1
        if chosen.profiling_hosts:
            hosts = expand("profiling_hosts", chosen.profiling_hosts)
            strange = [host for host in hosts if host not in cluster.names]
            if strange:
                raise BadInput(f"profiling_hosts: the cluster has no node {strange[0]!r}")
            return cluster.nodes_mask(cluster.names.index(host) for host in hosts)
        count = min(chosen.profiling_nodes, len(cluster) // 3)
        return cluster.nodes_mask(range(len(cluster) - count, len(cluster)))

    # -- the profiling stage ----------------------------------------------------------------------

    def _end_profiling(self, units: Units, walk: Walk) -> None:
        """Rows that have been profiled long enough leave their GPUs, and wait for the cluster."""
        table, now, limit = walk.table, walk.ctx.now, self.options.profiling_s
        for row in units.rows[self._profiled.of(units.rows, PROFILING)].tolist():
            if row not in walk.occupancy.held:
                continue  # its node has failed: it is profiled anew
            end = table.since.item(row) + max(limit, walk.ctx.min_run)
            if now >= end and walk.is_victim(row, -1):
                walk.take_back(row)
                self._profiled.enter(row, PROFILED)
            else:
                walk.wake_at(end)

    def _profile(self, waiting: Units, nodes: int, walk: Walk) -> Units:
        """Start profiling; returns the rows that wait for the cluster."""
        chosen = self.options
        pools, profiling = walk.ctx.pools.nodes, nodes & walk.occupancy.open_nodes
        may = np.array([bool(pools[pool] & profiling) for pool in waiting.pool.tolist()], np.bool_)
        fits = may & (waiting.gang <= chosen.profiling_gpus)
        before = self._profiled.of(waiting.rows, PROFILED)
        new = fits & ~before & ~self._profiled.of(waiting.rows, UNPROFILED)
        left, never = self.profiling.start(waiting.rows[new], nodes, walk)
        for row in never:
            self._profiled.enter(row, UNPROFILED)
            new &= waiting.rows != row
        for row in waiting.rows[new].tolist():
            if row in walk.launched:
                self._profiled.enter(row, PROFILING)
                walk.wake_at(walk.ctx.now + chosen.profiling_s)
        if chosen.scaling:
            spare = self._spare(walk.occupancy, nodes)
            gpus = chosen.profiling_gpus
            self.profiling.scale(len(left), spare, gpus, self._forecast, walk)
        return waiting[~new]

    def _spare(self, occupancy: Occupancy, nodes: int) -> int:
        """Idle nodes that the stage may borrow."""
        idle = 0
        for node in range(len(occupancy.cluster)):
            bit = 1 << node
            if occupancy.open_nodes & bit and not nodes & bit:
                full = occupancy.free[node].bit_count() == occupancy.cluster.gpus.item(node)
                idle |= bit if full else 0
        return idle

    # -- the cluster ------------------------------------------------------------------------------

    def _start(self, waiting: Units, walk: Walk, nodes: int) -> None:
        """Start or pack waiting rows, the least predicted GPU time first."""
        packs = self._packs(walk.ctx)
        if not len(waiting):
            return
        if self.options.sharing == "adaptive":
            walk.wake_at(after(walk.ctx.now, self.options.check_s))
        table = walk.table
        traits = self._traits(walk.ctx, given=nodes == ANYWHERE)
        service = waiting.predicted_work * waiting.gang
        order = np.argsort(service, kind="stable")
        rows = waiting.rows[order]
        walk.ranked(rows, {"gpu_seconds": service[order]})
        partners = self._partners(rows, traits, walk) if packs else None
        closed: dict[tuple[int, int], Refused] = {}
        pools, gangs = table.pool[rows].tolist(), table.gang[rows].tolist()
        for row, pool, gang in zip(rows.tolist(), pools, gangs, strict=True):
            if walk.is_over_limit(row, gang):
                walk.refuse(row, OVER_LIMIT)
                continue
            unknown = "" if partners is None else self._join(row, partners, traits, walk)
            if unknown is None:
                continue
            key = pool, gang if packs else 0
            placed = closed.get(key) or walk.place(row, nodes=nodes)
            if isinstance(placed, Refused) and key not in closed and nodes != ANYWHERE:
                placed = self._place_large(row, nodes, walk, placed)
            if isinstance(placed, Refused):
                if unknown or key not in closed:
                    walk.refuse(row, _refused(placed, unknown))
                if placed.reason != "Quota":  # that of its tenant: others may have theirs
                    closed[key] = placed
            elif partners is not None:
                partners.started(row)

    def _join(self, row: int, partners: Partners, traits: Traits, walk: Walk) -> str | None:
        """Pack a row: None. Else what is unknown and keeps it from that; "" where nothing is."""
        host = partners.of(row)
        unknown_use = ""
        if host is None and (host := partners.of_unknown(row)) is not None:
            unknown_use = OWN_USE_UNKNOWN if traits.is_unknown[row] else THEIR_USE_UNKNOWN
        if host is None:
            return ""
        lacking = walk.why_not_beside(row, host) or unknown_use
        if not lacking:
            walk.share(row, host)
            self._profiled.joins(row)
            walk.output("packed", row, 1.0)
            partners.joined(host)
            return None
        unknown = next((each for each in UNKNOWN if lacking.endswith(each)), "")
        if unknown:
            walk.output("unpaired", row, 2.0 if unknown == TOGETHER_UNKNOWN else 1.0)
        return unknown

    def _place_large(
        self, row: int, nodes: int, walk: Walk, refused: Refused
    ) -> Placement | Refused:
        """A row for which the cluster is too small even when idle may have nodes that profile."""
        mine = nodes & walk.ctx.pools.nodes[walk.table.pool.item(row)]
        return walk.place(row) if are_idle(mine, walk.occupancy) else refused

    def _packs(self, ctx: RoundContext) -> bool:
        """Are jobs packed now? Looked at once in a while; not before the first look."""
        chosen = self.options
        look = math.floor(ctx.now / chosen.check_s) * chosen.check_s
        if chosen.sharing == "never" or look < self.profiling.began:
            return False
        return chosen.sharing == "always" or not self._forecast.jobs(look) <= chosen.quiet_jobs

    def _partners(self, rows: Rows, traits: Traits, walk: Walk) -> Partners:
        """The running rows that may get a partner, by start."""
        table, occupancy = walk.table, walk.occupancy
        held = [row for row in occupancy.held if row not in occupancy.beside]
        alone = np.array(held, np.int64)
        alone = alone[~self._stay_apart(alone)]
        running = Units(table, alone, walk.ctx.now, np.ones(len(alone), np.bool_))
        hosts = alone[self._lists.order(running, running_first=True)]
        return Partners(hosts, rows, traits, self.options)

    def _stay_apart(self, rows: Rows) -> Bools:
        """Rows that get no partner."""
        return self._profiled.of(rows, PROFILING)

    def _traits(self, ctx: RoundContext, *, given: bool) -> Traits:
        """What is known of rows; without a profiling stage what is `given` with them."""
        score = self._profiled.remembered("score", self._scores(ctx.table))
        memory = self._profiled.remembered("memory", ctx.table.gpu_memory)
        if not given:
            rows = np.arange(len(ctx.table))
            score = np.where(self._profiled.of(rows, PROFILED), score, np.nan)
        return Traits(ctx.table, score, memory)

    def _scores(self, table: UnitTable) -> Floats:
        """Packing classes: those that are said, else by the measured use of GPUs."""
        extra, unknown = table.extra, np.full(len(table), np.nan)
        said = extra.get("share_score", unknown)
        if "gpu_util" not in extra:
            return said
        use = classes_of_use(extra["gpu_util"], extra.get("gmem_util", unknown), self.options)
        return np.where(np.isnan(said), use, said)


def _refused(why: Refused, unknown: str) -> Refused:
    """A refusal, which also says what is unknown of the row's partners, if anything is."""
    if not unknown:
        return why
    return Refused(why.reason, f"{why.detail}, and it joins no other job: {unknown}")
