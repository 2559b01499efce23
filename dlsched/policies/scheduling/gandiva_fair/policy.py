"""The policy `gandiva-fair`: turns by split stride, jobs moved for balance, GPUs traded.

A turn is decided anew at its beginning; in between idle GPUs are given to whoever waits, first to
those who are least ahead. What somebody received is charged as it was received, by the clock of
the unit table, so that fills, early ends and failures are counted right.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from dlsched.core.allocation import Refused
from dlsched.core.arrays import Rows
from dlsched.core.context import RoundContext
from dlsched.core.errors import BadInput
from dlsched.core.scheduling import SchedulingPolicy
from dlsched.core.units import Units
from dlsched.core.walk import Walk
from dlsched.policies.scheduling.gandiva_fair.claims import Claims
from dlsched.policies.scheduling.gandiva_fair.equal_shares import equal_shares
from dlsched.policies.scheduling.gandiva_fair.moving import even_out, settle_anew
from dlsched.policies.scheduling.gandiva_fair.options import GandivaFairOptions
from dlsched.policies.scheduling.gandiva_fair.packing import best_host, counts_for_both, part
from dlsched.policies.scheduling.gandiva_fair.seats import CENTRE, Seats, aggregate
from dlsched.policies.scheduling.gandiva_fair.servers import Servers, bits
from dlsched.policies.scheduling.gandiva_fair.tickets import shares, traded
from dlsched.policies.scheduling.gandiva_fair.turns import Large, Turn, take_turns
from dlsched.policies.scheduling.gavel.grounds import Grounds
from dlsched.policies.scheduling.gavel.published_rounds import PublishedRounds
from dlsched.policies.scheduling.gavel.question import named_numbers

__all__ = ["GandivaFair"]

WITHOUT_ROUNDS_S = 60.0  # a turn where every change is a decision
SOON_S = 1e-9
WAITS = Refused("Priority", "others have had less for their tickets")
CROWDED = Refused("Fragmented", "enough GPUs are free, but not on one server")


class GandivaFair(SchedulingPolicy[GandivaFairOptions]):
    """Shares of users by tickets, for gangs, over servers and types."""

    name = "gandiva-fair"
    summary = "users share by tickets: gang-aware split stride, balancing, trading of GPU types"
    Options: ClassVar[type[Any]] = GandivaFairOptions
    preemptive = True
    rests = False

    def __init__(self, options: GandivaFairOptions) -> None:
        super().__init__(options)
        self._tickets = named_numbers("tickets", options.tickets)
        for name, number in self._tickets.items():
            if not 0 < number < float("inf"):
                raise BadInput(f"tickets: {name} has {number:g}; tickets must be above 0")
        self._published: PublishedRounds | None = None
        if options.mechanism == "published":
            self._published = PublishedRounds(
                equal_shares, resolve_s=options.resolve_s, shuffles=True, seed=options.seed
            )
        self._grounds = Grounds()
        self._seats = Seats()
        self._types: tuple[str, ...] = ()
        self._held: dict[str, list[float]] = {}  # GPUs of each type by user, after trading
        self._until = -float("inf")  # when this turn ends
        self._turns = 0
        self._looked_at = 0.0
        self._debts: dict[str, float] = {}  # GPU quanta by user, of jobs that have ended
        self._moved: set[int] = set()  # at the last look
        # as of the last look: what it had received and what a quantum's worth costs, by row
        self._received: dict[int, float] = {}
        self._rate: dict[int, float] = {}
        self._granted: dict[int, tuple[int, float]] = {}  # GPUs and tickets, by server

    @property
    def pairs_units(self) -> bool:
        """With `pack` it does."""
        return self.options.pack

    def allocate(self, units: Units, ctx: RoundContext, walk: Walk) -> None:
        """A turn, or a fill of idle GPUs."""
        if self._published is not None:
            self._published.decide(ctx.active, ctx, walk)
            return
        self._grounds.look(ctx)
        servers = Servers(self._grounds, ctx)
        self._charge(ctx)
        begins = ctx.mode == "full" and ctx.now >= self._until - SOON_S
        claims = self._claims(servers, ctx, looks=begins and self._is_time_to_look)
        if begins:
            if self._is_time_to_look:
                self._move(claims, servers, ctx)
            self._turn(claims, servers, ctx, walk)
            self._turns += 1
            self._until = ctx.now + self._quantum(ctx)
        self._fill(claims, servers, ctx, walk)
        self._rate = {row: claims.tickets(row) for row in self._seats.of}
        if not ctx.round_length and len(ctx.active):
            walk.wake_at(max(self._until, ctx.now + SOON_S))

    @property
    def _is_time_to_look(self) -> bool:
        return self._turns % self.options.balance_every == 0

    def _quantum(self, ctx: RoundContext) -> float:
        return self.options.quantum_s or ctx.round_length or WITHOUT_ROUNDS_S

    # -- what everybody has had, and may claim ----------------------------------------------------

    def _charge(self, ctx: RoundContext) -> None:
        """Passes grow by what was received since the last look."""
        quantum, seats = self._quantum(ctx), self._seats
        active = set(ctx.active.tolist())
        ended = sorted(set(seats.of) - active)
        everybody = np.array([*ctx.active.tolist(), *ended], np.int64)
        units = Units(ctx.table, everybody, ctx.now)
        clock = units.attained if self.options.charge == "gpu" else units.held_s
        received = dict(zip(everybody.tolist(), clock.tolist(), strict=True))
        for row in seats.of:
            took = received[row] - self._received.get(row, 0.0)
            if took > 0:
                seats.passes(row).charge(row, took / quantum, self._rate[row])
        for row in ended:
            self._settle(row, received[row] / quantum, ctx)
            del received[row]
        elapsed = ctx.now - self._looked_at
        for server, (gpus, tickets) in self._granted.items():
            if gpus and elapsed > 0 and seats.guests(server):
                seats.central.charge(aggregate(server), gpus * elapsed / quantum, tickets)
        self._debts = {
            user: left
            for user, debt in self._debts.items()
            if (left := debt - elapsed / quantum) > 0
        }
        self._received, self._looked_at = received, ctx.now

    def _settle(self, row: int, quanta: float, ctx: RoundContext) -> None:
        """A job has ended: its user's other jobs, or its next one, settle what is left.

        Those that compete beside it have turns of their own behind its turn. If it did not use up
        its turn, they come so much earlier. If there are none, the next one owes what it is ahead.

        Args:
            row: who.
            quanta: what it received in all.
            ctx: the round's snapshot.
        """
        user, passes = self._user(row, ctx), self._seats.passes(row)
        owed = self._seats.ahead(row) * self._rate[row]
        self._seats.leave(row)
        own = [one for one in passes.of if one >= 0 and self._user(one, ctx) == user]
        if not own:
            self._debts[user] = self._debts.get(user, 0.0) + owed
            return
        turn = float(ctx.table.gang[row]) if self.options.charge == "gpu" else 1.0
        early = max(turn - quanta, 0.0) / sum(self._rate.get(one, 0.0) for one in own)
        lowest = passes.lowest
        for one in own if early > 0 else ():
            passes.of[one] = max(passes.of[one] - early, lowest)

    def _user(self, row: int, ctx: RoundContext) -> str:
        """Whose tickets a row has."""
        code = int(getattr(ctx.table, self.options.of)[row])
        return str(ctx.table.names[self.options.of][code]) if code >= 0 else ""

    def _claims(self, servers: Servers, ctx: RoundContext, *, looks: bool) -> Claims:
        """Seats for those who have none, and what tickets are worth now."""
        codes = getattr(ctx.table, self.options.of)[servers.rows].tolist()
        names = ctx.table.names[self.options.of]
        users = [names[code] if code >= 0 else "" for code in codes]
        user_of = dict(zip(servers.rows.tolist(), users, strict=True))
        if looks or set(users) != set(self._held) or self._types != servers.types:
            self._types = servers.types
            tickets = {user: self._tickets.get(user, 1.0) for user in sorted(set(users))}
            self._held = shares(tickets, servers.type_gpus) if tickets else {}
            if self.options.trade and len(servers.types) > 1 and ctx.speeds is not None:
                self._held, _ = traded(
                    self._held, users, servers.gang, servers.speed, self.options.price
                )
        for row, seat in list(self._seats.of.items()):
            line = servers.line[row]
            fits = seat != CENTRE and servers.allowed[line] >> seat & 1
            if servers.small[line] != (seat != CENTRE) or (seat != CENTRE and not fits):
                self._seats.leave(row)
        claims = Claims(servers, self._seats, user_of.__getitem__, self._held)
        for line, row in enumerate(servers.rows.tolist()):
            if row not in self._seats.of:
                claims.sit(row, self._first_seat(row, line, claims, servers, ctx))
                debt = self._debts.pop(user_of[row], 0.0) if row not in self._received else 0.0
                ahead = claims.behind_its_own(row) + debt / claims.tickets(row)
                self._seats.passes(row).of[row] += ahead
        return claims

    def _first_seat(
        self, row: int, line: int, claims: Claims, servers: Servers, ctx: RoundContext
    ) -> int:
        if not servers.small[line]:
            return CENTRE
        held = ctx.occupancy.held.get(row)
        if held is not None and len(held.nodes) == 1:
            node = held.nodes[0]
            if servers.allowed[line] >> node & 1 and servers.gpus[node] >= servers.gang[line]:
                return node
        return claims.best_server(row)

    def _move(self, claims: Claims, servers: Servers, ctx: RoundContext) -> None:
        """Other seats for some, so that servers are loaded alike and types are used well."""
        self._moved = moved = set[int]()
        waiting = {row for row in self._seats.of if row not in ctx.occupancy.held}
        if waiting:
            even_out(claims, self._seats, servers, self.options.threshold, moved)
        settle_anew(claims, self._seats, servers, self.options.threshold, moved)

    # -- a turn -----------------------------------------------------------------------------------

    def _turn(self, claims: Claims, servers: Servers, ctx: RoundContext, walk: Walk) -> None:
        """Choose who runs, stop the others, and start whoever is new."""
        occupancy, seats = ctx.occupancy, self._seats
        running = list(occupancy.held)
        fixed = self._fixed(running, servers, ctx, walk)
        room = {node: occupancy.free[node].bit_count() for node in servers.gpus}
        now: dict[int, dict[int, int]] = {}
        for row in running:
            if row not in fixed:
                where = occupancy.held[row]
                pairs = zip(where.nodes, where.masks, strict=True)
                now[row] = {node: mask.bit_count() for node, mask in pairs}
                for node, count in now[row].items():
                    room[node] += count * counts_for_both(row, occupancy.beside, fixed)
        gang = {row: servers.gang[line] for row, line in servers.line.items() if row not in fixed}
        large = {
            row: Large(gang[row], tuple(bits(servers.regions[servers.line[row]])), now.get(row, {}))
            for row in gang
            if seats.of[row] == CENTRE
        }
        turn = take_turns(seats, gang, large, room)
        self._granted = {
            server: (granted, sum(claims.tickets(row) for row in seats.local[server].of))
            for server, granted in turn.granted.items()
        }
        stays = {row for row, node in turn.small.items() if list(now.get(row, ())) == [node]}
        stays |= {row for row, where in turn.large.items() if now.get(row) == where}
        if occupancy.beside:
            stays = part(stays, {*turn.small, *turn.large}, now, occupancy.beside, fixed)
        for row in now:
            if row not in stays:
                walk.suspend(row)
        self._start(turn, servers, ctx, walk)

    def _fixed(
        self, running: list[int], servers: Servers, ctx: RoundContext, walk: Walk
    ) -> set[int]:
        """Running rows that must stay: they have just started, or their node takes no new work."""
        protected = walk.is_protected(np.array(running, np.int64)).tolist()
        return {
            row
            for row, is_protected in zip(running, protected, strict=True)
            if is_protected
            or row not in self._seats.of
            or any(node not in servers.gpus for node in ctx.occupancy.held[row].nodes)
        }

    def _start(self, turn: Turn, servers: Servers, ctx: RoundContext, walk: Walk) -> None:
        held = ctx.occupancy.held
        for row, server in turn.small.items():
            if row not in held:
                walk.place(row, nodes=1 << server)
        for row, where in turn.large.items():
            if row not in held:
                shaped = row in ctx.table.shapes or row in ctx.table.whole_nodes
                region = servers.regions[servers.line[row]]
                walk.place(row, nodes=region if shaped else sum(1 << node for node in where))

    # -- what is idle -----------------------------------------------------------------------------

    def _fill(self, claims: Claims, servers: Servers, ctx: RoundContext, walk: Walk) -> None:
        """Idle GPUs go to those who wait, wherever they are; says why the others get nothing."""
        held, seats = ctx.occupancy.held, self._seats
        waiting = [row for row in seats.of if row not in held]
        for row in sorted(waiting, key=lambda row: (round(seats.ahead(row), 9), row)):
            line = servers.line[row]
            refused: Refused | None = WAITS
            if servers.gang[line] > walk.free_gpus(int(ctx.table.pool[row])):
                pass
            elif seats.of[row] == CENTRE:
                placed = walk.place(row, nodes=servers.allowed[line])
                refused = placed if isinstance(placed, Refused) else None
            else:
                refused = self._start_anywhere(row, claims, servers, ctx, walk)
            if refused is not None and self.options.pack:
                host = best_host(row, seats, servers, ctx, walk)
                if host is not None:
                    walk.share(row, host)
                    continue
            if refused is not None:
                walk.refuse(row, refused)

    def _start_anywhere(
        self, row: int, claims: Claims, servers: Servers, ctx: RoundContext, walk: Walk
    ) -> Refused | None:
        """On its own server, else on another one that has room, which it then belongs to.

        Whoever has just been moved is a guest there: its turn on its new server will come.
        """
        line, seat = servers.line[row], self._seats.of[row]
        gang, speed, free = servers.gang[line], servers.speed[line], ctx.occupancy.free
        fit = [node for node in bits(servers.allowed[line]) if free[node].bit_count() >= gang]
        fit.sort(
            key=lambda node: (node != seat, -speed[servers.kind[node]], claims.load[node], node)
        )
        refused = CROWDED
        for node in fit:
            placed = walk.place(row, nodes=1 << node)
            if not isinstance(placed, Refused):
                if node != seat and row not in self._moved:
                    claims.sit(row, node)
                return None
            refused = placed
            if refused.reason == "Quota":
                break
        return refused

    # -- state ------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Seats, passes, holdings, and what was in force in this turn."""
        if self._published is not None:
            return {"published": self._published.state_dict()}
        return {
            "seats": self._seats.state_dict(),
            "types": list(self._types),
            "held": {user: list(own) for user, own in self._held.items()},
            "until": self._until,
            "turns": self._turns,
            "looked_at": self._looked_at,
            "debts": dict(self._debts),
            "moved": sorted(self._moved),
            "received": sorted(self._received.items()),
            "rate": sorted(self._rate.items()),
            "granted": [(server, *what) for server, what in sorted(self._granted.items())],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state_dict`."""
        if self._published is not None:
            self._published.load_state_dict(state["published"])
            return
        self._seats.load_state_dict(state["seats"])
        self._types = tuple(state["types"])
        self._held = {user: [float(n) for n in own] for user, own in state["held"].items()}
        self._until, self._turns = float(state["until"]), int(state["turns"])
        self._looked_at = float(state["looked_at"])
        self._debts = {user: float(debt) for user, debt in state["debts"].items()}
        self._moved = {int(row) for row in state["moved"]}
        self._received = {int(row): float(value) for row, value in state["received"]}
        self._rate = {int(row): float(value) for row, value in state["rate"]}
        self._granted = {int(s): (int(gpus), float(t)) for s, gpus, t in state["granted"]}

    def renumber(self, old: Rows, finished_gone: int) -> None:
        """Jobs have other row numbers now."""
        place = {int(before): row for row, before in enumerate(old.tolist()) if before >= 0}
        if self._published is not None:
            self._published.rename(place)
        self._seats.rename(place)
        self._received = {place[r]: v for r, v in self._received.items() if r in place}
        self._rate = {place[r]: v for r, v in self._rate.items() if r in place}
        self._moved = {place[row] for row in self._moved if row in place}
