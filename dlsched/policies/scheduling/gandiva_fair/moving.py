"""Who gets another server or another type of GPU, now and then."""

from __future__ import annotations

from dlsched.policies.scheduling.gandiva_fair.balance import next_move
from dlsched.policies.scheduling.gandiva_fair.claims import Claims
from dlsched.policies.scheduling.gandiva_fair.seats import CENTRE, Seats
from dlsched.policies.scheduling.gandiva_fair.servers import Servers, bits

__all__ = ["even_out", "settle_anew"]


def even_out(
    claims: Claims, seats: Seats, servers: Servers, threshold: float, moved: set[int]
) -> None:
    """Servers of a type are to have the same tickets per GPU."""
    for nodes in servers.type_nodes:
        gpus = {node: servers.gpus[node] for node in bits(nodes) if node in servers.gpus}
        here = [row for row, seat in seats.of.items() if seat in gpus]
        while any(claims.wanted[node] > gpus[node] for node in gpus):
            move = next_move([claims.guest(row) for row in here], gpus, threshold, moved)
            if move is None:
                break
            claims.sit(move.row, move.server)
            moved.add(move.row)


def settle_anew(
    claims: Claims, seats: Seats, servers: Servers, threshold: float, moved: set[int]
) -> None:
    """A job of each user may go to another type, where its user has more from it."""
    if len(servers.types) < 2:
        return
    best: dict[str, tuple[float, int, int]] = {}
    for row, seat in seats.of.items():
        if seat == CENTRE or row in moved:
            continue
        server = claims.best_server(row)
        if servers.kind[server] == servers.kind[seat]:
            continue
        now, then = claims.worth(row, seat), claims.worth(row, server)
        gains = then > now * (1 + threshold)
        crowded = claims.crowd(row, seat) > claims.crowd(row, server) * (1 + threshold)
        if gains or (then == now == 0.0 and crowded):
            user = claims.user_of(row)
            best[user] = min(best.get(user, (1.0, row, server)), (now - then, row, server))
    for _, (_, row, server) in sorted(best.items()):
        claims.sit(row, server)
        moved.add(row)
