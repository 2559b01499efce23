"""All GPUs given anew in one go, with processors and memory: what a full rebuild comes to.

The walk gives the same, row by row, where the placement takes the lowest GPUs with room, node by
node, and every GPU is as good as another (a test holds the two against each other). Here the
nodes are plain lists, and a node that was once too poor for a share is not looked at again until
one of its rows gives something up.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import or_

from dlsched.core.allocation import HostShare
from dlsched.core.cluster.occupancy import Placement, lowest_bits, lowest_node

HAIR = 1e-9  # shares such as 1/3 of a core must add up to the whole
Parts = list[tuple[int, int]]  # nodes, and GPUs of each
Peer = tuple[tuple[int, float, float, int], int, int]  # which gives up first, a row, its GPUs


@dataclass(slots=True, kw_only=True)
class Nodes:
    """Empty nodes that are filled row by row.

    Attributes:
        free: the free GPUs of each node, as bits.
        cpus, memory_gb: what is free of each; NaN: not counted.
        wanted: the best and the least share of each row.
        takes: do rows that were served before give up what is above their least?
        spares: are those passed over whose giving up helps nothing?
        placements, shares: what rows have got, in order.
    """

    free: list[int]
    cpus: list[float]
    memory_gb: list[float]
    wanted: Mapping[int, tuple[HostShare, HostShare]]
    takes: bool
    spares: bool
    placements: dict[int, Placement] = field(default_factory=dict)
    shares: dict[int, HostShare] = field(default_factory=dict)
    _level: list[int] = field(default_factory=list)  # nodes by their free GPUs, as bits
    _open: int = 0  # nodes with a free GPU, as bits
    _poor: dict[HostShare, int] = field(default_factory=dict)  # nodes without room for a share
    _rich: list[list[Peer]] = field(default_factory=list)  # of nodes: rows above their least

    def fill(self, rows: Sequence[int], gangs: Sequence[int]) -> list[int]:
        """Serve rows in order; returns those that found enough free GPUs, but no room."""
        counts = [mask.bit_count() for mask in self.free]
        self._level = [0] * (max(counts, default=0) + 1)
        for node, count in enumerate(counts):
            self._level[count] |= 1 << node
        self._open = sum(self._level[1:])
        self._rich = [[] for _ in self.free]
        left, refused = sum(counts), list[int]()
        for row, gang in zip(rows, gangs, strict=True):
            if gang > left:
                continue
            if self._serve(row, gang):
                left -= gang
                if not left:
                    break
            else:
                refused.append(row)
        return refused

    def _serve(self, row: int, gang: int) -> bool:
        best, least = self.wanted[row]
        share, parts = best, self._find(best, gang)
        if parts is None and self.takes:
            share = least
            parts = None if least == best else self._find(least, gang)
            if parts is None:
                for node, count in where_room_is_made(self._level, gang):
                    self._take_from_peers(node, least, count)
                parts = self._find(least, gang)
        if parts is None:
            return False
        self._give(row, share, parts)
        if share != least:
            for node, count in parts:
                rank = (len(parts), -share.cpus, -share.memory_gb, len(self.shares))
                insort(self._rich[node], (rank, row, count))
        return True

    def _find(self, share: HostShare, gang: int) -> Parts | None:
        """The lowest free GPUs with room for a share each; None where there are too few."""
        free, has_cpus, has_memory, (cpus, memory) = self.free, self.cpus, self.memory_gb, share
        parts: Parts = []
        poor = self._poor.get(share, 0)
        nodes = self._open & ~poor
        while nodes:
            bit = nodes & -nodes
            nodes ^= bit
            node = bit.bit_length() - 1
            count = 1 if gang == 1 else min(free[node].bit_count(), gang)
            if has_cpus[node] < cpus * count:
                count = max(int(has_cpus[node] / cpus + HAIR), 0)
            if count and has_memory[node] < memory * count:
                count = max(int(has_memory[node] / memory + HAIR), 0)
            if not count:
                poor |= bit
                continue
            parts.append((node, count))
            gang -= count
            if not gang:
                break
        self._poor[share] = poor
        return None if gang else parts

    def _give(self, row: int, share: HostShare, parts: Parts) -> None:
        """Give a row the lowest free GPUs of nodes, and a share for each."""
        free, level, (cpus, memory) = self.free, self._level, share
        nodes, masks = [], []
        for node, count in parts:
            idle, bit = free[node], 1 << node
            mask, had = lowest_bits(idle, count), idle.bit_count()
            nodes.append(node)
            masks.append(mask)
            free[node] = idle ^ mask
            level[had] ^= bit
            level[had - count] |= bit
            if had == count:
                self._open ^= bit
            self.cpus[node] -= cpus * count
            self.memory_gb[node] -= memory * count
        self.placements[row] = Placement(tuple(nodes), tuple(masks))
        self.shares[row] = share

    def _take_from_peers(self, node: int, share: HostShare, gpus: int) -> None:
        """Let rows on a node give up what is above their least, until there is room."""
        short = shortage(share, gpus, (self.cpus[node], self.memory_gb[node]))
        if not short:
            return
        for _, row, count in tuple(self._rich[node]):
            has, least = self.shares[row], self.wanted[row][1]
            after = gives_up(has, least, count, short, spares=self.spares)
            if after is None:
                continue
            self._cut(row, has, lower_of(has, least))
            short = after
            if max(short) <= HAIR:
                return

    def _cut(self, row: int, has: HostShare, now: HostShare) -> None:
        """Leave a row less than it has."""
        self.shares[row] = now
        nodes, masks = self.placements[row]
        for node, mask in zip(nodes, masks, strict=True):
            self.cpus[node] += (has.cpus - now.cpus) * mask.bit_count()
            self.memory_gb[node] += (has.memory_gb - now.memory_gb) * mask.bit_count()
            self._rich[node] = [peer for peer in self._rich[node] if peer[1] != row]
        changed = ~sum(1 << node for node in nodes)
        for share in self._poor:
            self._poor[share] &= changed


def where_room_is_made(level: Sequence[int], gpus: int) -> Parts:
    """Nodes whose free GPUs a row is to get, with how many.

    One node where there is one (the first), else nodes with the fewest free GPUs first.

    Args:
        level: the nodes that have so many free GPUs, as bits.
        gpus: that the row needs.
    """
    if gpus > 1 and (roomy := reduce(or_, level[gpus:], 0)):
        return [(lowest_node(roomy), gpus)]
    chosen: Parts = []
    for count, nodes in enumerate(level[1:], start=1):
        left = nodes
        while left and gpus:
            taken = min(count, gpus)
            chosen.append((lowest_node(left), taken))
            left &= left - 1
            gpus -= taken
    return chosen


def shortage(share: HostShare, gpus: int, free: tuple[float, float]) -> tuple[float, float] | None:
    """What is missing for a share for each of some GPUs; None: nothing."""
    cpus = max(0.0, share.cpus * gpus - free[0])  # NaN needs nothing, and 0 is then the greater
    memory = max(0.0, share.memory_gb * gpus - free[1])
    return (cpus, memory) if cpus > HAIR or memory > HAIR else None


def gives_up(
    has: HostShare, least: HostShare, gpus: int, short: tuple[float, float], *, spares: bool
) -> tuple[float, float] | None:
    """What is still missing after a row has given up what is above its least.

    None: it is passed over, since that would help nothing.
    """
    cpus = max(0.0, has.cpus - least.cpus) * gpus
    memory = max(0.0, has.memory_gb - least.memory_gb) * gpus
    helps = (short[0] > HAIR and cpus > HAIR) or (short[1] > HAIR and memory > HAIR)
    if spares and not helps:
        return None
    return max(0.0, short[0] - cpus), max(0.0, short[1] - memory)


def lower_of(has: HostShare, least: HostShare) -> HostShare:
    """A share without what is above the least."""
    return HostShare(min(has.cpus, least.cpus), min(has.memory_gb, least.memory_gb))
