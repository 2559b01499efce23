"""What every job may claim where: users' tickets in GPUs of each type, divided among their jobs.

A user's GPUs of a type are divided among its jobs there in proportion to their gangs. So more jobs
do not raise a user's share, and tickets nobody uses leave more to the others by themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from dlsched.policies.scheduling.gandiva_fair.balance import Guest, least_loaded
from dlsched.policies.scheduling.gandiva_fair.seats import CENTRE, Seats
from dlsched.policies.scheduling.gandiva_fair.servers import Servers

__all__ = ["Claims"]

LEAST = 1e-6  # GPUs' worth of tickets for each GPU asked for, where a user has sold all it had
MIX = -1  # the type of a gang that no type can hold


class Claims:
    """Tickets by row and load by server, kept up to date as rows are seated.

    Attributes:
        held: GPUs of each type that a user's tickets are worth.
        demand: GPUs that a user's jobs on a type need at once.
        wanted: GPUs that the jobs of a server need at once.
        own: GPUs that a user's jobs need at once where they compete with each other, by seat.
        load: tickets per GPU of a server.
    """

    def __init__(
        self,
        servers: Servers,
        seats: Seats,
        user_of: Callable[[int], str],
        held: Mapping[str, Sequence[float]],
    ) -> None:
        self._servers, self._seats, self.user_of = servers, seats, user_of
        self.held = held
        self.demand: dict[tuple[str, int], float] = {}
        self.own: dict[tuple[str, int], int] = {}
        self.wanted = dict.fromkeys(servers.gpus, 0)
        for row in seats.of:
            gang, kind = servers.gang[servers.line[row]], self.kind(row)
            whose = (user_of(row), kind)
            self.demand[whose] = self.demand.get(whose, 0.0) + gang
            place = (user_of(row), seats.of[row])
            self.own[place] = self.own.get(place, 0) + gang
            if seats.of[row] != CENTRE:
                self.wanted[seats.of[row]] += gang
        self.load = dict.fromkeys(servers.gpus, 0.0)
        for row, seat in seats.of.items():
            if seat != CENTRE:
                self.load[seat] += self._claim(row) / servers.gpus[seat]

    def kind(self, row: int) -> int:
        """The type on which a row competes."""
        seat = self._seats.of[row]
        if seat != CENTRE:
            return self._servers.kind[seat]
        region = self._servers.regions[self._servers.line[row]]
        for kind, nodes in enumerate(self._servers.type_nodes):
            if region and not region & ~nodes:
                return kind
        return MIX

    def tickets(self, row: int) -> float:
        """GPUs that a row's tickets are worth where it competes."""
        gang, kind = self._servers.gang[self._servers.line[row]], self.kind(row)
        user = self.user_of(row)
        return self._worth(user, kind, gang, self.demand[user, kind])

    def _worth(self, user: str, kind: int, gang: int, demand: float) -> float:
        own = sum(self.held[user]) if kind == MIX else self.held[user][kind]
        return max(own * gang / demand, LEAST * gang)

    def _claim(self, row: int) -> float:
        return min(self.tickets(row), float(self._servers.gang[self._servers.line[row]]))

    def guest(self, row: int) -> Guest:
        """A small row as the balance sees it."""
        line = self._servers.line[row]
        nodes = self._servers.allowed[line]
        return Guest(row, self._seats.of[row], self._servers.gang[line], self.tickets(row), nodes)

    def worth(self, row: int, server: int) -> float:
        """Steps/s that a small row's user has from its being on a server.

        Where all jobs of the server fit at once, it is the row's whole speed. Elsewhere the user
        gains as far as the GPUs that its tickets are worth there are not in use by its other jobs.
        """
        line, kind = self._servers.line[row], self._servers.kind[server]
        gang, user = self._servers.gang[line], self.user_of(row)
        speed = float(self._servers.speed[line, kind])
        here = self._seats.of.get(row) == server
        if self.wanted[server] + (0 if here else gang) <= self._servers.gpus[server]:
            return speed
        others = self._demand_of_others(row, kind)
        own = self.held[user][kind]
        return speed * (min(own, others + gang) - min(own, others)) / gang

    def crowd(self, row: int, server: int) -> float:
        """GPUs that a user's jobs need on a server's type, the row included, over those it has."""
        kind = self._servers.kind[server]
        gang = self._servers.gang[self._servers.line[row]]
        demand = self._demand_of_others(row, kind) + gang
        return demand / max(self.held[self.user_of(row)][kind], LEAST)

    def _demand_of_others(self, row: int, kind: int) -> float:
        demand = self.demand.get((self.user_of(row), kind), 0.0)
        if row in self._seats.of and self.kind(row) == kind:
            demand -= self._servers.gang[self._servers.line[row]]
        return demand

    def best_server(self, row: int) -> int:
        """Where a small row's user has most from it: of each type the least loaded server."""
        line = self._servers.line[row]
        gang, allowed = self._servers.gang[line], self._servers.allowed[line]
        options = []
        for nodes in self._servers.type_nodes:
            server = least_loaded(self.load, self._servers.gpus, gang, allowed & nodes)
            if server is not None:
                worth, crowd = self.worth(row, server), self.crowd(row, server)
                options.append((-worth, crowd, self.load[server], server))
        return min(options)[3]

    def sit(self, row: int, seat: int) -> None:
        """Seat a row, or move it."""
        servers = self._servers
        gang, user = servers.gang[servers.line[row]], self.user_of(row)
        if row in self._seats.of:
            before = self._seats.of[row]
            if before != CENTRE and before in self.load:
                self.load[before] -= self._claim(row) / servers.gpus[before]
                self.wanted[before] -= gang
            self.demand[user, self.kind(row)] -= gang
            self.own[user, before] -= gang
            most = gang / self.tickets_at(seat, gang, user)
        else:
            most = 0.0
        self._seats.sit(row, seat, most)
        whose = (user, self.kind(row))
        self.demand[whose] = self.demand.get(whose, 0.0) + gang
        self.own[user, seat] = self.own.get((user, seat), 0) + gang
        if seat != CENTRE:
            self.wanted[seat] += gang
            self.load[seat] += self._claim(row) / servers.gpus[seat]

    def behind_its_own(self, row: int) -> float:
        """How far above the lowest pass a new row begins: its user's other jobs go first.

        They take the user's tickets so long that each runs once. Else many jobs that come together
        would all be due at once.
        """
        gang = self._servers.gang[self._servers.line[row]]
        here = self.own[self.user_of(row), self._seats.of[row]]
        return (here - gang) / (here * self.tickets(row) / gang)

    def tickets_at(self, seat: int, gang: int, user: str) -> float:
        """GPUs that a row's tickets would be worth at another seat, once it sits there."""
        if seat == CENTRE:
            return float(gang)
        kind = self._servers.kind[seat]
        return self._worth(user, kind, gang, self.demand.get((user, kind), 0.0) + gang)
