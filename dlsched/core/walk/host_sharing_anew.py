"""All GPUs given anew in one go, with processors and memory: what a full rebuild comes to.

The walk gives the same, row by row, where the placement takes the lowest GPUs with room, node by
node, and every GPU is as good as another (a test holds the two against each other). Here the
nodes are plain lists, and a node that was once too poor for a share is not looked at again until
one of its rows gives something up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dlsched.core.allocation import HostShare
from dlsched.core.cluster.occupancy import Placement, lowest_bits

HAIR = 1e-9  # shares such as 1/3 of a core must add up to the whole
Parts = list[tuple[int, int]]  # nodes, and GPUs of each


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
    _open: int = 0  # nodes with a free GPU, as bits
    _poor: dict[HostShare, int] = field(default_factory=dict)  # nodes without room for a share
    _on: list[list[tuple[int, int]]] = field(default_factory=list)  # rows of nodes, with their GPUs

    def fill(self, rows: Sequence[int], gangs: Sequence[int]) -> list[int]:
        """Serve rows in order; returns those that found enough free GPUs, but no room."""
        self._on = [[] for _ in self.free]
        self._open = sum(1 << node for node, mask in enumerate(self.free) if mask)
        left, refused = sum(mask.bit_count() for mask in self.free), list[int]()
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
                for node, count in where_room_is_made(self.free, gang):
                    self._take_from_peers(node, least, count)
                parts = self._find(least, gang)
        if parts is None:
            return False
        cpus, memory = share
        masks = []
        for node, count in parts:
            mask = lowest_bits(self.free[node], count)
            masks.append(mask)
            self.free[node] ^= mask
            if not self.free[node]:
                self._open ^= 1 << node
            self.cpus[node] -= cpus * count
            self.memory_gb[node] -= memory * count
            self._on[node].append((row, count))
        self.placements[row] = Placement(tuple(node for node, _ in parts), tuple(masks))
        self.shares[row] = share
        return True

    def _find(self, share: HostShare, gang: int) -> Parts | None:
        """The lowest free GPUs with room for a share each; None where there are too few."""
        cpus, memory = share
        parts: Parts = []
        poor = self._poor.get(share, 0)
        nodes = self._open & ~poor
        while nodes:
            bit = nodes & -nodes
            nodes ^= bit
            node = bit.bit_length() - 1
            count = min(self.free[node].bit_count(), gang)
            if self.cpus[node] < cpus * count:
                count = max(int(self.cpus[node] / cpus + HAIR), 0)
            if count and self.memory_gb[node] < memory * count:
                count = max(int(self.memory_gb[node] / memory + HAIR), 0)
            if not count:
                poor |= bit
                continue
            parts.append((node, count))
            gang -= count
            if not gang:
                self._poor[share] = poor
                return parts
        self._poor[share] = poor
        return None

    def _take_from_peers(self, node: int, share: HostShare, gpus: int) -> None:
        """Let rows on a node give up what is above their least, until there is room."""
        has_free = (self.cpus[node], self.memory_gb[node])
        short = shortage(share, gpus, has_free)
        if not short:
            return
        shares, placements = self.shares, self.placements

        def key(entry: tuple[int, int]) -> tuple[int, float, float]:
            cpus, memory = shares[entry[0]]
            return len(placements[entry[0]].nodes), -cpus, -memory

        for row, count in sorted(self._on[node], key=key):
            has, least = shares[row], self.wanted[row][1]
            after = gives_up(has, least, count, short, spares=self.spares)
            if after is None:
                continue
            if has != (now := lower_of(has, least)):
                shares[row] = now
                for other, mask in zip(*placements[row], strict=True):
                    self.cpus[other] += (has.cpus - now.cpus) * mask.bit_count()
                    self.memory_gb[other] += (has.memory_gb - now.memory_gb) * mask.bit_count()
                    for each in self._poor:
                        self._poor[each] &= ~(1 << other)
            short = after
            if max(short) <= HAIR:
                return


def where_room_is_made(free: Sequence[int], gpus: int) -> Parts:
    """Nodes whose free GPUs a row is to get, with how many; `free` are the GPUs, as bits.

    One node where there is one (the first), else nodes with the fewest free GPUs first.
    """
    counts = [(mask.bit_count(), node) for node, mask in enumerate(free) if mask]
    if gpus > 1:
        for count, node in counts:
            if count >= gpus:
                return [(node, gpus)]
    chosen: Parts = []
    for count, node in sorted(counts):
        chosen.append((node, min(count, gpus)))
        gpus -= min(count, gpus)
        if not gpus:
            break
    return chosen


def shortage(share: HostShare, gpus: int, free: tuple[float, float]) -> tuple[float, float] | None:
    """What is missing for a share for each of some GPUs; None: nothing."""
    missing = [
        max(0.0, need * gpus - has) if need > 0 else 0.0  # NaN needs nothing
        for need, has in zip(share, free, strict=True)
    ]
    return (missing[0], missing[1]) if any(each > HAIR for each in missing) else None


def gives_up(
    has: HostShare, least: HostShare, gpus: int, short: tuple[float, float], *, spares: bool
) -> tuple[float, float] | None:
    """What is still missing after a row has given up what is above its least.

    None: it is passed over, since that would help nothing.
    """
    above = [max(0.0, a - b) * gpus for a, b in zip(has, least, strict=True)]
    if spares and not any(s > HAIR and a > HAIR for s, a in zip(short, above, strict=True)):
        return None
    left = [max(0.0, s - a) for s, a in zip(short, above, strict=True)]
    return (left[0], left[1])


def lower_of(has: HostShare, least: HostShare) -> HostShare:
    """A share without what is above the least."""
    return HostShare(min(has.cpus, least.cpus), min(has.memory_gb, least.memory_gb))
