"""The policies `themis` and `themis-greedy`: leases, and who gets the next ones.

A job keeps its GPUs until its lease ends. What is free then, and what becomes free, is auctioned
among the worst-off apps at the next full decision; between two, idle GPUs are given to whoever is
worst off. A lease is renewed without an auction while nobody waits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

import numpy as np

from dlsched.core.allocation import Refused
from dlsched.core.arrays import Rows
from dlsched.core.context import RoundContext
from dlsched.core.scheduling import SchedulingPolicy
from dlsched.core.units import Units
from dlsched.core.walk import Walk
from dlsched.policies.scheduling.themis.accounts import Accounts
from dlsched.policies.scheduling.themis.app import App
from dlsched.policies.scheduling.themis.auction import Bundle, auction, leftovers, minus, plus
from dlsched.policies.scheduling.themis.bidding import Offer, seconds_at_best, sizes_of
from dlsched.policies.scheduling.themis.options import ThemisGreedyOptions, ThemisOptions

__all__ = ["Themis", "ThemisGreedy"]

O = TypeVar("O", bound=ThemisGreedyOptions)  # noqa: E741 - the options' type, as in `Stage`
OVER_S = 1e-9
WAITS = Refused("Priority", "others are worse off, or hold leases that have not ended")


@dataclass(slots=True)
class Grants:
    """Who gets what.

    Attributes:
        bundles: by app.
        lease: seconds of each row's lease, where it is not the usual one.
        order: apps, worst-off first.
    """

    bundles: dict[str, Bundle]
    order: list[str]
    lease: dict[str, float] = field(default_factory=dict)


class _Leases(SchedulingPolicy[O]):
    """What both have in common: accounts, leases, carrying out."""

    preemptive = True
    rests = False
    needs = frozenset({"predicted_work"})

    def __init__(self, options: O) -> None:
        super().__init__(options)
        self._accounts = Accounts()
        self._until: dict[int, float] = {}  # the end of each running row's lease
        # for whom GPUs are gathered, and when there will be enough if no lease ends later
        self._gathers_for, self._gathers = "", math.inf

    def _decided(
        self, apps: dict[str, App], order: list[str], offer: Offer, *, alone: bool
    ) -> Grants:
        raise NotImplementedError

    def allocate(self, units: Units, ctx: RoundContext, walk: Walk) -> None:
        """Auction what is free, or fill."""
        self._look(ctx)
        held = ctx.occupancy.held
        waiting = [row for row in ctx.active.tolist() if row not in held]
        over = self._over(ctx, walk)
        if waiting and ctx.mode == "full" and (over or ctx.free_gpus):
            self._hand_out(waiting, over, ctx, walk)
        else:
            for row in over:
                self._until[row] = self._end(ctx.now, self.options.lease_s)
        self._fill(ctx, walk)
        if not ctx.round_length and len(ctx.active) > len(held):
            walk.wake_at(self._next_end(ctx))

    def _next_end(self, ctx: RoundContext) -> float:
        """When a lease ends that has not, or a row may be moved whose lease has."""
        since, soonest = ctx.table.since, math.inf
        for row, end in self._until.items():
            at = max(end, float(since[row]) + ctx.min_run)
            if at > ctx.now + OVER_S:
                soonest = min(soonest, at)
        return soonest

    def _end(self, now: float, lease_s: float) -> float:
        """When a lease ends that begins now."""
        end = now + lease_s
        return self._gathers if now < self._gathers < end else end

    def _gather(self, order: list[str], apps: dict[str, App], offer: Offer, now: float) -> bool:
        """See to it that the worst-off app finds enough on offer, if what is offered is too little.

        Leases that begin until then end by then; and what was gathered is offered to it alone. So
        gangs of any size have their turn.

        Returns:
            whether what is offered was gathered for the first in order.
        """
        ready = now >= self._gathers - OVER_S and self._gathers_for in apps
        whose = self._gathers_for if ready else ""
        self._gathers_for, self._gathers = "", math.inf
        if whose and apps[whose].value(offer.gpus) > 0:
            order.remove(whose)
            order.insert(0, whose)
            return True
        if apps[order[0]].value(offer.gpus) == 0.0:
            at = offer.enough_at(apps[order[0]].least, self._until)
            if now < at < math.inf:
                self._gathers_for, self._gathers = order[0], at
        return False

    def _look(self, ctx: RoundContext) -> None:
        """Who has come, who has ended, how many there were."""
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

    def _over(self, ctx: RoundContext, walk: Walk) -> list[int]:
        """Running rows whose lease has ended and who may be moved."""
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

    def _offer(self, waiting: list[int], over: list[int], ctx: RoundContext) -> Offer:
        options = self.options
        return Offer(
            waiting, over, ctx, in_rack=options.slowdown_rack, across=options.slowdown_cross
        )

    def _rho(self, offer: Offer, ctx: RoundContext) -> tuple[dict[str, App], dict[str, float]]:
        """The apps that could use more, and how they stand now."""
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
                leased=[offer.pace(row) for row in leased.get(name, ())],
                ends=self.options.ends,
                move_s=ctx.restart_overhead,
            )
            apps[name] = app
            rho[name] = app.rho(offer.seats_now(rows))
        return apps, rho

    def _worst_first(
        self, apps: Mapping[str, App], rho: Mapping[str, float], ctx: RoundContext
    ) -> list[str]:
        """By ρ descending, whoever has nothing first; of equals by what ρ would be at best."""
        gpus = ctx.occupancy.capacity_in(ctx.occupancy.open_nodes)
        best = {name: app.rho_at_best(gpus) for name, app in apps.items()}
        place = {name: number for number, name in enumerate(self._accounts.of)}
        start = self._accounts.of
        return sorted(
            rho, key=lambda name: (-rho[name], -best[name], start[name].start, place[name])
        )

    def _hand_out(self, waiting: list[int], over: list[int], ctx: RoundContext, walk: Walk) -> None:
        """Decide who gets what is offered, stop the others, start the new ones."""
        offer = self._offer(waiting, over, ctx)
        apps, rho = self._rho(offer, ctx)
        order = self._worst_first(apps, rho, ctx)
        gathered = self._gather(order, apps, offer, ctx.now)
        grants = self._decided(apps, order, offer, alone=gathered)
        chosen: dict[int, Bundle] = {}
        lease: dict[int, float] = {}
        for name in grants.order:
            for seat in apps[name].pack(grants.bundles.get(name, offer.nothing)):
                chosen[seat.job.row] = seat.bundle
                lease[seat.job.row] = grants.lease.get(name, self.options.lease_s)
        for row in over:
            if chosen.get(row) == offer.jobs[row].now:
                self._until[row] = self._end(ctx.now, lease[row])
            else:
                walk.suspend(row)
                del self._until[row]
        # those on one machine first: where the others lie is then settled by what is left
        for row, bundle in sorted(chosen.items(), key=lambda one: sum(map(bool, one[1]))):
            if row not in ctx.occupancy.held:
                placed = walk.place(row, sum(bundle), nodes=offer.nodes_of(bundle))
                if not isinstance(placed, Refused):
                    self._until[row] = self._end(ctx.now, lease[row])

    def _fill(self, ctx: RoundContext, walk: Walk) -> None:
        """What is idle goes to whoever is worst off; says why the others get nothing."""
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

    # -- state ------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Accounts and leases."""
        return {
            "accounts": self._accounts.state_dict(),
            "until": sorted(self._until.items()),
            "gathers": [self._gathers_for, self._gathers],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state_dict`."""
        self._accounts.load_state_dict(state["accounts"])
        self._until = {int(row): float(end) for row, end in state["until"]}
        self._gathers_for = str(state["gathers"][0])
        self._gathers = float(state["gathers"][1])

    def renumber(self, old: Rows, finished_gone: int) -> None:
        """Jobs have other row numbers now."""
        place = {int(before): row for row, before in enumerate(old.tolist()) if before >= 0}
        self._accounts.rename(place)
        self._until = {place[row]: end for row, end in self._until.items() if row in place}


class Themis(_Leases[ThemisOptions]):
    """The auction."""

    name = "themis"
    summary = "finish-time fairness: leases by partial-allocation auctions among the worst-off apps"
    Options: ClassVar[type[Any]] = ThemisOptions

    def allocate(self, units: Units, ctx: RoundContext, walk: Walk) -> None:
        """One round of auctions."""
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
    """No auction: whole gangs in order of ρ."""

    name = "themis-greedy"
    summary = "finish-time fairness without the auction: leases to the worst-off, whole gangs"
    Options: ClassVar[type[Any]] = ThemisGreedyOptions

    def _decided(
        self, apps: dict[str, App], order: list[str], offer: Offer, *, alone: bool
    ) -> Grants:
        """Each app in turn takes all that it can use."""
        bundles, free = {}, offer.gpus
        for name in order:
            have = offer.nothing
            for seat in apps[name].pack(free):
                have = plus(have, seat.bundle)
            bundles[name], free = have, minus(free, have)
        return Grants(bundles, order)
