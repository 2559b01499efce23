"""Servers and jobs as one decision finds them: capacity, types, throughputs, permitted nodes."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

import numpy as np

from dlsched.core.arrays import Floats, Ints
from dlsched.core.cluster.occupancy import Occupancy
from dlsched.core.context import RoundContext
from dlsched.policies.heterogeneous.gpu_types import GpuTypes


def bits(mask: int) -> Iterable[int]:
    """The numbers of the set bits, ascending."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


class Servers:
    """What a decision needs to know about servers and jobs.

    Attributes:
        gpus: GPUs of each server that may get work, by node.
        gpu_type: the GPU type of each server, by node.
        rows: the active rows, ascending; `line` is the position of a row.
        gang: GPUs that each row needs at once, by line.
        speed: steps/s, [line, type]; 0 where a row cannot run.
        allowed: nodes that each row may use, as bits, by line.
        small: whether the row fits a server that it may use, by line.
    """

    def __init__(self, gpu_types: GpuTypes, ctx: RoundContext) -> None:
        occupancy = ctx.occupancy
        self.types = gpu_types.types
        self.type_nodes = gpu_types.nodes
        self.type_gpus = gpu_types.gpus
        self.gpus = {
            node: room
            for node in bits(occupancy.open_nodes)
            if (room := _capacity(occupancy, node)) > 0
        }
        self.gpu_type = {node: gpu_types.of_node(node) for node in self.gpus}
        self.rows: Ints = np.sort(ctx.active)
        self.line = {row: line for line, row in enumerate(self.rows.tolist())}
        self.gang: list[int] = ctx.table.gang[self.rows].tolist()
        self.speed: Floats = ctx.perf.rate(self.rows, self.types, ctx.table.gang[self.rows])
        self.allowed = self._allowed(ctx)
        self.small = self._small(ctx)

    def _allowed(self, ctx: RoundContext) -> list[int]:
        opened = 0
        for node in self.gpus:
            opened |= 1 << node
        masks: dict[tuple[int, bytes], int] = {}
        found = []
        homes = ctx.table.homes
        runs: list[bytes] = [(line > 0).tobytes() for line in self.speed]
        for row, pool, where in zip(
            self.rows.tolist(), ctx.table.pool[self.rows].tolist(), runs, strict=True
        ):
            mask = masks.get((pool, where))
            if mask is None:
                mask = 0
                for nodes, may in zip(self.type_nodes, where, strict=True):
                    mask |= nodes if may else 0
                mask &= ctx.pools.nodes[pool] & opened
                masks[pool, where] = mask
            if row in homes:
                mask &= sum(1 << node for node in homes[row].nodes)
            found.append(mask)
        return found

    def _small(self, ctx: RoundContext) -> list[bool]:
        largest: dict[int, int] = {}
        table, found = ctx.table, []
        for row, gang, mask in zip(self.rows.tolist(), self.gang, self.allowed, strict=True):
            if mask not in largest:
                largest[mask] = max((self.gpus[node] for node in bits(mask)), default=0)
            shaped = row in table.shapes or row in table.whole_nodes
            away = row in table.homes and len(table.homes[row].nodes) > 1
            found.append(gang <= largest[mask] and not shaped and not away)
        return found

    @cached_property
    def regions(self) -> list[int]:
        """Nodes for a large gang, by line: of its fastest type with room, else all allowed ones."""
        found = []
        for line, mask in enumerate(self.allowed):
            rates = self.speed[line].tolist()
            best, region = 0.0, mask
            for gpu_type, nodes in enumerate(self.type_nodes):
                room = sum(self.gpus[node] for node in bits(mask & nodes))
                if room >= self.gang[line] and rates[gpu_type] > best:
                    best, region = rates[gpu_type], mask & nodes
            found.append(region)
        return found


def _capacity(occupancy: Occupancy, node: int) -> int:
    return int(occupancy.cluster.gpus[node]) - occupancy.closed.get(node, 0).bit_count()
