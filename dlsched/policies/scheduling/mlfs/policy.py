"""The policy `mlfs`: jobs by features of learning and of time, on the servers that suit them.

In each decision every job gets a priority (`priorities.py`); jobs leave overloaded servers
(`relief.py`); those that left and those that wait are placed in the order of their priorities
(`placing.py`); then trainings end that are accurate enough (`load_control.py`). A job that runs is
never preempted for one of higher priority. Paper: see the package.
"""

from __future__ import annotations

import math

import numpy as np

from dlsched.core.allocation import Grant, Refused
from dlsched.core.arrays import Floats, Rows
from dlsched.core.context import RoundContext
from dlsched.core.scheduling import SchedulingPolicy
from dlsched.core.units import Units
from dlsched.core.walk.walk import Walk
from dlsched.policies.scheduling.mlfs.choices import (
    WINDOW,
    ByNetwork,
    Chooses,
    candidates_to_be_next,
    features_of_jobs,
)
from dlsched.policies.scheduling.mlfs.load_control import LoadControl
from dlsched.policies.scheduling.mlfs.losses import Losses
from dlsched.policies.scheduling.mlfs.options import MlfsOptions
from dlsched.policies.scheduling.mlfs.placing import Hosts
from dlsched.policies.scheduling.mlfs.relief import relieve
from dlsched.policies.scheduling.mlfs.servers import Servers, says_use
from dlsched.policies.scheduling.mlfs.tasks import Ranked, Relatives, ranked


class Mlfs(SchedulingPolicy[MlfsOptions]):
    """Priorities, relief, placement, load control.

    Attributes:
        chooser: takes the next job and its servers in the place of MLF-H; a training sets its own.
    """

    name = "mlfs"
    summary = "jobs by what they learn and how late they are; overloaded servers are relieved"
    at_limits = "tries"
    preemptive = True
    rests = False  # running jobs may have to move
    knows_deadlines = True

    def __init__(self, options: MlfsOptions) -> None:
        super().__init__(options)
        self._losses = Losses()
        self._control = LoadControl(options)
        self.memories = (self._losses, self._control)
        self.chooser: Chooses | None = None if options.model is None else ByNetwork(options.model)

    @property
    def pairs_units(self) -> bool:
        """True where it chooses GPUs itself: then it also chooses whose GPUs a job shares."""
        return self.options.hosts == "nearest"

    def allocate(self, units: Units, ctx: RoundContext, walk: Walk) -> None:
        """Rank all jobs, relieve servers, place what waits, and end what is accurate enough."""
        relatives = Relatives(ctx.table, ctx.now)
        order = ranked(ctx, relatives, self._losses, self.options)
        servers = Servers(ctx.occupancy.cluster, ctx.table, self.options.overload)
        for row, placement in ctx.occupancy.held.items():
            servers.come(row, placement)
        moved = (
            relieve(walk, servers, order, relatives, self.options)
            if self.options.relieve and walk.may_preempt
            else []
        )
        self._place(
            order,
            set(moved),
            ctx,
            walk,
            Hosts(walk, servers, relatives, self.options, self.chooser),
        )
        if walk.may_preempt:
            self._end(ctx, walk, servers)
        if not says_use(ctx.table) and not self._control.applies(ctx.table, ctx.active):
            walk.stable_until(math.inf)

    def _end(self, ctx: RoundContext, walk: Walk, servers: Servers) -> None:
        """End the trainings that may end; their GPUs are free at the next decision."""
        if not self.options.load_control:
            return
        running = ctx.running
        stays = np.array([row not in walk.suspended for row in running.rows.tolist()], np.bool_)
        waits = any(row not in ctx.occupancy.held for row in ctx.active.tolist())
        overloaded = waits or servers.load_of_all > self.options.cluster_load
        for row, why in self._control.ended(running[stays], overloaded=overloaded):
            walk.grant(row, Grant(complete=True))
            walk.refuse(row, Refused("TargetReached", why))
            walk.output("ended_early", row, 1.0)

    def _place(
        self, order: Ranked, moved: set[int], ctx: RoundContext, walk: Walk, hosts: Hosts
    ) -> None:
        held, rows = ctx.occupancy.held, order.rows.tolist()
        waits = np.array([row not in held for row in rows], np.bool_)
        submitted = ctx.table.submit_time[order.rows]
        places = np.lexsort((order.rows, submitted, -order.total))
        places = places[waits[places]]
        queue = order.rows[places]
        walk.ranked(queue, {name: values[places] for name, values in order.terms.items()})
        if self.chooser is not None:
            self._place_chosen(queue, _features(order, places, ctx), walk, hosts)
            return
        for row in queue.tolist():
            placed = hosts.place(row)
            if isinstance(placed, Refused):
                walk.refuse(row, placed)
                if self.options.misfit == "stop" and placed.reason != "Quota" and row not in moved:
                    break

    def _place_chosen(self, queue: Rows, features: Floats, walk: Walk, hosts: Hosts) -> None:
        """Place what waits in the order in which it is chosen, until nothing fits any more."""
        assert self.chooser is not None
        waiting, pool, gang = list(range(len(queue))), walk.table.pool, walk.table.gang
        rows: list[int] = queue.tolist()
        while waiting:
            small = [
                place
                for place in waiting
                if gang.item(rows[place]) <= walk.free_gpus(pool.item(rows[place]))
            ][:WINDOW]
            if not small:
                break
            found = self.chooser.choose(candidates_to_be_next(features[small]), 0)
            place = small[found]
            waiting.remove(place)
            placed = hosts.place(rows[place], features[place])
            if isinstance(placed, Refused):
                walk.refuse(rows[place], placed)


def _features(order: Ranked, places: Rows, ctx: RoundContext) -> Floats:
    """What a network sees of the jobs that wait, in the order of their priorities."""
    every = features_of_jobs(
        order.tasks, ctx.table.gang[order.rows], ctx.occupancy.cluster.total_gpus
    )
    found: Floats = every[places]
    return found
