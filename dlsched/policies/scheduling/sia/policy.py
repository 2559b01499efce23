"""The policy `sia`: in every round a configuration for every job, and nodes for each.

Jobs that are still restarting, and jobs with `no` in the column `preemptible`, keep their
configuration. Jobs with `yes` in the column `reserved` come before all others. Jobs on draining
nodes, and jobs that have not run their minimum time, stay where they are and are not part of the
program.

Paper: see the package. Inputs: goodput models of elastic jobs (samples/s), throughput by GPU type
of the others (steps/s), restart times in seconds.
"""

from __future__ import annotations

import math

import numpy as np

from dlsched.core.allocation import Grant, Refused
from dlsched.core.arrays import Bools, Ints, Rows
from dlsched.core.context import RoundContext
from dlsched.core.errors import BadInput, PolicyFailed
from dlsched.core.scheduling import SchedulingPolicy
from dlsched.core.units import Units
from dlsched.core.walk.node_counts import counts_of, lay_out
from dlsched.core.walk.walk import Walk
from dlsched.policies.highs import Limits
from dlsched.policies.scheduling.sia.configurations import NONE, Configurations
from dlsched.policies.scheduling.sia.goodput_matrix import (
    Worth,
    charge_moves,
    elastic_rows,
    worth_of,
)
from dlsched.policies.scheduling.sia.integer_program import EXACT, MISSING, Program, Terms
from dlsched.policies.scheduling.sia.node_capacity import NodeCapacity
from dlsched.policies.scheduling.sia.options import SiaOptions
from dlsched.policies.scheduling.sia.placement import (
    Counts,
    Request,
    plan_all_again,
    plan_with_few_moves,
)
from dlsched.policies.scheduling.sia.solving import solve

NO, YES = ("0", "0.0", "no", "false"), ("1", "1.0", "yes", "true")
WAITS = Refused("Priority", "its GPUs are worth more to other jobs in this round")
TOO_LARGE = Refused("Resources", "no GPU type has room for it")
SPLIT = Refused("Fragmented", "the free GPUs of the chosen type lie on too many nodes")


