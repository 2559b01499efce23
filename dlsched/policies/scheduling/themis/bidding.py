"""The offer of an auction: GPUs by machine, and the jobs that may use them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from dlsched.core.arrays import Floats, Rows
from dlsched.core.context import RoundContext
from dlsched.core.units import Units
from dlsched.policies.scheduling.gang_sizes import bounds_of, has_known_scaling
from dlsched.policies.scheduling.themis.app import Job, JobPlacement, Machines
from dlsched.policies.scheduling.themis.auction import Bundle


def seconds_at_best(work: Floats, rows: Rows, ctx: RoundContext) -> Floats:
    """Seconds that work takes on each row's gang of its fastest type; 0 where it is not known."""
    known = np.nan_to_num(work)
    if ctx.perf.by_type is None or not len(rows):
        return known
    best = ctx.perf.rate(rows, ctx.occupancy.cluster.gpu_types, ctx.table.gang[rows]).max(axis=1)
    steps = known * ctx.perf.steps_per_work(rows)
    seconds: Floats = np.divide(steps, best, out=np.zeros(len(rows)), where=best > 0)
    return seconds


class Size(NamedTuple):
    """The fewest and most GPUs of a row, and its speedup curve (see `app.Job`)."""

    least: int
    most: int
    curve: tuple[float, ...] = ()


def sizes_of(rows: Rows, ctx: RoundContext) -> dict[int, Size]:
    """The size of each row; a row whose scaling is not known has its gang."""
    gangs = ctx.table.gang[rows]
    if ctx.perf.by_count is None or not len(rows):
        return {
            row: Size(gang, gang) for row, gang in zip(rows.tolist(), gangs.tolist(), strict=True)
        }
    width = max(int(gangs.max()), int(ctx.table.max_gpus[rows].max()), 1)
    rates = ctx.perf.rate_by_count(rows, min(width, max(ctx.occupancy.cluster.total_gpus, 1)))
    bounds = bounds_of(Units(ctx.table, rows, ctx.now), has_known_scaling(rates))
    found = {}
    for row, gang, least, most, rate in zip(
        rows.tolist(), gangs.tolist(), bounds.least.tolist(), bounds.most.tolist(),
        np.nan_to_num(rates).tolist(), strict=True,
    ):  # fmt: skip
        top = min(most, len(rate)) if least < most else most
        base = rate[gang - 1] if gang <= len(rate) else 0.0
        curve = (0.0, *(gang * r / base for r in rate[:top])) if base > 0 else ()
        found[row] = Size(min(least, top), top, curve)
    return found


