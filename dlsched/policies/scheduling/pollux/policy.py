"""The policy `pollux`: in every round the GPUs of all jobs, such that goodput is largest.

A job that gets other GPUs restarts with the batch size that suits them. The fitness contains the
cost of a restart, so most rows stay as they are.

Paper: see the package. Inputs: goodput models of the jobs (samples/s by nodes and replicas), their
ages and restart times in seconds.
"""

from __future__ import annotations

import math

from dlsched.core.allocation import Grant, Refused
from dlsched.core.cluster.occupancy import Placement, lowest_bits
from dlsched.core.context import RoundContext
from dlsched.core.memory import kept
from dlsched.core.scheduling import SchedulingPolicy
from dlsched.core.units import Units
from dlsched.core.walk.node_counts import counts_of
from dlsched.core.walk.walk import Walk
from dlsched.policies.scheduling.pollux.blocks import find
from dlsched.policies.scheduling.pollux.cluster_size import ClusterSize
from dlsched.policies.scheduling.pollux.options import PolluxOptions
from dlsched.policies.scheduling.pollux.problem_of_round import RoundProblem, problem_of_round
from dlsched.policies.scheduling.pollux.speedups import Tables

WAITS = Refused("Priority", "other jobs gain more from the GPUs")
HOST = Refused("Resources", "the node has too few free cores or too little memory for so many GPUs")
CHANGED = Refused("Resources", "the GPUs chosen for it are not free")


class Pollux(SchedulingPolicy[PolluxOptions]):
    """Largest goodput by a search over matrices of jobs × nodes."""

    weighs_types = True
    name = "pollux"
    summary = "elastic jobs: GPUs and batch sizes that maximise goodput, fairly, at restarts' cost"
    preemptive = True
    rests = False

    _tables: Tables = kept(Tables, is_stored=False)  # they are computed again
    _size: ClusterSize = kept(None)

    def __init__(self, options: PolluxOptions) -> None:
        super().__init__(options)
        self._size = ClusterSize(options)

    @property
    def chooses_gpus(self) -> bool:
        """True: its matrices say the GPUs of each node."""
        return True

    def allocate(self, units: Units, ctx: RoundContext, walk: Walk) -> None:
        """One round, or a fill of idle GPUs."""
        no: dict[int, Refused] = {}  # by row of the problem
        current = None
        if ctx.mode == "full" or ctx.free_gpus:
            current = problem_of_round(ctx, walk, self.options, self._tables)
            if current is not None:
                no = dict.fromkeys(current.rows.tolist(), WAITS)
                no |= self._decide(current, ctx, walk)
        for row in ctx.active.tolist():
            if row not in ctx.occupancy.held:
                placed = no[row] if row in no else walk.place(row)
                if isinstance(placed, Refused):
                    walk.refuse(row, placed)
        if not (ctx.occupancy.held or (current is not None and current.problem.may_run.any())):
            walk.stable_until(math.inf)  # time alone lets no job start
        elif not ctx.round_length and len(ctx.active):  # the best state changes as jobs grow older
            walk.wake_at(ctx.now + self.options.interval_s)

    def _decide(self, current: RoundProblem, ctx: RoundContext, walk: Walk) -> dict[int, Refused]:
        """Search, and place the result; returns the rows that could not start, and why."""
        rng = ctx.rng
        found = find(current.problem, rng, effort=self.options.effort)
        rows = found.rows
        if ctx.mode == "full" and self.options.autoscale != "none":
            wanted = self._size.wanted(current, rows, rng)
            walk.want_nodes(wanted)
            if self.options.autoscale == "every-round" and wanted < len(current.nodes):
                smaller = current.problem.first_nodes(wanted)
                rows = find(smaller, rng, effort=self.options.effort).rows
        plan = {
            row: [
                (int(current.nodes[node]), int(rows[job, node]))
                for node in rows[job].nonzero()[0].tolist()
            ]
            for job, row in enumerate(current.rows.tolist())
            if not current.problem.pinned[job]
        }
        return _carry_out(plan, ctx, walk)


def _carry_out(
    plan: dict[int, list[tuple[int, int]]], ctx: RoundContext, walk: Walk
) -> dict[int, Refused]:
    """Stop changed rows, then start them in order; returns those that could not start, and why."""
    no: dict[int, Refused] = {}
    held = ctx.occupancy.held
    before: dict[int, Placement] = {}
    for row, counts in plan.items():
        if row in held and sorted(counts_of(held[row])) != counts:
            before[row] = held[row]
            walk.suspend(row)
    for row, counts in plan.items():
        if row in held or not counts:
            continue
        refused = _start(row, counts, walk)
        if refused is None:
            walk.grant(row, Grant(tunes_batch=True))
            continue
        back = before.get(row)
        free = ctx.occupancy.free
        if back is not None and all(
            not mask & ~free[node] for node, mask in zip(back.nodes, back.masks, strict=True)
        ):
            walk.place_exactly(row, back)
        else:
            no[row] = refused
    return no


def _start(row: int, counts: list[tuple[int, int]], walk: Walk) -> Refused | None:
    """Give a row the lowest GPUs of its nodes, or say why not."""
    gpus = sum(count for _, count in counts)
    over = None if walk.tenancy is None else walk.tenancy.over_ceiling(row, gpus)
    if over is not None:
        return over
    free = walk.occupancy.free
    if any(free[node].bit_count() < count for node, count in counts):
        return CHANGED
    if walk.tracks_host:
        usable = walk.free_for(row, gpus)
        if any(usable.usable_on(node) < count for node, count in counts):
            return HOST
    nodes = tuple(node for node, _ in counts)
    walk.place_exactly(
        row, Placement(nodes, tuple(lowest_bits(free[node], count) for node, count in counts))
    )
    return None
