"""From X to leases as plainly as can be: X anew in every round, one queue, whole rounds.

With f_ij = the part that job i has had of all time ever given on type j, its priority there is
X_ij / f_ij. Time is counted in whole rounds from half a round on every type, and never anew; what
those who have ended received is part of all time given. Jobs without a share, or whose own types
are full, come after those with one: in the order of types, then of jobs, wherever a gang fits.

Whoever keeps its type keeps its GPUs if they are still there when its turn comes, larger gangs
first; the others take the type's next GPUs in order, over the edges of nodes.

Source: the simulator in the published artifact of Subramanya et al., "Sia: Heterogeneity-aware,
goodput-optimized ML-cluster scheduling", SOSP 2023, whose Gavel this is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from dlsched.core.allocation import Refused
from dlsched.core.arrays import Floats, Rows
from dlsched.core.context import RoundContext
from dlsched.core.errors import BadInput
from dlsched.core.occupancy import Placement
from dlsched.core.walk import Walk
from dlsched.policies.scheduling.gavel.grounds import Grounds
from dlsched.policies.scheduling.gavel.question import speeds_of
from dlsched.policies.scheduling.gavel.time_shares import Source

__all__ = ["PlainRounds"]

DECIMALS = 5  # of X: shares that differ by less than a solver's exactness are equal
Gpu = tuple[int, int]  # node, and its bit


class PlainRounds:
    """The mechanism, and what it remembers: seconds received, by job and type."""

    def __init__(self, source: Source) -> None:
        """Know where X comes from."""
        self._source = source
        self._grounds = Grounds()
        self._types: tuple[str, ...] = ()
        self._got: dict[int, Floats] = {}
        self._given: Floats = np.zeros(0)

    def decide(self, rows: Rows, ctx: RoundContext, walk: Walk) -> None:
        """One round; between two nothing happens."""
        if not ctx.round_length:
            raise BadInput("mechanism=plain counts whole rounds: --round SECONDS")
        if ctx.mode != "full" or not len(rows):
            return
        rows = np.sort(rows)
        self._look(rows, ctx)
        fixed = self._fixed(ctx, walk)
        picked = self._pick(rows, fixed, ctx)
        self._carry_out(picked, fixed, ctx, walk)
        for row, placement in ctx.occupancy.held.items():
            if row in self._got:
                kind = self._grounds.kind_of(placement.nodes[0])
                self._got[row][kind] += ctx.round_length
                self._given[kind] += ctx.round_length
        for row in rows.tolist():
            if row not in ctx.occupancy.held:
                walk.refuse(row, Refused("Priority", "others are further behind their share"))

    def _look(self, rows: Rows, ctx: RoundContext) -> None:
        """Let newcomers into the books, with half a round on every type."""
        self._grounds.look(ctx)
        types = self._grounds.types
        half = ctx.round_length / 2
        if types != self._types:
            before = [self._types.index(name) if name in self._types else -1 for name in types]
            self._got = {row: _moved(got, before, half) for row, got in self._got.items()}
            self._given = _moved(self._given, before, half * len(self._got))
            self._types = types
        present = set(rows.tolist())
        for row in [row for row in self._got if row not in present]:
            del self._got[row]
        for row in rows.tolist():
            if row not in self._got:
                self._got[row] = np.full(len(types), half)
                self._given += half

    def _fixed(self, ctx: RoundContext, walk: Walk) -> set[int]:
        """Rows that stay where they are, whatever X says."""
        occupancy = ctx.occupancy
        running = np.fromiter(occupancy.held, np.int64, len(occupancy.held))
        protected = set(running[walk.is_protected(running)].tolist())
        return {
            row
            for row, placement in occupancy.held.items()
            if row not in self._got
            or row in protected
            or any(occupancy.draining >> node & 1 for node in placement.nodes)
        }

    # -- who runs on which type -------------------------------------------------------------------

    def _pick(self, rows: Rows, fixed: set[int], ctx: RoundContext) -> dict[int, list[int]]:
        """Rows that get GPUs, by type, in the order in which they were taken."""
        types, occupancy = self._types, ctx.occupancy
        shares = self._source(rows, types, ctx)
        x = np.zeros((len(rows), len(types)))
        x[np.searchsorted(rows, shares.rows)] = np.round(shares.x, DECIMALS)
        got = np.array([self._got[row] for row in rows.tolist()])
        priority = x / (got / self._given)
        may = (speeds_of(rows, types, ctx) > 0) & self._grounds.open_to(rows, ctx)
        room = self._grounds.free(ctx)
        for row, placement in occupancy.held.items():
            if row not in fixed:
                for node, mask in zip(placement.nodes, placement.masks, strict=True):
                    room[self._grounds.kind_of(node)] += mask.bit_count()
        declared = np.array([occupancy.cluster.gpu_types.index(name) for name in types])
        line, kind = np.nonzero(may)
        order = np.lexsort((line, declared[kind], -x[line, kind], -priority[line, kind]))
        picked: dict[int, list[int]] = {}
        seated: set[int] = set(fixed)
        names, gangs = rows.tolist(), ctx.table.gang[rows].tolist()
        for at, where in zip(line[order].tolist(), kind[order].tolist(), strict=True):
            row, gang = names[at], gangs[at]
            if row not in seated and gang <= room[where]:
                seated.add(row)
                room[where] -= gang
                picked.setdefault(where, []).append(row)
        return picked

    # -- which GPUs -------------------------------------------------------------------------------

    def _carry_out(
        self, picked: dict[int, list[int]], fixed: set[int], ctx: RoundContext, walk: Walk
    ) -> None:
        """Make it so; who asks for particular GPUs gets them from the placement, after the others.

        Where quotas, CPUs or memory are counted the placement has the last word on every start.
        """
        occupancy, table = ctx.occupancy, ctx.table
        exact = ctx.pools.whole and walk.tenancy is None and not walk.tracks_host
        particular = {*table.shapes, *table.whole_nodes, *table.homes}
        others = {
            row: kind
            for kind, chosen in picked.items()
            for row in chosen
            if not exact or row in particular
        }
        stays = fixed | {row for row, kind in others.items() if self._is_on(row, kind, ctx)}
        wanted: dict[int, Placement] = {}
        for kind, chosen in picked.items():
            plain = [row for row in chosen if row not in others]
            wanted |= self._in_order(kind, plain, stays, ctx)
        for row in [row for row in occupancy.held if row not in stays]:
            if wanted.get(row) != occupancy.held[row]:
                walk.suspend(row)
        for row, placement in wanted.items():
            if row not in occupancy.held:
                walk.place_exactly(row, placement)
        for row, kind in others.items():
            if row not in occupancy.held:
                walk.place(row, nodes=self._grounds.nodes[kind])

    def _in_order(
        self, kind: int, chosen: list[int], stays: set[int], ctx: RoundContext
    ) -> dict[int, Placement]:
        """Exact GPUs of one type, larger gangs first."""
        held, gang = ctx.occupancy.held, ctx.table.gang
        taken: set[Gpu] = set()
        following = self._gpus(kind, stays, ctx)
        found: dict[int, Placement] = {}
        by_size: dict[int, list[int]] = {}
        for row in chosen:
            by_size.setdefault(int(gang[row]), []).append(row)
        for size in sorted(by_size, reverse=True):
            for row in by_size[size]:
                if row in held and self._is_on(row, kind, ctx):
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

    def _gpus(self, kind: int, stays: set[int], ctx: RoundContext) -> Iterator[Gpu]:
        """GPUs of a type that may be given, in order."""
        occupancy = ctx.occupancy
        free = dict(enumerate(occupancy.free))
        for row, placement in occupancy.held.items():
            if row not in stays:
                for node, mask in zip(placement.nodes, placement.masks, strict=True):
                    free[node] |= mask
        nodes = self._grounds.nodes[kind] & occupancy.open_nodes
        for node, mask in free.items():
            if nodes >> node & 1:
                yield from ((node, bit) for bit in range(mask.bit_length()) if mask >> bit & 1)

    def _is_on(self, row: int, kind: int, ctx: RoundContext) -> bool:
        """Does it run on this type, and on no other?"""
        placement = ctx.occupancy.held.get(row)
        return placement is not None and {
            self._grounds.kind_of(node) for node in placement.nodes
        } == {kind}

    # -- what it remembers ------------------------------------------------------------------------

    def rename(self, place: Mapping[int, int]) -> None:
        """Rows have other numbers now, by their old ones; whoever has none has ended."""
        self._got = {place[row]: got for row, got in self._got.items() if row in place}

    def state_dict(self) -> dict[str, Any]:
        """Everything that decides future rounds."""
        return {
            "types": list(self._types),
            "got": [[row, *got.tolist()] for row, got in self._got.items()],
            "given": self._given.tolist(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state_dict`."""
        self._types = tuple(state["types"])
        self._got = {int(row): np.array(got, np.float64) for row, *got in state["got"]}
        self._given = np.array(state["given"], np.float64)


def _moved(seconds: Floats, before: list[int], new: float) -> Floats:
    """The same columns in another order; -1 for a type that is new."""
    return np.array([seconds[place] if place >= 0 else new for place in before])
