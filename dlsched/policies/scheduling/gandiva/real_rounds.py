"""One decision of Gandiva: servers, moves, turns, packs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from dlsched.core.allocation import Refused
from dlsched.core.context import RoundContext
from dlsched.core.sums import ordered_sum
from dlsched.core.units import RUNNING, Units
from dlsched.core.walk.co_location import may_join
from dlsched.core.walk.walk import Walk
from dlsched.policies.scheduling.gandiva.options import GandivaOptions
from dlsched.policies.scheduling.gandiva.packs import Packs
from dlsched.policies.scheduling.gandiva.servers import Servers, turns

QUEUED = Refused("Resources", "no server of its gang size, and too few GPUs are free")
NOT_ITS_TURN = Refused("Slice", "other jobs on its server have their turn")
CLOCK_S = 1e-6  # clocks are sums of float seconds


class GandivaRounds:
    """The policy's memory, and its decisions.

    Attributes:
        servers: which servers serve which jobs; packed jobs are on none.
        packs: which jobs share GPUs.
    """

    def __init__(self, options: GandivaOptions) -> None:
        self._options = options
        self.servers = Servers({})
        self.packs = Packs()
        self._ahead: dict[int, float] = {}  # of each job, seconds on GPUs that do not count
        self._idle_since: dict[int, float] = {}  # of servers with free GPUs

    def allocate(self, units: Units, ctx: RoundContext, walk: Walk) -> None:
        """Follow what has happened, then improve, then choose the jobs that run."""
        now = _Now(units, ctx, walk)
        self._follow(now)
        self._measure(now)
        new = [row for row in now.rows if row not in self.servers.of and row not in self.packs.of]
        if new:
            self._shrink(now)
        for row in new:
            self._assign(row, now)
        if self._options.migrate:
            self._migrate(now)
        self._have_turns(now)
        if self._options.pack and ctx.may_share and self.servers.is_overloaded:
            self._try_pack(now)
        self._grow(now)
        self._say_and_wake(now)

    # -- what has happened ------------------------------------------------------------------------

    def _follow(self, now: _Now) -> None:
        servers, packs = self.servers, self.packs
        servers.gpus = now.capacities()
        known = set(now.rows)
        for packed in [packed for packed in packs.of if packed not in known]:
            packs.forget(packed)
        for job in [job for job in servers.of if job not in known]:
            servers.leave(job)
            packs.forget(job)
            self._ahead.pop(job, None)
        for job, where in list(servers.of.items()):
            if not where.keys() <= servers.gpus.keys():
                servers.leave(job)
        placed = now.ctx.occupancy.held
        for packed, pack in list(packs.of.items()):
            is_apart = packed in placed and placed[packed] != placed.get(pack.host)
            if pack.host not in servers.of or is_apart:  # a fill has started it elsewhere
                packs.end(packed, now.time, failed=False)
        for row, here in sorted(now.held.items()):
            is_whole = here.keys() <= servers.gpus.keys()
            if row not in packs.of and is_whole and servers.of.get(row) != here:
                servers.put(row, here)  # a fill, or another part of the system, has started it

    def _measure(self, now: _Now) -> None:
        """Compare packs with the speeds alone, and end those that do not pay."""
        packs, shared = self.packs, set(self.packs.of)
        shared |= {pack.host for pack in packs.of.values()}
        for row in now.rows:
            if row in shared:
                packs.see_packed(row)
            elif row in now.held:
                packs.see_alone(row, now.work[row], now.held_s[row], self._options.window_s)
        for packed, pack in list(packs.of.items()):
            if not {packed, pack.host} <= now.working:
                pack.since = None
                continue
            gain = packs.gain(
                packed, now.work, now.held_s[packed], self._options.window_s, now.usual_rate
            )
            if gain is None:
                continue
            pack.is_kept = gain > 1.0
            if not pack.is_kept:
                packs.end(packed, now.time, failed=True)
                now.walk.suspend(packed)
                self._assign(packed, now)

    def _assign(self, row: int, now: _Now) -> None:
        """Find servers for a job; it joins the turns of those that are there as the last."""
        if not self.servers.assign(row, now.gang[row], now.allowed(row)):
            return
        on_its_servers = {
            other
            for server in self.servers.of[row]
            for other in self.servers.jobs_on(server)
            if other != row
        }
        least = min((self._virtual(other, now) for other in on_its_servers), default=0.0)
        self._ahead[row] = now.held_s[row] - least * now.weight[row]

    def _virtual(self, row: int, now: _Now) -> float:
        """Seconds of turns that a job has had, for each unit of its weight."""
        return (now.held_s[row] - self._ahead.get(row, 0.0)) / now.weight[row]

    # -- moves ------------------------------------------------------------------------------------

    def _migrate(self, now: _Now) -> None:
        """Lower heights, gather jobs that are spread, empty servers; never without idle GPUs."""
        servers, options = self.servers, self._options

        def may_use(job: int, server: int) -> bool:
            return server in now.allowed(job) and self._may_move(job, now)

        def gains(job: int) -> bool:
            return now.left[job] * options.spread_loss > options.migration_s

        def lasts(job: int) -> bool:
            return now.left[job] > options.migration_s

        for _ in range(len(now.rows)):
            move = None
            if any(servers.free(server) for server in servers.gpus):
                move = servers.relieving(may_use)
                if move is None and not servers.is_overloaded:
                    move = servers.gathering(may_use, gains)
                    move = move or servers.defragmenting(options.threshold, may_use, lasts)
            if move is None:
                return
            servers.move(*move)

    def _may_move(self, job: int, now: _Now) -> bool:
        return job not in now.fixed and not self.packs.packed_on(job)

    # -- turns ------------------------------------------------------------------------------------

    def _have_turns(self, now: _Now) -> None:
        """Suspend the jobs whose turn is over, and start those whose turn it is."""
        servers, packs, walk = self.servers, self.packs, now.walk
        order = sorted(
            (row for row in now.rows if row in servers.of and row not in now.fixed),
            key=lambda row: (not self._has_turn(row, now), self._virtual(row, now), row),
        )
        chosen = set(turns(order, servers.of, servers.gpus, now.fixed)) | now.fixed
        for row in list(now.held):
            host = packs.of[row].host if row in packs.of else row
            stays = host in chosen and now.held[host] == servers.of.get(host, now.held[host])
            if not stays and row in now.ctx.occupancy.held and row not in now.fixed:
                walk.suspend(row)
        held = now.ctx.occupancy.held
        for row in order:
            if row in chosen and row not in held:
                self._start(row, now)
        for row in now.rows:
            if row not in servers.of and row not in packs.of and row not in held:
                self._start(row, now)
        for packed, pack in list(packs.of.items()):
            if packed not in held and pack.host in held:
                if may_join(packed, pack.host, walk):
                    walk.share(packed, pack.host)
                else:
                    packs.end(packed, now.time, failed=True)
                    self._assign(packed, now)

    def _has_turn(self, row: int, now: _Now) -> bool:
        """Does a job run whose turn is not over yet?"""
        return row in now.held and now.time - now.since[row] < self._options.slice_s - CLOCK_S

    def _start(self, row: int, now: _Now) -> None:
        """Start a job on its servers, or where there is room if they can not hold it."""
        where = self.servers.of.get(row, {})
        nodes = sum(1 << server for server in where)
        placed = now.walk.place(row, sum(where.values()), nodes=nodes) if where else None
        if placed is None or isinstance(placed, Refused):
            placed = now.walk.place(row)
        if isinstance(placed, Refused):
            now.walk.refuse(row, placed if where else QUEUED)
            return
        here = dict(zip(placed.nodes, (m.bit_count() for m in placed.masks), strict=True))
        if here != where:
            self.servers.put(row, here)

    # -- packs ------------------------------------------------------------------------------------

    def _try_pack(self, now: _Now) -> None:
        """Let the job that uses a GPU least join the GPUs that are used least, for a trial."""
        packs, held = self.packs, now.ctx.occupancy.held
        candidates = [
            row
            for row in now.rows
            if row in self.servers.of and row not in held and not packs.packed_on(row)
        ]
        for packed in sorted(candidates, key=lambda row: (now.use[row], row)):
            if not self._is_measured(packed, now):
                continue
            tried = packs.failed_with(packed, now.time, self._options.retry_s)
            hosts = [
                row
                for row in held
                if row in self.servers.of
                and row not in tried
                and self._is_measured(row, now)
                and len(packs.packed_on(row)) + 2 <= self._options.per_gpu
                and may_join(packed, row, now.walk)
            ]
            if hosts:
                host = min(hosts, key=lambda row: (self._use_with_packed(row, now), row))
                self.servers.leave(packed)
                packs.begin(packed, host)
                now.walk.share(packed, host)
                return

    def _is_measured(self, row: int, now: _Now) -> bool:
        """Is it known how much of a GPU a job uses, and how fast it is alone?"""
        return now.use[row] >= 0 and self.packs.alone(row, now.usual_rate) > 0

    def _use_with_packed(self, row: int, now: _Now) -> float:
        return now.use[row] + ordered_sum(now.use[packed] for packed in self.packs.packed_on(row))

    # -- growing and shrinking --------------------------------------------------------------------

    def _shrink(self, now: _Now) -> None:
        """Take back what growable jobs have beyond their gangs: a job has come."""
        for row, where in list(self.servers.of.items()):
            is_grown = len(where) == 1 and sum(where.values()) > now.gang[row]
            if is_grown and row not in now.fixed:
                (server,) = where
                self.servers.of[row] = {server: now.gang[row]}

    def _grow(self, now: _Now) -> None:
        """Give GPUs that have been idle for a while to a growable job on the same server."""
        servers, held, walk = self.servers, now.ctx.occupancy.held, now.walk
        free = {server: servers.free(server) for server in servers.gpus}
        self._idle_since = {
            server: self._idle_since.get(server, now.time) for server in free if free[server]
        }
        if servers.is_overloaded or any(row not in held for row in now.rows):
            return
        for row in now.rows:
            where = servers.of.get(row, {})
            if len(where) != 1 or row in walk.launched or not self._may_move(row, now):
                continue
            ((server, has),) = where.items()
            idle = now.time - self._idle_since.get(server, now.time)
            size = min(now.most[row], has + servers.free(server))
            if size <= has or idle < self._options.grow_after_s - CLOCK_S:
                continue
            if now.ctx.perf.step_s(row, size) < now.ctx.perf.step_s(row, has):
                walk.suspend(row)
                if isinstance(walk.place(row, size, nodes=1 << server), Refused):
                    walk.place(row, has, nodes=1 << server)
                else:
                    servers.of[row] = {server: size}

    # -- what is said -----------------------------------------------------------------------------

    def _say_and_wake(self, now: _Now) -> None:
        held, walk = now.ctx.occupancy.held, now.walk
        for row in now.rows:
            if row not in held and row in self.servers.of:
                walk.refuse(row, NOT_ITS_TURN)
        wake = math.inf
        for server in self.servers.gpus:
            if self.servers.height(server) > 1:
                for row in self.servers.jobs_on(server):
                    if row in held:
                        since = now.since[row] if row not in walk.launched else now.time
                        wake = min(wake, max(since + self._options.slice_s, now.time + 1.0))
        if self.packs.of:
            wake = min(wake, now.time + self._options.window_s)
        if any(now.most[row] > sum(self.servers.of.get(row, {}).values()) for row in now.rows):
            due = (since + self._options.grow_after_s for since in self._idle_since.values())
            wake = min(wake, min((at for at in due if at > now.time), default=math.inf))
        walk.wake_at(wake)

    # -- state ------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Servers, packs and turns, as plain values."""
        servers = self.servers
        return {
            "of": [[job, sorted(where.items())] for job, where in servers.of.items()],
            "affinity": sorted(servers.affinity.items()),
            "ahead": sorted(self._ahead.items()),
            "idle_since": sorted(self._idle_since.items()),
            "packs": self.packs.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state_dict`."""
        self.servers.of = {
            int(job): {int(server): int(count) for server, count in where}
            for job, where in state["of"]
        }
        self.servers.affinity = {int(server): int(gang) for server, gang in state["affinity"]}
        self._ahead = {int(job): float(value) for job, value in state["ahead"]}
        self._idle_since = {int(server): float(at) for server, at in state["idle_since"]}
        self.packs.load_state_dict(state["packs"])

    def renumber(self, place: Mapping[int, int]) -> None:
        """Jobs have other numbers from now on."""
        self.servers.of = {place[j]: w for j, w in self.servers.of.items() if j in place}
        self._ahead = {place[j]: each for j, each in self._ahead.items() if j in place}
        self.packs.rename(place)


class _Now:
    """A decision's snapshot, by row."""

    def __init__(self, units: Units, ctx: RoundContext, walk: Walk) -> None:
        self.ctx, self.walk, self.time = ctx, walk, ctx.now
        self.rows: list[int] = units.rows.tolist()

        def by_row(values: Any) -> dict[int, Any]:
            return dict(zip(self.rows, np.asarray(values).tolist(), strict=True))

        self.gang: dict[int, int] = by_row(units.gang)
        self.most: dict[int, int] = by_row(np.maximum(units.max_gpus, units.gang))
        self.held_s: dict[int, float] = by_row(units.held_s)
        self.since: dict[int, float] = by_row(units.since)
        left = np.where(np.isnan(units.remaining_work), np.inf, units.remaining_work)
        self.left: dict[int, float] = by_row(left)
        known = units.weight > 0
        self.weight: dict[int, float] = by_row(np.where(known, units.weight, 1.0))
        steps = "steps_done" in ctx.table.extra  # of a live cluster: the work that jobs report
        self.usual_rate = math.nan if steps else 1.0
        self.work: dict[int, float] = by_row(units.extra("steps_done") if steps else units.executed)
        use = ctx.table.extra.get("gpu_util")
        is_known = use is not None and use.dtype != np.object_
        self.use: dict[int, float] = by_row(
            units.extra("gpu_util") if is_known else np.full(len(units), np.nan)
        )
        self.held: dict[int, dict[int, int]] = {
            row: dict(zip(where.nodes, (m.bit_count() for m in where.masks), strict=True))
            for row, where in ctx.occupancy.held.items()
            if row in self.gang
        }
        table = ctx.table
        runs = [row for row in self.held if table.status[row] == RUNNING]
        ready = table.progress_from
        self.working = {row for row in runs if ready[row] <= ctx.now}
        rows = np.array(runs, np.int64)
        open_nodes = ctx.occupancy.open_nodes
        self.fixed: set[int] = set(rows[walk.is_protected(rows)].tolist())
        self.fixed |= {
            row for row, here in self.held.items() if any(not open_nodes >> n & 1 for n in here)
        }

    def capacities(self) -> dict[int, int]:
        """GPUs of each server that may get new work."""
        occupancy = self.ctx.occupancy
        return {
            node: capacity
            for node in range(len(occupancy.cluster))
            if occupancy.open_nodes >> node & 1 and (capacity := occupancy.capacity_in(1 << node))
        }

    def allowed(self, row: int) -> list[int]:
        """The servers that a job may use."""
        nodes = self.ctx.pools.nodes[self.ctx.table.pool.item(row)] & self.ctx.occupancy.open_nodes
        return [node for node in range(nodes.bit_length()) if nodes >> node & 1]
