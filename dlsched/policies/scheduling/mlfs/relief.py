"""Which jobs leave overloaded servers: the paper's section 3.3, for whole jobs.

A job leaves with all its GPUs. It takes part in this round's placement with its priority; where it
finds no place, it waits.
"""

from __future__ import annotations

import numpy as np

from dlsched.core.arrays import Floats
from dlsched.core.walk.walk import Walk
from dlsched.policies.scheduling.mlfs.hosts import least_urgent, leaving_task
from dlsched.policies.scheduling.mlfs.options import MlfsOptions
from dlsched.policies.scheduling.mlfs.servers import GPU, Servers
from dlsched.policies.scheduling.mlfs.tasks import Ranked, Relatives


def relieve(
    walk: Walk, servers: Servers, ranked: Ranked, relatives: Relatives, options: MlfsOptions
) -> list[int]:
    """Suspend jobs until no server is overloaded; returns them.

    Jobs that may not be preempted now stay, so a server may remain overloaded.
    """
    priority = dict(zip(ranked.rows.tolist(), ranked.total.tolist(), strict=True))
    moved: list[int] = []
    for node in np.flatnonzero(servers.over.any(axis=1)).tolist():
        while (over := servers.over[node]).any():
            rows = sorted(servers.rows[node])
            on_gpus = servers.on_overloaded_gpus(node) if over[GPU] else set(rows)
            places = [
                place
                for place, row in enumerate(rows)
                if row in on_gpus and row not in walk.table.homes and walk.is_victim(row, 1 << node)
            ]
            if not places:
                break
            candidates = np.array(places, np.int64)
            if over[GPU]:
                urgency = np.array([priority[row] for row in rows])
                candidates = least_urgent(urgency, places, options.candidates)
            uses = np.stack([servers.uses.of(row)[0] * servers.rows[node][row] for row in rows])
            uses = uses / servers.capacity[node]
            row = rows[
                leaving_task(uses, _traffic(rows, node, servers, relatives), over, candidates)
            ]
            placement = walk.occupancy.held[row]
            walk.suspend(row)
            servers.leave(row, placement)
            moved.append(row)
    return moved


def _traffic(rows: list[int], node: int, servers: Servers, relatives: Relatives) -> Floats:
    here = servers.rows[node]
    return np.array(
        [sum(here.get(other, 0) for other in relatives.of(row)) for row in rows], np.float64
    )