class Sia(SchedulingPolicy[SiaOptions]):
    """Configurations by an integer program."""

    weighs_types = True
    name = "sia"
    summary = "GPU type, number of GPUs and batch size of every job, by goodput and an ILP a round"
    preemptive = True
    rests = False

    def __init__(self, options: SiaOptions) -> None:
        """Check the options.

        Raises:
            BadInput: p is 0.
        """
        super().__init__(options)
        if options.power == 0:
            raise BadInput("sia: power must not be 0; below 0 is fair, 1 is the most goodput")

    @property
    def terms(self) -> Terms:
        """How the objective is computed."""
        return EXACT

    def allocate(self, units: Units, ctx: RoundContext, walk: Walk) -> None:
        """One round, or a fill of idle GPUs between two rounds."""
        held = ctx.occupancy.held
        rows = self._place_particular(np.sort(ctx.active), ctx, walk)
        movable = self._movable(rows, ctx, walk)
        capacity = NodeCapacity.of(ctx, movable)
        rows = rows[
            np.array([row in movable or row not in held for row in rows.tolist()], np.bool_)
        ]
        if not len(rows):
            self._wait_for_a_change(walk)
            return
        chosen = Units(ctx.table, rows, ctx.now)
        room = self._room(chosen, capacity, ctx)
        jobs = worth_of(chosen, ctx, room, self.options)
        if not (jobs.worth > MISSING).any():  # no job has a configuration here
            self._wait_for_a_change(walk)
        choice, grants = self._choose(chosen, jobs, room, capacity, ctx)
        requests = {
            row: Request(int(room.gpu_type[at]), int(room.gpus[at]))
            for row, at in zip(rows.tolist(), choice.tolist(), strict=True)
            if at != NONE
        }
        if self.options.placing == "fast":
            plan = plan_all_again(requests, capacity)
        else:
            now = {row: counts_of(held[row]) for row in movable}
            plan = plan_with_few_moves(requests, now, capacity)
        for row in rows.tolist():
            if row not in plan:
                walk.refuse(row, self._why(row, requests, room, ctx))
        self._carry_out(plan, movable, grants, walk)

    @staticmethod
    def _wait_for_a_change(walk: Walk) -> None:
        """While no job runs, time alone lets none start of those that wait."""
        if not walk.occupancy.held:
            walk.stable_until(math.inf)

    def _place_particular(self, rows: Rows, ctx: RoundContext, walk: Walk) -> Rows:
        """Start rows that ask for particular nodes or shapes where the placement puts them.

        They stay until they end. Returns the other rows.
        """
        table, every = ctx.table, (1 << len(ctx.occupancy.cluster)) - 1
        others = []
        for row in rows.tolist():
            nodes = ctx.pools.nodes[table.pool.item(row)]
            partial = not ctx.pools.whole and nodes != every and self._is_part_of_a_type(nodes, ctx)
            if not (
                row in table.shapes or row in table.whole_nodes or row in table.homes or partial
            ):
                others.append(row)
            elif row not in ctx.occupancy.held:
                placed = walk.place(row)
                if isinstance(placed, Refused):
                    walk.refuse(row, placed)
        return np.array(others, np.int64)

    @staticmethod
    def _is_part_of_a_type(nodes: int, ctx: RoundContext) -> bool:
        """Whether a set of nodes has some, but not all nodes of a GPU type."""
        occupancy = ctx.occupancy
        for gpu_type in range(len(occupancy.cluster.gpu_types)):
            own = occupancy.cluster.nodes_mask(
                np.flatnonzero(occupancy.type_of == gpu_type).tolist()
            )
            if nodes & own not in (0, own):
                return True
        return False

    def _carry_out(
        self,
        plan: dict[int, Counts],
        movable: set[int],
        grants: dict[int, Grant],
        walk: Walk,
    ) -> None:
        """Suspend and start jobs; the placement stage places them where CPUs or memory count.

        Args:
            plan: the nodes of each row.
            movable: rows that may lose their GPUs.
            grants: what rows get besides GPUs.
            walk: takes the decisions.
        """
        held = walk.occupancy.held
        if walk.tenancy is None and not walk.tracks_host:
            fixed = {row: counts_of(held[row]) for row in held if row not in movable}
            lay_out(walk, {**fixed, **plan}, grants)
            return
        for row in sorted(movable):
            if counts_of(held[row]) != plan.get(row, []):
                walk.suspend(row)
        for row, counts in plan.items():
            if row in held:
                continue
            nodes = walk.occupancy.cluster.nodes_mask([node for node, _ in counts])
            placed = walk.place(row, sum(gpus for _, gpus in counts), nodes=nodes)
            if isinstance(placed, Refused):
                walk.refuse(row, placed)
            elif row in grants:
                walk.grant(row, grants[row])

    # -- the choice -------------------------------------------------------------------------------

    def _movable(self, rows: Rows, ctx: RoundContext, walk: Walk) -> set[int]:
        """Rows with GPUs that may be given to other rows."""
        held, draining = ctx.occupancy.held, ctx.occupancy.draining
        if ctx.mode == "fill" or not walk.may_preempt:
            return set()
        running = np.array([row for row in rows.tolist() if row in held], np.int64)
        protected = walk.is_protected(running).tolist()
        return {
            row
            for row, keeps in zip(running.tolist(), protected, strict=True)
            if not keeps and not any(draining >> node & 1 for node in held[row].nodes)
        }

    def _room(self, units: Units, capacity: NodeCapacity, ctx: RoundContext) -> Configurations:
        options = self.options
        room = capacity.configurations(most_nodes=options.most_nodes, most_gpus=options.most_gpus)
        rigid = units.rows[~elastic_rows(units, ctx, options)]
        return room.with_gangs(ctx.table.gang[rigid].tolist())

    def _choose(
        self,
        units: Units,
        jobs: Worth,
        room: Configurations,
        capacity: NodeCapacity,
        ctx: RoundContext,
    ) -> tuple[Ints, dict[int, Grant]]:
        """The program's choice of a configuration for each unit."""
        options = self.options
        now = self._now(units.rows, room, capacity, ctx)
        worth = charge_moves(jobs.worth, now, jobs.factor, terms=self.terms)
        problem = Program.of(
            room,
            worth,
            power=options.power,
            penalty=options.penalty,
            terms=self.terms,
            now=now,
            pinned=self._restarting(units, ctx) | _says(units, "preemptible", NO),
            must=_says(units, "reserved", YES),
            weight=_weights(units),
        )
        seconds = options.solve_limit_s if ctx.cpu_clock is not None else np.inf
        limits = Limits(gap=options.gap, nodes=options.nodes, seconds=seconds)
        found = solve(problem, limits)
        if (problem.uses(found.choice) > room.capacity).any():
            raise PolicyFailed("the choice needs more GPUs than there are")
        tuning = units.rows[jobs.adapts].tolist()
        return found.choice, dict.fromkeys(tuning, Grant(tunes_batch=True))

    def _now(
        self, rows: Rows, room: Configurations, capacity: NodeCapacity, ctx: RoundContext
    ) -> Ints:
        """The configuration that each row has."""
        now = np.full(len(rows), NONE, np.int64)
        for place, row in enumerate(rows.tolist()):
            held = ctx.occupancy.held.get(row)
            if held is not None and (gpu_type := capacity.gpu_type(held.nodes)) != NONE:
                now[place] = room.index(gpu_type, held.gpus)
        return now

    def _restarting(self, units: Units, ctx: RoundContext) -> Bools:
        return units.running & (ctx.table.progress_from[units.rows] > ctx.now)

    def _why(
        self, row: int, requests: dict[int, Request], room: Configurations, ctx: RoundContext
    ) -> Refused:
        if row in requests:
            return SPLIT
        least = ctx.table.min_gpus.item(row)
        need = least if least > 0 else int(ctx.table.gang[row])
        return TOO_LARGE if need > room.capacity.max(initial=0) else WAITS


def _says(units: Units, column: str, words: tuple[str, ...]) -> Bools:
    """Rows with one of some words in an additional column of the trace or submission."""
    if column not in units.table.extra:
        return np.zeros(len(units), np.bool_)
    values = units.extra(column).tolist()
    return np.array([str(value).strip().lower() in words for value in values], np.bool_)


def _weights(units: Units) -> np.ndarray[tuple[int], np.dtype[np.float64]] | None:
    """The weights of jobs; None where all are equal."""
    weight = units.weight
    return None if np.isnan(weight).all() else np.where(np.isnan(weight), 1.0, weight)
