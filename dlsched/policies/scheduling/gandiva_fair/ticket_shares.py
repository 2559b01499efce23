"""Each job's part of its user's tickets, in GPUs, and the moves that balance servers.

A user's GPUs of a type are divided among its jobs there in proportion to their gangs. So more jobs
do not raise the share of a user, and unused tickets leave more to the other users.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from dlsched.core.sums import ordered_sum
from dlsched.policies.scheduling.gandiva_fair.assignments import CENTRAL, ServerAssignments
from dlsched.policies.scheduling.gandiva_fair.balance import ServerJob, least_loaded, next_move
from dlsched.policies.scheduling.gandiva_fair.servers import Servers, bits

LEAST = 1e-6  # GPUs' least worth of tickets for each GPU of a gang
MIX = -1  # the type of a gang that no single type can hold


class TicketShares:
    """Tickets by row and load by server, kept up to date as rows are seated.

    Attributes:
        held: GPUs of each type that the tickets of a user are worth.
        demand: GPUs that the jobs of a user on a type need at once.
        wanted: GPUs that the jobs of a server need at once.
        own: GPUs that the jobs of a user need at once on the same server.
        load: tickets per GPU of a server.
    """

    def __init__(
        self,
        servers: Servers,
        assignments: ServerAssignments,
        user_of: Callable[[int], str],
        held: Mapping[str, Sequence[float]],
    ) -> None:
        self._servers, self._assignments, self.user_of = servers, assignments, user_of
        self.held = held
        self.demand: dict[tuple[str, int], float] = {}
        self.own: dict[tuple[str, int], int] = {}
        self.wanted = dict.fromkeys(servers.gpus, 0)
        for row in assignments.of:
            gang, gpu_type = servers.gang[servers.line[row]], self.gpu_type(row)
            whose = (user_of(row), gpu_type)
            self.demand[whose] = self.demand.get(whose, 0.0) + gang
            place = (user_of(row), assignments.of[row])
            self.own[place] = self.own.get(place, 0) + gang
            if assignments.of[row] != CENTRAL:
                self.wanted[assignments.of[row]] += gang
        self.load = dict.fromkeys(servers.gpus, 0.0)
        for row, assigned in assignments.of.items():
            if assigned != CENTRAL:
                self.load[assigned] += self._capped(row) / servers.gpus[assigned]

    def gpu_type(self, row: int) -> int:
        """The type on which a row competes."""
        assigned = self._assignments.of[row]
        if assigned != CENTRAL:
            return self._servers.gpu_type[assigned]
        region = self._servers.regions[self._servers.line[row]]
        for gpu_type, nodes in enumerate(self._servers.type_nodes):
            if region and not region & ~nodes:
                return gpu_type
        return MIX

    def tickets(self, row: int) -> float:
        """GPUs that a row's tickets are worth where it competes."""
        gang, gpu_type = self._servers.gang[self._servers.line[row]], self.gpu_type(row)
        user = self.user_of(row)
        return self._worth(user, gpu_type, gang, self.demand[user, gpu_type])

    def _worth(self, user: str, gpu_type: int, gang: int, demand: float) -> float:
        own = ordered_sum(self.held[user]) if gpu_type == MIX else self.held[user][gpu_type]
        return max(own * gang / demand, LEAST * gang)

    def _capped(self, row: int) -> float:
        return min(self.tickets(row), float(self._servers.gang[self._servers.line[row]]))

    def server_job(self, row: int) -> ServerJob:
        """A small row, for the balancing of servers."""
        line = self._servers.line[row]
        nodes = self._servers.allowed[line]
        return ServerJob(
            row, self._assignments.of[row], self._servers.gang[line], self.tickets(row), nodes
        )

    def worth(self, row: int, server: int) -> float:
        """Steps/s that the user of a small row gains from assigning the row to a server.

        If all jobs of the server fit at once, this is the row's whole speed. Otherwise the user
        gains only as far as its other jobs do not use the GPUs that its tickets are worth there.
        """
        line, gpu_type = self._servers.line[row], self._servers.gpu_type[server]
        gang, user = self._servers.gang[line], self.user_of(row)
        speed = float(self._servers.speed[line, gpu_type])
        here = self._assignments.of.get(row) == server
        if self.wanted[server] + (0 if here else gang) <= self._servers.gpus[server]:
            return speed
        others = self._demand_of_others(row, gpu_type)
        own = self.held[user][gpu_type]
        return speed * (min(own, others + gang) - min(own, others)) / gang

    def crowd(self, row: int, server: int) -> float:
        """GPUs that the user's jobs, with this row, need on a server's type, per GPU it holds."""
        gpu_type = self._servers.gpu_type[server]
        gang = self._servers.gang[self._servers.line[row]]
        demand = self._demand_of_others(row, gpu_type) + gang
        return demand / max(self.held[self.user_of(row)][gpu_type], LEAST)

    def _demand_of_others(self, row: int, gpu_type: int) -> float:
        demand = self.demand.get((self.user_of(row), gpu_type), 0.0)
        if row in self._assignments.of and self.gpu_type(row) == gpu_type:
            demand -= self._servers.gang[self._servers.line[row]]
        return demand

    def best_server(self, row: int) -> int:
        """The server, of the least loaded of each type, where a small row gains its user most."""
        line = self._servers.line[row]
        gang, allowed = self._servers.gang[line], self._servers.allowed[line]
        options = []
        for nodes in self._servers.type_nodes:
            server = least_loaded(self.load, self._servers.gpus, gang, allowed & nodes)
            if server is not None:
                worth, crowd = self.worth(row, server), self.crowd(row, server)
                options.append((-worth, crowd, self.load[server], server))
        return min(options)[3]

    def assign(self, row: int, assigned: int) -> None:
        """Assign a row to a server, or move it there."""
        servers = self._servers
        gang, user = servers.gang[servers.line[row]], self.user_of(row)
        if row in self._assignments.of:
            before = self._assignments.of[row]
            if before != CENTRAL and before in self.load:
                self.load[before] -= self._capped(row) / servers.gpus[before]
                self.wanted[before] -= gang
            self.demand[user, self.gpu_type(row)] -= gang
            self.own[user, before] -= gang
            most = gang / self.tickets_at(assigned, gang, user)
        else:
            most = 0.0
        self._assignments.assign(row, assigned, most)
        whose = (user, self.gpu_type(row))
        self.demand[whose] = self.demand.get(whose, 0.0) + gang
        self.own[user, assigned] = self.own.get((user, assigned), 0) + gang
        if assigned != CENTRAL:
            self.wanted[assigned] += gang
            self.load[assigned] += self._capped(row) / servers.gpus[assigned]

    def behind_its_own(self, row: int) -> float:
        """How far above the lowest pass a new row starts: its user's other jobs run first.

        They use the tickets of the user until each has run once. Otherwise all of many jobs that
        arrive together would be due at once.
        """
        gang = self._servers.gang[self._servers.line[row]]
        here = self.own[self.user_of(row), self._assignments.of[row]]
        return (here - gang) / (here * self.tickets(row) / gang)

    def tickets_at(self, assigned: int, gang: int, user: str) -> float:
        """GPUs that a row's tickets would be worth after a move to another server."""
        if assigned == CENTRAL:
            return float(gang)
        gpu_type = self._servers.gpu_type[assigned]
        return self._worth(user, gpu_type, gang, self.demand.get((user, gpu_type), 0.0) + gang)

    def balance_servers(self, threshold: float, moved: set[int]) -> None:
        """Move jobs between servers of one type until their tickets per GPU are about equal.

        `threshold` is the part of the mean load by which servers may differ. Rows in `moved` stay;
        it is extended by the moves.
        """
        servers = self._servers
        for nodes in servers.type_nodes:
            gpus = {node: servers.gpus[node] for node in bits(nodes) if node in servers.gpus}
            here = [row for row, assigned in self._assignments.of.items() if assigned in gpus]
            while any(self.wanted[node] > gpus[node] for node in gpus):
                move = next_move([self.server_job(row) for row in here], gpus, threshold, moved)
                if move is None:
                    break
                self.assign(move.row, move.server)
                moved.add(move.row)

    def improve_types(self, threshold: float, moved: set[int]) -> None:
        """Move at most one job of each user to another GPU type, where its user gains more from it.

        `threshold` is the part of its present gain by which a move must be better. Rows in `moved`
        stay; it is extended by the moves.
        """
        servers = self._servers
        if len(servers.types) < 2:
            return
        best: dict[str, tuple[float, int, int]] = {}
        for row, assigned in self._assignments.of.items():
            if assigned == CENTRAL or row in moved:
                continue
            server = self.best_server(row)
            if servers.gpu_type[server] == servers.gpu_type[assigned]:
                continue
            now, then = self.worth(row, assigned), self.worth(row, server)
            gains = then > now * (1 + threshold)
            crowded = self.crowd(row, assigned) > self.crowd(row, server) * (1 + threshold)
            if gains or (then == now == 0.0 and crowded):
                user = self.user_of(row)
                best[user] = min(best.get(user, (1.0, row, server)), (now - then, row, server))
        for _, (_, row, server) in sorted(best.items()):
            self.assign(row, server)
            moved.add(row)