class Offer:
    """Free GPUs and those whose leases have ended, by machine.

    Attributes:
        rows: jobs without a lease, in order of admission.
        jobs: these jobs, by row.
        nodes: the nodes of the machines, ascending.
        gpus: GPUs on offer, by machine.
        nothing: no GPUs, by machine.
        machines: the racks of the machines.
    """

    def __init__(
        self,
        waiting: list[int],
        expired: list[int],
        ctx: RoundContext,
        *,
        in_rack: float,
        across: float,
    ) -> None:
        """Collect the offer.

        Args:
            waiting: rows without GPUs.
            expired: rows with an ended lease.
            ctx: the round.
            in_rack: S on several machines of a rack.
            across: S over racks.
        """
        occupancy = ctx.occupancy
        counts: dict[int, int] = {}
        for node in range(len(occupancy.free)):
            if occupancy.open_nodes >> node & 1 and occupancy.free[node]:
                counts[node] = occupancy.free[node].bit_count()
        for row in expired:
            held = occupancy.held[row]
            for node, mask in zip(held.nodes, held.masks, strict=True):
                counts[node] = counts.get(node, 0) + mask.bit_count()
        self.nodes = sorted(counts)
        self.gpus: Bundle = tuple(counts[node] for node in self.nodes)
        self.nothing: Bundle = (0,) * len(self.nodes)
        switch = occupancy.cluster.switch_of
        self.machines = Machines(
            tuple(int(switch[node]) for node in self.nodes), in_rack, max(in_rack, across)
        )
        chosen = {*waiting, *expired}
        self.rows = [row for row in ctx.active.tolist() if row in chosen]
        self._types = occupancy.cluster.gpu_types
        self._ctx = ctx
        candidates = np.array(
            [*self.rows, *(r for r in occupancy.held if r not in chosen)], np.int64
        )
        self._relative = self._relative_speeds(candidates)
        left = Units(ctx.table, candidates, ctx.now).remaining_work
        serial = seconds_at_best(left, candidates, ctx) * ctx.table.gang[candidates]
        self._serial = dict(zip(candidates.tolist(), serial.tolist(), strict=True))
        self._sizes = sizes_of(candidates, ctx)
        self.jobs = {row: self._job(row, row in set(expired)) for row in self.rows}

    def _relative_speeds(self, rows: Rows) -> dict[int, list[float]]:
        speed = self._ctx.perf.rate(rows, self._types, self._ctx.table.gang[rows])
        best = speed.max(axis=1, keepdims=True, initial=0.0)
        relative = np.divide(speed, best, out=np.zeros_like(speed), where=best > 0)
        return dict(zip(rows.tolist(), relative.tolist(), strict=True))

    def _job(self, row: int, runs: bool) -> Job:
        ctx = self._ctx
        pool = ctx.pools.nodes[int(ctx.table.pool[row])]
        home = ctx.table.homes.get(row)
        if home is not None:
            pool &= sum(1 << node for node in home.nodes)
        type_of, relative = ctx.occupancy.type_of, self._relative[row]
        size = self._sizes[row]
        return Job(
            row=row,
            remaining=self._serial[row],
            least=size.least,
            most=size.most,
            curve=size.curve,
            speed=tuple(
                relative[int(type_of[node])] if pool >> node & 1 else 0.0 for node in self.nodes
            ),
            now=self._bundle(row) if runs else (),
        )

    def _bundle(self, row: int) -> Bundle:
        held = self._ctx.occupancy.held[row]
        masks = dict(zip(held.nodes, held.masks, strict=True))
        return tuple(masks.get(node, 0).bit_count() for node in self.nodes)

    def nodes_of(self, bundle: Bundle) -> int:
        """The nodes of a bundle, as bits."""
        return sum(1 << node for node, count in zip(self.nodes, bundle, strict=True) if count)

    def enough_at(self, gpus: int, until: Mapping[int, float]) -> float:
        """When so many GPUs are on offer if no lease is renewed (ends by row); inf for never."""
        there = sum(self.gpus)
        held = self._ctx.occupancy.held
        for end, row in sorted((end, row) for row, end in until.items() if row not in self.jobs):
            there += held[row].gpus
            if there >= gpus:
                return end
        return math.inf

    def rate_of(self, row: int) -> tuple[float, float]:
        """Seconds of work left on one GPU, and rate in GPUs, of a row that keeps its GPUs."""
        held, type_of = self._ctx.occupancy.held[row], self._ctx.occupancy.type_of
        slowest = min(self._relative[row][int(type_of[node])] for node in held.nodes)
        switch = self._ctx.occupancy.cluster.switch_of
        racks = {int(switch[node]) for node in held.nodes}
        spread = 1.0
        if len(held.nodes) > 1:
            spread = self.machines.in_rack if len(racks) == 1 else self.machines.across
        curve = self._sizes[row].curve
        speedup = curve[held.gpus] if held.gpus < len(curve) else float(held.gpus)
        return self._serial[row], max(speedup * slowest, 1e-9) / spread

    def placed_now(self, rows: list[int]) -> list[JobPlacement]:
        """The present GPUs of those of these rows that still run."""
        running = [row for row in rows if self.jobs[row].now]
        return [
            JobPlacement(self.jobs[row], self.jobs[row].now, self.rate_of(row)[1])
            for row in running
        ]
