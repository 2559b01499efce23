"""From X to leases in the simplest way: a new X in every round, one queue, whole rounds.

With f_ij the part of all time ever given on type j that job i received, the priority of job i on
type j is X_ij / f_ij. Time is counted in whole rounds, and never from 0 again; every job starts
with half a round on every type. The time of jobs that have ended still counts as given. Jobs
without a share on a type come after all jobs that have one: in the order of types, then of jobs,
wherever the gang fits.

A job that keeps its type keeps its GPUs if they are still free when it is placed, larger gangs
first; the other jobs take the next GPUs of the type in order, also across nodes.

Source: the simulator in the published artifact of Subramanya et al., "Sia: Heterogeneity-aware,
goodput-optimized ML-cluster scheduling", SOSP 2023, whose Gavel this is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from dlsched.core.allocation import Refused
from dlsched.core.arrays import Floats, Rows
from dlsched.core.cluster.occupancy import Placement
from dlsched.core.context import RoundContext
from dlsched.core.errors import BadInput
from dlsched.core.walk.walk import Walk
from dlsched.policies.heterogeneous.gpu_types import GpuTypes
from dlsched.policies.heterogeneous.time_shares import Source

DECIMALS = 5  # X is rounded to these: smaller differences come from the solver
Gpu = tuple[int, int]  # node, and its bit


class PlainRounds:
    """The mechanism, and its memory: the seconds received, by job and type."""

    def __init__(self, source: Source) -> None:
        """Start empty; `source` computes X."""
        self._source = source
        self._gpu_types = GpuTypes()
        self._types: tuple[str, ...] = ()
        self._received: dict[int, Floats] = {}
        self._given: Floats = np.zeros(0)

    def decide(self, rows: Rows, ctx: RoundContext, walk: Walk) -> None:
        """One round; between two rounds nothing happens."""
        if not ctx.round_length:
            raise BadInput("mechanism=plain counts whole rounds: --round SECONDS")
        if ctx.mode != "full" or not len(rows):
            return
        rows = np.sort(rows)
        self._enter(rows, ctx)
        fixed = self._fixed(ctx, walk)
        picked = self._pick(rows, fixed, ctx)
        self._carry_out(picked, fixed, ctx, walk)
        for row, placement in ctx.occupancy.held.items():
            if row in self._received:
                gpu_type = self._gpu_types.of_node(placement.nodes[0])
                self._received[row][gpu_type] += ctx.round_length
                self._given[gpu_type] += ctx.round_length
        for row in rows.tolist():
            if row not in ctx.occupancy.held:
                walk.refuse(row, Refused("Priority", "other jobs are further behind their share"))

    def _enter(self, rows: Rows, ctx: RoundContext) -> None:
        """Enter new jobs, with half a round on every type, and remove those that have ended."""
        self._gpu_types.update(ctx)
        types = self._gpu_types.types
        half = ctx.round_length / 2
        if types != self._types:
            before = [self._types.index(name) if name in self._types else -1 for name in types]
            self._received = {
                row: _moved(received, before, half) for row, received in self._received.items()
            }
            self._given = _moved(self._given, before, half * len(self._received))
            self._types = types
        present = set(rows.tolist())
        for row in [row for row in self._received if row not in present]:
            del self._received[row]
        for row in rows.tolist():
            if row not in self._received:
                self._received[row] = np.full(len(types), half)
                self._given += half

    def _fixed(self, ctx: RoundContext, walk: Walk) -> set[int]:
        """Running rows that stay where they are, whatever X says."""
        occupancy = ctx.occupancy
        running = np.fromiter(occupancy.held, np.int64, len(occupancy.held))
        protected = set(running[walk.is_protected(running)].tolist())
        return {
            row
            for row, placement in occupancy.held.items()
            if row not in self._received
            or row in protected
            or any(occupancy.draining >> node & 1 for node in placement.nodes)
        }

    # -- which jobs run on which type--------------------------------------------------------------

    def _pick(self, rows: Rows, fixed: set[int], ctx: RoundContext) -> dict[int, list[int]]:
        """Rows that get GPUs, by type, in the order in which they were picked."""
        types, occupancy = self._types, ctx.occupancy
        shares = self._source(rows, types, ctx)
        x = np.zeros((len(rows), len(types)))
        x[np.searchsorted(rows, shares.rows)] = np.round(shares.x, DECIMALS)
        received = np.array([self._received[row] for row in rows.tolist()])
        priority = x / (received / self._given)
        runs = ctx.perf.rate(rows, types, ctx.table.gang[rows]) > 0
        may = runs & self._gpu_types.usable_by(rows, ctx)
        room = self._gpu_types.free(ctx)
        for row, placement in occupancy.held.items():
            if row not in fixed:
                for node, mask in zip(placement.nodes, placement.masks, strict=True):
                    room[self._gpu_types.of_node(node)] += mask.bit_count()
        declared = np.array([occupancy.cluster.gpu_types.index(name) for name in types])
        line, gpu_type = np.nonzero(may)
        order = np.lexsort(
            (line, declared[gpu_type], -x[line, gpu_type], -priority[line, gpu_type])
        )
        picked: dict[int, list[int]] = {}
        picked_rows: set[int] = set(fixed)
        names, gangs = rows.tolist(), ctx.table.gang[rows].tolist()
        for at, where in zip(line[order].tolist(), gpu_type[order].tolist(), strict=True):
            row, gang = names[at], gangs[at]
            if row not in picked_rows and gang <= room[where]:
                picked_rows.add(row)
                room[where] -= gang
                picked.setdefault(where, []).append(row)
        return picked

    # -- which GPUs -------------------------------------------------------------------------------

    def _carry_out(
        self, picked: dict[int, list[int]], fixed: set[int], ctx: RoundContext, walk: Walk
    ) -> None:
        """Suspend and start jobs.

        Jobs that ask for particular nodes are placed by the placement stage, after all others.
        Where quotas, CPUs or memory are counted, the placement stage places every job.
        """
        occupancy, table = ctx.occupancy, ctx.table
        exact = ctx.pools.whole and walk.tenancy is None and not walk.tracks_host
        particular = {*table.shapes, *table.whole_nodes, *table.homes}
        others = {
            row: gpu_type
            for gpu_type, chosen in picked.items()
            for row in chosen
            if not exact or row in particular
        }
        stays = fixed | {row for row, gpu_type in others.items() if self._is_on(row, gpu_type, ctx)}
        wanted: dict[int, Placement] = {}
        for gpu_type, chosen in picked.items():
            plain = [row for row in chosen if row not in others]
            wanted |= self._in_order(gpu_type, plain, stays, ctx)
        for row in [row for row in occupancy.held if row not in stays]:
            if wanted.get(row) != occupancy.held[row]:
                walk.suspend(row)
        for row, placement in wanted.items():
            if row not in occupancy.held:
                walk.place_exactly(row, placement)
        for row, gpu_type in others.items():
            if row not in occupancy.held:
                walk.place(row, nodes=self._gpu_types.nodes[gpu_type])

    def _in_order(
        self, gpu_type: int, chosen: list[int], stays: set[int], ctx: RoundContext
    ) -> dict[int, Placement]:
        """The GPUs of the jobs of one type, larger gangs first.

        Rows in `stays` keep their GPUs whatever is decided.
        """
        held, gang = ctx.occupancy.held, ctx.table.gang
        taken: set[Gpu] = set()
        following = self._gpus(gpu_type, stays, ctx)
        found: dict[int, Placement] = {}
        by_size: dict[int, list[int]] = {}
        for row in chosen:
            by_size.setdefault(int(gang[row]), []).append(row)
        for size in sorted(by_size, reverse=True):
            for row in by_size[size]:
                if row in held and self._is_on(row, gpu_type, ctx):
                    own = {
                        (node, bit)
                        for node, mask in zip(held[row].nodes, held[row].masks, strict=True)
                        for bit in range(mask.bit_length())
                        if mask >> bit & 1
                    }
                    if taken.isdisjoint(own):
                        taken |= own
                        found[row] = held[row]
            for row in by_size[size]:
                if row in found:
                    continue
                masks: dict[int, int] = {}
                while sum(mask.bit_count() for mask in masks.values()) < size:
                    gpu = next(following)
                    if gpu not in taken:
                        taken.add(gpu)
                        masks[gpu[0]] = masks.get(gpu[0], 0) | 1 << gpu[1]
                found[row] = Placement(tuple(masks), tuple(masks.values()))
        return found

    def _gpus(self, gpu_type: int, stays: set[int], ctx: RoundContext) -> Iterator[Gpu]:
        """The GPUs of a type that may be given, in order."""
        occupancy = ctx.occupancy
        free = dict(enumerate(occupancy.free))
        for row, placement in occupancy.held.items():
            if row not in stays:
                for node, mask in zip(placement.nodes, placement.masks, strict=True):
                    free[node] |= mask
        nodes = self._gpu_types.nodes[gpu_type] & occupancy.open_nodes
        for node, mask in free.items():
            if nodes >> node & 1:
                yield from ((node, bit) for bit in range(mask.bit_length()) if mask >> bit & 1)

    def _is_on(self, row: int, gpu_type: int, ctx: RoundContext) -> bool:
        """Whether a row runs on this type, and on no other."""
        placement = ctx.occupancy.held.get(row)
        return placement is not None and self._gpu_types.of_placement(placement) == {gpu_type}

    # -- state ------------------------------------------------------------------------------------

    def rename(self, place: Mapping[int, int]) -> None:
        """Follow a table that was packed: `place` is the new row number by the old one."""
        self._received = {
            place[row]: received for row, received in self._received.items() if row in place
        }

    def state_dict(self) -> dict[str, Any]:
        """Everything that decides future rounds."""
        return {
            "types": list(self._types),
            "got": [[row, *received.tolist()] for row, received in self._received.items()],
            "given": self._given.tolist(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict`."""
        self._types = tuple(state["types"])
        self._received = {
            int(row): np.array(received, np.float64) for row, *received in state["got"]
        }
        self._given = np.array(state["given"], np.float64)


def _moved(seconds: Floats, before: list[int], new: float) -> Floats:
    """Columns in another order; where `before` is -1 the type is new and starts with `new`."""
    return np.array([seconds[place] if place >= 0 else new for place in before])
