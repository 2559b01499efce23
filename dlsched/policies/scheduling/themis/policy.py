"""The policies `themis` and `themis-greedy`: leases, given to the apps with the worst ρ.

An app is a job group, or a single job; ρ is its finish time in the shared cluster over its ideal
finish time. A job keeps its GPUs until its lease ends. At each full decision the free GPUs and
those of ended leases are auctioned among the worst-off apps. Between two decisions idle GPUs go to
the worst-off app. While no job waits, leases are renewed without an auction.

Paper: see the package. Inputs: predicted work (converted to seconds on one GPU of the fastest
type), throughputs by GPU type, and, for elastic jobs, by number of GPUs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeVar

import numpy as np

from dlsched.core.allocation import Refused
from dlsched.core.context import RoundContext
from dlsched.core.memory import by_row, kept
from dlsched.core.options import option
from dlsched.core.scheduling import SchedulingPolicy
from dlsched.core.units import Units
from dlsched.core.walk.walk import Walk
from dlsched.policies.scheduling.themis.accounts import Accounts
from dlsched.policies.scheduling.themis.app import App
from dlsched.policies.scheduling.themis.auction import Bundle, auction, leftovers, minus, plus
from dlsched.policies.scheduling.themis.bidding import Offer, seconds_at_best, sizes_of


@dataclass(frozen=True, slots=True, kw_only=True)
class ThemisGreedyOptions:
    """Themis without the auction."""

    lease_s: float = option(1200.0, "seconds for which a job keeps its GPUs", low=1.0)
    ends: Literal["last", "first"] = option(
        "last", "an app ends with its last job, or with its first one (a search for a good trial)"
    )
    slowdown_rack: float = option(
        1.0, "S: how many times longer work takes on several machines of a rack", low=1.0
    )
    slowdown_cross: float = option(1.0, "S on several racks (leaf switches)", low=1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ThemisOptions(ThemisGreedyOptions):
    """Themis."""

    knob: float = option(
        0.8, "f: GPUs are offered to the worst-off part 1 − f of the apps", low=0.0, high=1.0
    )
    payment: Literal["gpus", "time"] = option(
        "gpus", "how bidders pay: with GPUs of the bundle, or with time of the lease"
    )
    leftovers: Literal["rho", "random"] = option(
        "rho", "order in which apps get the GPUs that are left: worst-off first, or random"
    )
    most_bidders: int = option(8, "number of bidders above which an auction is greedy", low=0)
    most_bundles: int = option(
        200, "number of possible bundles above which an auction is greedy", low=1
    )


O = TypeVar("O", bound=ThemisGreedyOptions)  # noqa: E741 - the options' type, as in `Stage`
OVER_S = 1e-9
WAITS = Refused("Priority", "other jobs are worse off, or hold leases that have not ended")


@dataclass(slots=True)
class Grants:
    """The GPUs that apps get.

    Attributes:
        bundles: GPUs by machine, by app.
        order: apps, worst-off first.
        lease: seconds of the lease by app, where it is not `lease_s`.
    """

    bundles: dict[str, Bundle]
    order: list[str]
    lease: dict[str, float] = field(default_factory=dict)


class _Leases(SchedulingPolicy[O]):
    """The common part of both policies: accounts, leases, and placing jobs."""

    weighs_types = True
    preemptive = True
    rests = False
    needs = frozenset({"predicted_work"})

    _accounts: Accounts = kept(Accounts)
    _until: dict[int, float] = by_row(float)  # the end of each running row's lease
    # the app for which GPUs are gathered, and when there will be enough of them
    _gathers: tuple[str, float] = kept(("", math.inf), tuple)

    def _decided(
        self, apps: dict[str, App], order: list[str], offer: Offer, *, alone: bool
    ) -> Grants:
        raise NotImplementedError

    def allocate(self, units: Units, ctx: RoundContext, walk: Walk) -> None:
        """One decision: hand out free GPUs and those of ended leases, then fill idle GPUs."""
        self._update(ctx)
        held = ctx.occupancy.held
        waiting = [row for row in ctx.active.tolist() if row not in held]
        expired = self._expired(ctx, walk)
        if waiting and ctx.mode == "full" and (expired or ctx.free_gpus):
            self._hand_out(waiting, expired, ctx, walk)
        else:
            for row in expired:
                self._until[row] = self._end(ctx.now, self.options.lease_s)
        self._fill(ctx, walk)
        if not ctx.round_length and len(ctx.active) > len(held):
            walk.wake_at(self._next_end(ctx))

    def _next_end(self, ctx: RoundContext) -> float:
        """The next time at which a lease ends, or a row with an ended lease may be moved."""
        rows, soonest = np.fromiter(self._until, np.int64), math.inf
        since = ctx.kept_since(rows).tolist()
        for end, began in zip(self._until.values(), since, strict=True):
            at = max(end, began + ctx.min_run)
            if at > ctx.now + OVER_S:
                soonest = min(soonest, at)
        return soonest

    def _end(self, now: float, lease_s: float) -> float:
        """The end of a lease that begins now."""
        end = now + lease_s
        ready = self._gathers[1]
        return ready if now < ready < end else end

    def _gather(self, order: list[str], apps: dict[str, App], offer: Offer, now: float) -> bool:
        """Gather GPUs for the worst-off app if the offer is too small for it.

        Until enough GPUs are free for the app, new leases end by that time; what was gathered is
        then offered to the app alone. So gangs of any size get a turn. `order` has the worst-off
        first; an app with gathered GPUs moves to the front.

        Returns:
            whether the offer was gathered for the first app in order.
        """
        gathers_for, at = self._gathers
        app = gathers_for if now >= at - OVER_S and gathers_for in apps else ""
        self._gathers = "", math.inf
        if app and apps[app].value(offer.gpus) > 0:
            order.remove(app)
            order.insert(0, app)
            return True
        if apps[order[0]].value(offer.gpus) == 0.0:
            at = offer.enough_at(apps[order[0]].least, self._until)
            if now < at < math.inf:
                self._gathers = order[0], at
        return False

    def _update(self, ctx: RoundContext) -> None:
        """Enter new jobs, remove ended ones, and count the time of competition."""
        accounts, table = self._accounts, ctx.table
        accounts.pass_time(ctx.now)
        active = ctx.active
        accounts.keep(dict.fromkeys(active.tolist()))
        new = np.array(sorted(set(active.tolist()) - set(accounts.app)), np.int64)
        names = table.names["group"]
        sizes = sizes_of(new, ctx)
        for row, code, start, work, gang in zip(
            new.tolist(),
            table.group[new].tolist(),
            table.submit_time[new].tolist(),
            seconds_at_best(table.predicted_work[new], new, ctx).tolist(),
            table.gang[new].tolist(),
            strict=True,
        ):
            group = "" if code < 0 else names[code] if code < len(names) else str(code)
            accounts.enter(row, group, start, work * gang, sizes[row].most)
        running = ctx.occupancy.held
        self._until = {row: end for row, end in self._until.items() if row in running}
        for row in running:  # taken over from another policy
            self._until.setdefault(row, ctx.now + self.options.lease_s)

    def _expired(self, ctx: RoundContext, walk: Walk) -> list[int]:
        """Running rows with an ended lease that may be moved."""
        rows = sorted(row for row, end in self._until.items() if end <= ctx.now + OVER_S)
        if not rows or not walk.may_preempt:
            return []
        protected = walk.is_protected(np.array(rows, np.int64)).tolist()
        draining = ctx.occupancy.draining
        return [
            row
            for row, kept in zip(rows, protected, strict=True)
            if not kept
            and not any(draining >> node & 1 for node in ctx.occupancy.held[row].nodes)
            and row not in ctx.occupancy.beside
        ]

    def _offer(self, waiting: list[int], expired: list[int], ctx: RoundContext) -> Offer:
        options = self.options
        return Offer(
            waiting, expired, ctx, in_rack=options.slowdown_rack, across=options.slowdown_cross
        )

    def _rho(self, offer: Offer, ctx: RoundContext) -> tuple[dict[str, App], dict[str, float]]:
        """The apps that could use more GPUs, and their present ρ."""
        accounts, gpus = self._accounts, ctx.occupancy.capacity_in(ctx.occupancy.open_nodes)
        wanting: dict[str, list[int]] = {}
        for row in offer.rows:
            wanting.setdefault(accounts.app[row], []).append(row)
        leased: dict[str, list[int]] = {}
        for row in ctx.occupancy.held:
            if row not in offer.jobs and row in accounts.app:
                leased.setdefault(accounts.app[row], []).append(row)
        apps, rho = {}, {}
        for name, rows in wanting.items():
            account = accounts.of[name]
            app = App(
                [offer.jobs[row] for row in rows],
                offer.machines,
                elapsed=ctx.now - account.start,
                ideal=account.ideal(gpus, len(accounts.of)),
                leased=[offer.rate_of(row) for row in leased.get(name, ())],
                ends=self.options.ends,
                move_s=ctx.restart_overhead,
            )
            apps[name] = app
            rho[name] = app.rho(offer.placed_now(rows))
        return apps, rho

    def _worst_first(
        self, apps: Mapping[str, App], rho: Mapping[str, float], ctx: RoundContext
    ) -> list[str]:
        """Apps by descending ρ (infinite without GPUs); of equals by the best ρ they can reach."""
        gpus = ctx.occupancy.capacity_in(ctx.occupancy.open_nodes)
        best = {name: app.rho_at_best(gpus) for name, app in apps.items()}
        place = {name: number for number, name in enumerate(self._accounts.of)}
        start = self._accounts.of
        return sorted(
            rho, key=lambda name: (-rho[name], -best[name], start[name].start, place[name])
        )

    def _hand_out(
        self, waiting: list[int], expired: list[int], ctx: RoundContext, walk: Walk
    ) -> None:
        """Decide which jobs get the offered GPUs, stop the others, start the new ones."""
        offer = self._offer(waiting, expired, ctx)
        apps, rho = self._rho(offer, ctx)
        order = self._worst_first(apps, rho, ctx)
        gathered = self._gather(order, apps, offer, ctx.now)
        grants = self._decided(apps, order, offer, alone=gathered)
        chosen: dict[int, Bundle] = {}
        lease: dict[int, float] = {}
        for name in grants.order:
            for placed_job in apps[name].pack(grants.bundles.get(name, offer.nothing)):
                chosen[placed_job.job.row] = placed_job.bundle
                lease[placed_job.job.row] = grants.lease.get(name, self.options.lease_s)
        for row in expired:
            if chosen.get(row) == offer.jobs[row].now:
                self._until[row] = self._end(ctx.now, lease[row])
            else:
                walk.suspend(row)
                del self._until[row]
        # jobs on one machine first: the others then take the GPUs that are left
        for row, bundle in sorted(chosen.items(), key=lambda one: sum(map(bool, one[1]))):
            if row not in ctx.occupancy.held:
                placed = walk.place(row, sum(bundle), nodes=offer.nodes_of(bundle))
                if not isinstance(placed, Refused):
                    self._until[row] = self._end(ctx.now, lease[row])

    def _fill(self, ctx: RoundContext, walk: Walk) -> None:
        """Start jobs of the worst-off apps on idle GPUs; tell the others why they wait."""
        held, app = ctx.occupancy.held, self._accounts.app
        waiting = [row for row in ctx.active.tolist() if row not in held]
        if not waiting:
            return
        refused, sizes = WAITS, sizes_of(np.array(waiting, np.int64), ctx)
        if ctx.free_gpus:
            offer = self._offer(waiting, [], ctx)
            apps, rho = self._rho(offer, ctx)
            order = self._worst_first(apps, rho, ctx)
            place = {name: number for number, name in enumerate(order)}
            waiting.sort(key=lambda row: (place[app[row]], offer.jobs[row].remaining, row))
        for row in waiting:
            free = walk.free_gpus(int(ctx.table.pool[row]))
            size = sizes[row]
            if size.least <= free:
                placed = walk.place(row, min(size.most, free))
                if not isinstance(placed, Refused):
                    self._until[row] = self._end(ctx.now, self.options.lease_s)
                    continue
                refused = placed
            else:
                refused = WAITS
            walk.refuse(row, refused)


class Themis(_Leases[ThemisOptions]):
    """Themis: partial-allocation auctions among the worst-off apps."""

    name = "themis"
    summary = "finish-time fairness: leases by partial-allocation auctions among the worst-off apps"

    def allocate(self, units: Units, ctx: RoundContext, walk: Walk) -> None:
        """One decision, with an auction if GPUs can be handed out."""
        self._lots = ctx.rng if self.options.leftovers == "random" else None
        super().allocate(units, ctx, walk)

    def _decided(
        self, apps: dict[str, App], order: list[str], offer: Offer, *, alone: bool
    ) -> Grants:
        options = self.options
        count = max(1, math.ceil((1.0 - options.knob) * len(order) - OVER_S))
        chosen = set(order[:1] if alone else order[:count])
        bidders = [name for name in self._accounts.of if name in chosen]  # in order of arrival
        outcome = auction(
            [apps[name] for name in bidders],
            offer.gpus,
            most_bidders=options.most_bidders,
            most_bundles=options.most_bundles,
        )
        in_time = options.payment == "time"
        won = dict(zip(bidders, outcome.fair if in_time else outcome.won, strict=True))
        lease = {}
        if in_time:
            parts = zip(bidders, outcome.part, strict=True)
            lease = {name: max(part * options.lease_s, 1.0) for name, part in parts}
        have = {name: won.get(name, offer.nothing) for name in order}
        free = offer.gpus
        for bundle in won.values():
            free = minus(free, bundle)
        asked = [name for name in order if name not in chosen]
        if self._lots is not None:
            asked = [asked[k] for k in self._lots.permutation(len(asked))]
        asked += [name for name in order if name in chosen]
        numbers = {name: number for number, name in enumerate(asked)}
        given = leftovers(
            range(len(asked)),
            {numbers[name]: apps[name] for name in asked},
            {numbers[name]: have[name] for name in asked},
            free,
        )
        return Grants({name: given[numbers[name]] for name in asked}, order, lease)


class ThemisGreedy(_Leases[ThemisGreedyOptions]):
    """Themis without the auction: whole gangs in order of ρ."""

    name = "themis-greedy"
    summary = "finish-time fairness without the auction: leases to the worst-off, whole gangs"

    def _decided(
        self, apps: dict[str, App], order: list[str], offer: Offer, *, alone: bool
    ) -> Grants:
        """Each app, worst-off first, takes all GPUs that it can use."""
        bundles, free = {}, offer.gpus
        for name in order:
            have = offer.nothing
            for placed_job in apps[name].pack(free):
                have = plus(have, placed_job.bundle)
            bundles[name], free = have, minus(free, have)
        return Grants(bundles, order)
