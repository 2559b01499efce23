"""Where the GPUs of a job are: one after the other, each on the server that suits it best.

A job starts only when there is a place for all its GPUs, so servers are chosen for all of them
before any is taken. The traffic between a GPU's part of a job and a server is counted in GPUs:
those that the job has got there, and those of the units that it waits for or that wait for it.
"""

from __future__ import annotations

import numpy as np

from dlsched.core.allocation import Refused
from dlsched.core.arrays import Bools, Floats, Ints
from dlsched.core.cluster.occupancy import Placement
from dlsched.core.gpu_request import FreeGpus
from dlsched.core.walk.co_location import may_join
from dlsched.core.walk.room_under_limits import OVER_LIMIT
from dlsched.core.walk.walk import Walk
from dlsched.policies.scheduling.mlfs.choices import Chooses, candidates_to_host
from dlsched.policies.scheduling.mlfs.choices import Servers as ServersSeen
from dlsched.policies.scheduling.mlfs.hosts import best_server, distances
from dlsched.policies.scheduling.mlfs.options import MlfsOptions
from dlsched.policies.scheduling.mlfs.servers import Servers
from dlsched.policies.scheduling.mlfs.tasks import Relatives


class Hosts:
    """Places rows through the walk, and keeps the servers' loads up to date."""

    def __init__(
        self,
        walk: Walk,
        servers: Servers,
        relatives: Relatives,
        options: MlfsOptions,
        chooser: Chooses | None = None,
    ) -> None:
        """Place rows of a decision; a chooser takes servers in the place of MLF-H."""
        self._walk = walk
        self._servers = servers
        self._relatives = relatives
        self._options = options
        self._chooser = chooser
        self._crowded = Refused(
            "Overload",
            f"each server with a free GPU would use more than {options.overload:.0%} of a resource",
        )

    def place(self, row: int, features: Floats | None = None) -> Placement | Refused:
        """Give a waiting row its gang, or say why not; a chooser needs its features."""
        placed = self._place(row, features)
        if not isinstance(placed, Refused):
            self._servers.come(row, placed)
        return placed

    def _place(self, row: int, features: Floats | None) -> Placement | Refused:
        walk, table = self._walk, self._walk.table
        gang = table.gang.item(row)
        of_its_own = row in table.shapes or row in table.whole_nodes or row in table.homes
        if self._options.hosts == "placement" or of_its_own or walk.host_sharing is not None:
            return walk.place(row)
        if walk.is_over_limit(row, gang):
            return OVER_LIMIT
        over = None if walk.tenancy is None else walk.tenancy.over_ceiling(row, gang)
        if over is not None:
            return over
        found = self._nearest(row, gang, features)
        if isinstance(found, Refused):
            return self._beside(row) or found
        walk.place_exactly(row, found)
        if self._chooser is not None:
            self._chooser.placed([mask.bit_count() for mask in found.masks])
        return found

    # -- free GPUs --------------------------------------------------------------------------------

    def _nearest(self, row: int, gang: int, features: Floats | None) -> Placement | Refused:
        walk = self._walk
        free = walk.free_gpus(walk.table.pool.item(row))
        if free < gang:
            return Refused.too_few_free(gang, free)
        usable = walk.free_for(row, gang)
        nodes = _with_room(usable)
        room: Ints = np.array([usable.usable_on(node) for node in nodes.tolist()], np.int64)
        if room.sum() < gang:
            return Refused.too_few_free(gang, int(room.sum()))
        counts = self._counts(row, nodes, room, gang, features)
        if counts is None:
            return self._crowded
        chosen = [
            (node, count) for node, count in zip(nodes.tolist(), counts, strict=True) if count
        ]
        return usable.across(chosen)

    def _counts(
        self, row: int, nodes: Ints, room: Ints, gang: int, features: Floats | None
    ) -> list[int] | None:
        """How many GPUs on each of some servers; None: they would be overloaded."""
        servers = self._servers
        under: Bools = ~np.any(servers.over[nodes], axis=1)
        utilisation, traffic = servers.utilisation[nodes], self._traffic(row, nodes)
        use, _ = servers.uses.of(row)
        step = use / servers.capacity[nodes]
        counts: Ints = np.zeros(len(nodes), np.int64)
        for _ in range(gang):
            fits = under & (counts < room) & ~servers.would_be_over(nodes, row, counts + 1)
            off = distances(utilisation, traffic, under)
            best = best_server(off, fits)
            if best < 0:
                return None
            if self._chooser is not None and features is not None:
                left = (room - counts) / room.max()
                seen = ServersSeen(utilisation, traffic, off, left, counts / gang)
                best = self._chosen(features, seen, np.flatnonzero(fits), best)
            counts[best] += 1
            traffic[best] += 1.0
            utilisation[best] = np.minimum(utilisation[best] + step[best], 1.0)
        found: list[int] = counts.tolist()
        return found

    def _chosen(self, job: Floats, seen: ServersSeen, fits: Ints, heuristic: int) -> int:
        """The server that the chooser takes of those that fit."""
        assert self._chooser is not None
        some = ServersSeen(*(each[fits] for each in seen))
        place = int(np.searchsorted(fits, heuristic))
        return int(fits[self._chooser.choose(candidates_to_host(job, some), place)])

    def _traffic(self, row: int, nodes: Ints) -> Floats:
        found = np.zeros(len(nodes))
        held = self._walk.occupancy.held
        for other in self._relatives.of(row):
            if other in held:
                for node, mask in zip(held[other].nodes, held[other].masks, strict=True):
                    found[nodes == node] += mask.bit_count()
        return found

    # -- GPUs of others ---------------------------------------------------------------------------

    def _beside(self, row: int) -> Placement | None:
        """The least loaded GPUs of others that leave a row the part that it needs."""
        walk, servers = self._walk, self._servers
        if not walk.ctx.may_share or not 0 < walk.table.gpu_share.item(row) < 1:
            return None
        held, gang = walk.occupancy.held, walk.table.gang.item(row)
        over: Bools = np.any(servers.over, axis=1)
        holders = []
        for holder, where in held.items():
            if where.gpus != gang or over[list(where.nodes)].any():
                continue
            nodes = np.array(where.nodes, np.int64)
            gpus = np.array([mask.bit_count() for mask in where.masks], np.int64)
            if servers.would_be_over(nodes, row, gpus).any():
                continue
            if not servers.would_share_too_much(row, where) and may_join(row, holder, walk):
                holders.append((servers.gpu_load(where), holder))
        return walk.share(row, min(holders)[1], returns=True) if holders else None


def _with_room(free: FreeGpus) -> Ints:
    """The servers with a usable GPU, ascending."""
    members = free.with_at_least(1)
    found = []
    while members:
        bit = members & -members
        members ^= bit
        found.append(bit.bit_length() - 1)
    return np.array(found, np.int64)
