"""Synergy: processors and memory by how much jobs gain from them.

Mohan, Phanishayee, Kulkarni, Chidambaram, "Looking Beyond GPUs for DNN Scheduling on Multi-Tenant
Clusters", OSDI 2022.

Any policy says which jobs get GPUs. Which part of the nodes' processors and memory comes with them,
this part decides (`mode`):

* `fair`: for each GPU the proportional share.
* `greedy`: what a job needs for its full speed, and a job that does not get it waits.
* `tune`: what a job needs for its full speed, where that is there; else its proportional share, for
  which jobs that were served before give up what they have above theirs. No job is slower than with
  its proportional share.
* `opt`: the shares with the greatest sum of gains, by an integer program for the jobs on GPUs.

So one object fills two stages. As a host part it goes with any policy (`--policy las --host
synergy`). As a policy it ranks jobs itself (`order`), as the authors' simulator does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from dlsched.core.allocation import HostShare, Ranking
from dlsched.core.arrays import Floats, Rows
from dlsched.core.cluster.occupancy import Placement
from dlsched.core.context import RoundContext
from dlsched.core.host_shares import HostDemand, HostPolicy
from dlsched.core.options import option
from dlsched.core.scheduling import SchedulingPolicy
from dlsched.core.units import Units
from dlsched.core.walk.counting import choose_by_count
from dlsched.core.walk.following import follow
from dlsched.core.walk.walk import Walk
from dlsched.policies.scheduling.ordering import PersistentOrder
from dlsched.policies.scheduling.synergy.demand import Mode, demand_of
from dlsched.policies.scheduling.synergy.orders import BY_TIME_LEFT, Order, order_key
from dlsched.policies.scheduling.synergy.program import best_shares


@dataclass(frozen=True, slots=True, kw_only=True)
class SynergyOptions:
    """Synergy."""

    mode: Mode = option("tune", "which processors and memory jobs get")
    peers: Literal["that-help", "in-turn"] = option(
        "that-help",
        "which jobs give up what they have above their proportional share: those with more of what "
        "is short, or all in turn, as the authors' simulator has it",
    )
    order: Order = option("fifo", "which jobs go first, where Synergy is the policy itself")
    rebuild: Literal["sticky", "full"] = option(
        "sticky", "running jobs keep their GPUs, or all GPUs are given anew in each decision"
    )


class Synergy(SchedulingPolicy[SynergyOptions], HostPolicy[SynergyOptions]):
    """Shares by sensitivity, and the orders of the authors' simulator."""

    name = "synergy"
    summary = "processors and memory by sensitivity: fair, greedy, tune, opt; ranks by `order`"
    at_limits = "tries"
    preemptive = True
    rests = False

    def __init__(self, options: SynergyOptions) -> None:
        super().__init__(options)
        if options.order in BY_TIME_LEFT:
            self.needs = frozenset({"predicted_work"})  # type: ignore[misc]  # of this order only
        self._previous = PersistentOrder()
        self.memories = (self._previous,)

    # -- the host part ----------------------------------------------------------------------------

    @property
    def takes_from_peers(self) -> bool:
        """In `greedy` jobs wait for what they want, in `fair` all is there."""
        return self.options.mode in ("tune", "opt")

    @property
    def spares_peers(self) -> bool:
        """Unless peers give up in turn."""
        return self.options.peers == "that-help"

    @property
    def decides_together(self) -> bool:
        """By a program, in `opt`."""
        return self.options.mode == "opt"

    def demand(self, units: Units, ctx: RoundContext) -> HostDemand:
        """The full speed at best, at least the proportional share."""
        return demand_of(units, ctx.occupancy.cluster, ctx.perf, self.options.mode)

    def best_for_all(
        self, rows: Sequence[int], placements: Sequence[Placement], ctx: RoundContext
    ) -> Sequence[HostShare]:
        """The shares with the greatest sum of gains, among those that were measured."""
        cluster = ctx.occupancy.cluster
        units = Units(ctx.table, np.array(rows, np.int64), ctx.now)
        gpus = np.zeros((len(rows), len(cluster)))
        for place, where in enumerate(placements):
            for node, mask in zip(where.nodes, where.masks, strict=True):
                gpus[place, node] += mask.bit_count()
        menus, gains = [], []
        for row, least in zip(rows, self.demand(units, ctx).least.tolist(), strict=True):
            shares: list[HostShare] = []
            gain = np.zeros(0)
            if ctx.perf.by_host is not None:
                shares, gain = ctx.perf.by_host.menu(row)
            good = gain >= 1.0  # never slower than with its proportional share
            menus.append(np.array([least, *np.array(shares).reshape(-1, 2)[good].tolist()]))
            gains.append(np.array([1.0, *gain[good]]))
        chosen = best_shares(menus, gains, gpus, np.stack([cluster.cpus, cluster.memory_gb]))
        return [HostShare._make(m[c].tolist()) for m, c in zip(menus, chosen, strict=True)]

    # -- the policy -------------------------------------------------------------------------------

    def allocate(self, units: Units, ctx: RoundContext, walk: Walk) -> None:
        """Rank; `las` with a full rebuild serves only jobs that fit by their GPUs alone."""
        ranking = self.rank(units, ctx)
        if self.options.order == "las" and ranking.rebuild == "full" and walk.may_preempt:
            chosen = self._that_fit(units, ranking.order, ctx, walk)
            left_out = np.setdiff1d(ranking.order, chosen)
            for row in units.rows[left_out[units.running[left_out]]].tolist():
                walk.suspend(row)
            ranking = replace(ranking, order=chosen)
        follow(walk, units, ranking)

    def rank(self, units: Units, ctx: RoundContext) -> Ranking:
        """By the key of `order`, then by arrival, then as before."""
        options, cluster = self.options, ctx.occupancy.cluster
        best = self.demand(units, ctx).best
        total, left = units.predicted_work, units.remaining_work
        if ctx.perf.by_host is not None:
            total = ctx.perf.by_host.seconds(units.rows, total)
            left = ctx.perf.by_host.seconds(units.rows, left) / self._gains(units, best, ctx)
        key = order_key(
            options.order, units, left_s=left, total_s=total, best=best, cluster=cluster
        )
        order = self._previous.sort(units, key, units.submit_time, remember=ctx.mode == "full")
        return Ranking(
            order=order,
            rebuild=options.rebuild,
            stable_until=np.inf if options.order == "fifo" else -np.inf,
        )

    def _gains(self, units: Units, best: Floats, ctx: RoundContext) -> Floats:
        """How much faster each is than with its proportional share, if it gets what it wants.

        A running unit is as fast as it is.
        """
        host = ctx.perf.by_host
        if host is None or self.options.mode == "fair":
            return np.ones(len(units))
        now = np.stack([units.gpu_cpus, units.gpu_memory_gb], axis=1)
        has = units.running[:, None] & ~np.isnan(now)
        return host.gains(units.rows, np.where(has, now, best))

    def _that_fit(self, units: Units, order: Rows, ctx: RoundContext, walk: Walk) -> Rows:
        """Those that fit by GPUs, in order; in `tune` the largest first."""
        gang, ranked = units.gang, units[order]
        nodes, capacity = ctx.pools.nodes, ctx.occupancy.capacity_in
        if walk.limits is None:
            chosen = choose_by_count(ranked.gang, capacity(nodes[0]))
        else:
            by_pool = {pool: capacity(nodes[pool]) for pool in np.unique(ranked.pool).tolist()}
            chosen = walk.limits.chosen_by_count(
                ranked.rows, ranked.running, ranked.gang, by_pool, stop=False
            )
        picked = order[chosen]
        if self.options.mode == "tune":
            picked = picked[np.argsort(-gang[picked], kind="stable")]
        return picked
