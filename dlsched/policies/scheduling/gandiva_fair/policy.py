"""The policy `gandiva-fair`: turns by split stride, balanced servers, traded GPU types.

At the beginning of each turn the policy decides which jobs run. Between two turns, idle GPUs go to
waiting jobs, those with the least service for their tickets first. Service is charged as it was
received, by the clock of the unit table, so that fills, early ends and failures count correctly.

Paper: see the package. Tickets are numbers without unit; passes are GPU quanta per ticket.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from dlsched.core.allocation import Refused
from dlsched.core.arrays import Rows
from dlsched.core.context import RoundContext
from dlsched.core.errors import BadInput
from dlsched.core.options import named_numbers, option
from dlsched.core.scheduling import SchedulingPolicy
from dlsched.core.sums import ordered_sum
from dlsched.core.units import Units
from dlsched.core.walk.walk import Walk
from dlsched.policies.heterogeneous.gpu_types import GpuTypes
from dlsched.policies.scheduling.gandiva_fair.assignments import (
    CENTRAL,
    ServerAssignments,
    aggregate,
)
from dlsched.policies.scheduling.gandiva_fair.packing import best_host, counts_for_both, part
from dlsched.policies.scheduling.gandiva_fair.servers import Servers, bits
from dlsched.policies.scheduling.gandiva_fair.split_stride import LargeGang, Selection, select_jobs
from dlsched.policies.scheduling.gandiva_fair.ticket_shares import (
    TicketShares,
)
from dlsched.policies.scheduling.gandiva_fair.trading import ticket_shares, traded

WITHOUT_ROUNDS_S = 60.0  # length of a turn where there are no rounds
SOON_S = 1e-9
WAITS = Refused("Priority", "other jobs have had less for their tickets")
CROWDED = Refused("Fragmented", "enough GPUs are free, but not on one server")


@dataclass(frozen=True, slots=True, kw_only=True)
class GandivaFairOptions:
    """Gandiva_fair."""

    of: Literal["user", "vc", "group"] = option("user", "what holds tickets")
    tickets: tuple[str, ...] = option((), "NAME:TICKETS of users; others have 1 ticket")
    quantum_s: float = option(
        0.0, "seconds of a turn; 0 means one round, or 60 s where there are no rounds", low=0.0
    )
    charge: Literal["gpu", "job"] = option(
        "gpu", "what a turn costs: GPU time divided by tickets, or time divided by tickets"
    )
    balance_every: int = option(5, "number of turns after which servers are balanced", low=1)
    threshold: float = option(
        0.1, "part of the mean load by which servers may differ; a move must gain as much", low=0.0
    )
    trade: bool = option(True, "trade slow GPUs for fast ones where speeds are known")
    price: Literal["second", "middle"] = option(
        "second", "price: second-highest speedup; middle: between the two, where no third user is"
    )
    pack: bool = option(
        False, "let a waiting job share the GPUs of a running one if both together do more"
    )


class GandivaFair(SchedulingPolicy[GandivaFairOptions]):
    """Users share by tickets: gangs, servers, and GPU types."""

    weighs_types = True
    name = "gandiva-fair"
    summary = "users share by tickets: gang-aware split stride, balancing, trading of GPU types"
    preemptive = True
    rests = False

    def __init__(self, options: GandivaFairOptions) -> None:
        super().__init__(options)
        self._tickets = named_numbers("tickets", options.tickets)
        for name, number in self._tickets.items():
            if not 0 < number < float("inf"):
                raise BadInput(f"tickets: {name} has {number:g}; tickets must be above 0")
        self._gpu_types = GpuTypes()
        self._assignments = ServerAssignments()
        self._types: tuple[str, ...] = ()
        self._held: dict[str, list[float]] = {}  # GPUs of each type by user, after trading
        self._until = -float("inf")  # when this turn ends
        self._turns = 0
        self._updated_at = 0.0
        self._debts: dict[str, float] = {}  # GPU quanta by user, of jobs that have ended
        self._moved: set[int] = set()  # when servers were balanced last
        # as of the last update, by row: seconds received, and tickets
        self._received: dict[int, float] = {}
        self._rate: dict[int, float] = {}
        self._granted: dict[int, tuple[int, float]] = {}  # GPUs and tickets, by server

    @property
    def pairs_units(self) -> bool:
        """True with `pack`: two jobs may share GPUs."""
        return self.options.pack

    @property
    def chooses_gpus(self) -> bool:
        """True with `pack`."""
        return self.options.pack

    def allocate(self, units: Units, ctx: RoundContext, walk: Walk) -> None:
        """One turn, or between two turns a fill of idle GPUs."""
        self._gpu_types.update(ctx)
        servers = Servers(self._gpu_types, ctx)
        self._charge(ctx)
        begins = ctx.mode == "full" and ctx.now >= self._until - SOON_S
        shares = self._compute_shares(servers, ctx, balances=begins and self._is_time_to_balance)
        if begins:
            if self._is_time_to_balance:
                self._move(shares, ctx)
            self._turn(shares, servers, ctx, walk)
            self._turns += 1
            self._until = ctx.now + self._quantum(ctx)
        self._fill(shares, servers, ctx, walk)
        self._rate = {row: shares.tickets(row) for row in self._assignments.of}
        if not ctx.round_length and len(ctx.active):
            walk.wake_at(max(self._until, ctx.now + SOON_S))

    @property
    def _is_time_to_balance(self) -> bool:
        return self._turns % self.options.balance_every == 0

    def _quantum(self, ctx: RoundContext) -> float:
        return self.options.quantum_s or ctx.round_length or WITHOUT_ROUNDS_S

    # -- service and tickets -----------------------------------------------------------------------

    def _charge(self, ctx: RoundContext) -> None:
        """Let passes grow by the service received since the last update."""
        quantum, assignments = self._quantum(ctx), self._assignments
        active = set(ctx.active.tolist())
        ended = sorted(set(assignments.of) - active)
        rows = np.array([*ctx.active.tolist(), *ended], np.int64)
        units = Units(ctx.table, rows, ctx.now)
        clock = units.attained if self.options.charge == "gpu" else units.held_s
        received = dict(zip(rows.tolist(), clock.tolist(), strict=True))
        for row in assignments.of:
            took = received[row] - self._received.get(row, 0.0)
            if took > 0:
                assignments.passes(row).charge(row, took / quantum, self._rate[row])
        for row in ended:
            self._settle(row, received[row] / quantum, ctx)
            del received[row]
        elapsed = ctx.now - self._updated_at
        for server, (gpus, tickets) in self._granted.items():
            if gpus and elapsed > 0 and assignments.job_count(server):
                assignments.central.charge(aggregate(server), gpus * elapsed / quantum, tickets)
        self._debts = {
            user: left
            for user, debt in self._debts.items()
            if (left := debt - elapsed / quantum) > 0
        }
        self._received, self._updated_at = received, ctx.now

    def _settle(self, row: int, quanta: float, ctx: RoundContext) -> None:
        """Settle the account of a job that has ended with the other jobs of its user.

        Its user's jobs on the same server wait behind its turn. If it did not use up its turn, they
        come earlier by the rest. If there are none, the user's next job starts with its lead.
        """
        user, passes = self._user(row, ctx), self._assignments.passes(row)
        owed = self._assignments.ahead(row) * self._rate[row]
        self._assignments.leave(row)
        own = [one for one in passes.of if one >= 0 and self._user(one, ctx) == user]
        if not own:
            self._debts[user] = self._debts.get(user, 0.0) + owed
            return
        turn = float(ctx.table.gang[row]) if self.options.charge == "gpu" else 1.0
        early = max(turn - quanta, 0.0) / ordered_sum(self._rate.get(one, 0.0) for one in own)
        lowest = passes.lowest
        for one in own if early > 0 else ():
            passes.of[one] = max(passes.of[one] - early, lowest)

    def _user(self, row: int, ctx: RoundContext) -> str:
        """The user whose tickets a row uses."""
        code = int(getattr(ctx.table, self.options.of)[row])
        return str(ctx.table.names[self.options.of][code]) if code >= 0 else ""

    def _compute_shares(
        self, servers: Servers, ctx: RoundContext, *, balances: bool
    ) -> TicketShares:
        """Assign servers to new jobs, and compute the tickets of all jobs."""
        codes = getattr(ctx.table, self.options.of)[servers.rows].tolist()
        names = ctx.table.names[self.options.of]
        users = [names[code] if code >= 0 else "" for code in codes]
        user_of = dict(zip(servers.rows.tolist(), users, strict=True))
        if balances or set(users) != set(self._held) or self._types != servers.types:
            self._types = servers.types
            tickets = {user: self._tickets.get(user, 1.0) for user in sorted(set(users))}
            self._held = ticket_shares(tickets, servers.type_gpus) if tickets else {}
            if self.options.trade and len(servers.types) > 1 and ctx.perf.by_type is not None:
                self._held, _ = traded(
                    self._held, users, servers.gang, servers.speed, self.options.price
                )
        for row, assigned in list(self._assignments.of.items()):
            line = servers.line[row]
            fits = assigned != CENTRAL and servers.allowed[line] >> assigned & 1
            if servers.small[line] != (assigned != CENTRAL) or (assigned != CENTRAL and not fits):
                self._assignments.leave(row)
        shares = TicketShares(servers, self._assignments, user_of.__getitem__, self._held)
        for line, row in enumerate(servers.rows.tolist()):
            if row not in self._assignments.of:
                shares.assign(row, self._first_server(row, line, shares, servers, ctx))
                debt = self._debts.pop(user_of[row], 0.0) if row not in self._received else 0.0
                ahead = shares.behind_its_own(row) + debt / shares.tickets(row)
                self._assignments.passes(row).of[row] += ahead
        return shares

    def _first_server(
        self, row: int, line: int, shares: TicketShares, servers: Servers, ctx: RoundContext
    ) -> int:
        if not servers.small[line]:
            return CENTRAL
        held = ctx.occupancy.held.get(row)
        if held is not None and len(held.nodes) == 1:
            node = held.nodes[0]
            if servers.allowed[line] >> node & 1 and servers.gpus[node] >= servers.gang[line]:
                return node
        return shares.best_server(row)

    def _move(self, shares: TicketShares, ctx: RoundContext) -> None:
        """Move some jobs, so that servers have equal load and jobs use the types that suit them."""
        self._moved = moved = set[int]()
        waiting = {row for row in self._assignments.of if row not in ctx.occupancy.held}
        if waiting:
            shares.balance_servers(self.options.threshold, moved)
        shares.improve_types(self.options.threshold, moved)

    # -- a turn -----------------------------------------------------------------------------------

    def _turn(self, shares: TicketShares, servers: Servers, ctx: RoundContext, walk: Walk) -> None:
        """Choose the jobs of this turn, stop the others, and start the new ones."""
        occupancy, assignments = ctx.occupancy, self._assignments
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
            row: LargeGang(
                gang[row], tuple(bits(servers.regions[servers.line[row]])), now.get(row, {})
            )
            for row in gang
            if assignments.of[row] == CENTRAL
        }
        turn = select_jobs(assignments, gang, large, room)
        self._granted = {
            server: (
                granted,
                ordered_sum(shares.tickets(row) for row in assignments.local[server].of),
            )
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
            or row not in self._assignments.of
            or any(node not in servers.gpus for node in ctx.occupancy.held[row].nodes)
        }

    def _start(self, turn: Selection, servers: Servers, ctx: RoundContext, walk: Walk) -> None:
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

    def _fill(self, shares: TicketShares, servers: Servers, ctx: RoundContext, walk: Walk) -> None:
        """Start waiting jobs on idle GPUs anywhere; tell the others why they wait."""
        held, assignments = ctx.occupancy.held, self._assignments
        waiting = [row for row in assignments.of if row not in held]
        for row in sorted(waiting, key=lambda row: (round(assignments.ahead(row), 9), row)):
            line = servers.line[row]
            refused: Refused | None = WAITS
            if servers.gang[line] > walk.free_gpus(int(ctx.table.pool[row])):
                pass
            elif assignments.of[row] == CENTRAL:
                placed = walk.place(row, nodes=servers.allowed[line])
                refused = placed if isinstance(placed, Refused) else None
            else:
                refused = self._start_anywhere(row, shares, servers, ctx, walk)
            if refused is not None and self.options.pack:
                host = best_host(row, assignments, servers, ctx, walk)
                if host is not None:
                    walk.share(row, host)
                    continue
            if refused is not None:
                walk.refuse(row, refused)

    def _start_anywhere(
        self, row: int, shares: TicketShares, servers: Servers, ctx: RoundContext, walk: Walk
    ) -> Refused | None:
        """Start a small row on its own server, else on another one, to which it is then assigned.

        A row that has just been moved keeps its assignment: its turn on the new server will come.

        Returns:
            why it could not start; None if it started.
        """
        line, assigned = servers.line[row], self._assignments.of[row]
        gang, speed, free = servers.gang[line], servers.speed[line], ctx.occupancy.free
        fit = [node for node in bits(servers.allowed[line]) if free[node].bit_count() >= gang]
        fit.sort(
            key=lambda node: (
                node != assigned,
                -speed[servers.gpu_type[node]],
                shares.load[node],
                node,
            )
        )
        refused = CROWDED
        for node in fit:
            placed = walk.place(row, nodes=1 << node)
            if not isinstance(placed, Refused):
                if node != assigned and row not in self._moved:
                    shares.assign(row, node)
                return None
            refused = placed
            if refused.reason == "Quota":
                break
        return refused

    # -- state ------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Assignments, passes, holdings, and what was granted in this turn."""
        return {
            "seats": self._assignments.state_dict(),
            "types": list(self._types),
            "held": {user: list(own) for user, own in self._held.items()},
            "until": self._until,
            "turns": self._turns,
            "looked_at": self._updated_at,
            "debts": dict(self._debts),
            "moved": sorted(self._moved),
            "received": sorted(self._received.items()),
            "rate": sorted(self._rate.items()),
            "granted": [(server, *what) for server, what in sorted(self._granted.items())],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict`."""
        self._assignments.load_state_dict(state["seats"])
        self._types = tuple(state["types"])
        self._held = {user: [float(n) for n in own] for user, own in state["held"].items()}
        self._until, self._turns = float(state["until"]), int(state["turns"])
        self._updated_at = float(state["looked_at"])
        self._debts = {user: float(debt) for user, debt in state["debts"].items()}
        self._moved = {int(row) for row in state["moved"]}
        self._received = {int(row): float(value) for row, value in state["received"]}
        self._rate = {int(row): float(value) for row, value in state["rate"]}
        self._granted = {int(s): (int(gpus), float(t)) for s, gpus, t in state["granted"]}

    def renumber(self, old: Rows, finished_gone: int) -> None:
        """Follow a table that was packed."""
        place = {int(before): row for row, before in enumerate(old.tolist()) if before >= 0}
        self._assignments.rename(place)
        self._received = {place[r]: v for r, v in self._received.items() if r in place}
        self._rate = {place[r]: v for r, v in self._rate.items() if r in place}
        self._moved = {place[row] for row in self._moved if row in place}
