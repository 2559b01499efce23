"""The policy `muri`: jobs of one gang size share GPUs and take turns at resources.

In each decision jobs are taken in the order of their keys, up to four for each gang that fits on
the empty cluster; those of one size are grouped by how well their stages interleave, only as far as
GPUs are short; a group that would be slower than its jobs one after the other is split; and the
groups are placed, the most urgent first. "Muri-S" knows durations, "Muri-L" does not. Paper: see
the package, section 4. Inputs: milliseconds of an iteration alone and of its stages
(`iteration_ms`, `data_ms`, `gpu_ms`, `network_ms`), all on the job's own gang; a job of which one
is not known has GPUs of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from dlsched.core.allocation import Ranking, Refused
from dlsched.core.arrays import Floats, Rows, numbers
from dlsched.core.context import RoundContext
from dlsched.core.options import option
from dlsched.core.scheduling import SchedulingPolicy
from dlsched.core.speed.stages import MEASURED_FACTORS, MOST_TOGETHER
from dlsched.core.units import Units
from dlsched.core.walk.co_location import may_join
from dlsched.core.walk.following import follow
from dlsched.core.walk.walk import Walk
from dlsched.policies.scheduling.muri.grouping import (
    Group,
    InterleavedJobs,
    Interleaving,
    Times,
    consecutive_groups,
    matched_groups,
    unpacked,
)
from dlsched.policies.scheduling.ordering import PersistentOrder

STAGES = ("data_ms", "gpu_ms", "network_ms")
MS = 1e-3
REMEMBERED = 100_000  # groups whose times are kept
CROWDED = Refused("Resources", "no gang of this size fits, alone or interleaved with others")

Chosen = tuple[int, Group]  # a gang size, and the positions of a group's jobs


@dataclass(frozen=True, slots=True, kw_only=True)
class MuriOptions:
    """Multi-resource interleaving."""

    durations: Literal["known", "unknown"] = option(
        "known",
        "known (Muri-S): least remaining time × GPUs first; unknown (Muri-L): least attained",
    )
    grouping: Literal["blossom", "consecutive"] = option(
        "blossom",
        "blossom: by maximum-weight matching; consecutive: jobs that follow each other in the "
        "order of their keys",
    )
    most: int = option(4, "jobs on the same GPUs at most", low=1, high=MOST_TOGETHER)
    factors: tuple[float, ...] = option(
        MEASURED_FACTORS,
        "how many times longer than planned an iteration of 1, 2, … jobs on the same GPUs takes",
        low=1e-9,
    )
    ordering: Literal["best", "worst"] = option(
        "best", "the order in which the jobs of a group take turns (worst: for comparison)"
    )
    ties: Literal["submit", "published"] = option(
        "submit",
        "order of equal keys: of admission, or (published) larger gangs first, then as before",
    )
    rebuild: Literal["sticky", "full"] = option(
        "sticky", "sticky: groups stay on GPUs that their jobs have; full: all are placed anew"
    )


class Muri(SchedulingPolicy[MuriOptions]):
    """Candidates, groups, the check whether a group gains, and placement."""

    name = "muri"
    summary = "jobs share GPUs and take turns at storage, CPUs, GPUs and network; by matching"
    preemptive = True
    rests = False  # jobs get GPUs of their own when others leave
    pairs_units = True

    def __init__(self, options: MuriOptions) -> None:
        super().__init__(options)
        known = len(options.factors)
        self._how = Interleaving(
            most=min(options.most, known), factors=options.factors, ordering=options.ordering
        )
        self._known: Times = {}  # follows from the options: no state
        self._previous = PersistentOrder()
        self.memories = (self._previous,)

    def allocate(self, units: Units, ctx: RoundContext, walk: Walk) -> None:
        """Group and place all jobs anew; between rounds only start what fits."""
        key = self._key(units)
        if ctx.mode == "fill":
            order = np.argsort(key, kind="stable")
            follow(walk, units, Ranking(order=order))
            return
        order = self._order(units, key)
        units, key = units[order], key[order]
        protected = walk.is_protected(units.rows) & units.running
        if protected.any():
            units, key = units[~protected], key[~protected]
        rows: list[int] = units.rows.tolist()
        walk.ranked(units.rows)
        for row in units.rows[units.running].tolist():
            walk.suspend(row)
        walk.forget_claims()
        jobs = self._jobs(units)
        chosen = self._chosen(units, key, jobs, ctx, walk)
        empty = walk.mark()
        if self.options.rebuild == "full" or not self._place(chosen, rows, walk, keep=True):
            walk.rollback(empty)
            self._place(chosen, rows, walk, keep=False)
        for row in rows:
            if row not in ctx.occupancy.held:
                walk.refuse(row, CROWDED)

    def order_at_limits(self, units: Units, ctx: RoundContext) -> Rows:
        """By its key."""
        return np.argsort(self._key(units), kind="stable")

    # -- which are next ----------------------------------------------------------------------------

    def _key(self, units: Units) -> Floats:
        """GPU-seconds left, or attained, smallest first; jobs of unknown length come last."""
        if self.options.durations == "unknown":
            return units.held_s * units.gang
        left = units.remaining_work * units.gang
        return np.where(np.isnan(left), np.inf, left)

    def _order(self, units: Units, key: Floats) -> Rows:
        if self.options.ties == "submit":
            return np.argsort(key, kind="stable")
        order = self._previous.sort(units, key)
        self._previous.sort(units, -units.gang.astype(np.float64))
        return order

    # -- which run together -----------------------------------------------------------------------

    def _jobs(self, units: Units) -> InterleavedJobs:
        columns = [
            numbers(units.extra(name)) if name in units.table.extra else np.full(len(units), np.nan)
            for name in (*STAGES, "iteration_ms")
        ]
        if len(self._known) > REMEMBERED:
            self._known.clear()
        return InterleavedJobs(
            np.column_stack(columns[:-1]) * MS,
            columns[-1] * (self._how.factors[0] * MS),
            np.nan_to_num(units.gpu_share),
            self._how,
            self._known,
        )

    def _chosen(
        self,
        units: Units,
        key: Floats,
        jobs: InterleavedJobs,
        ctx: RoundContext,
        walk: Walk,
    ) -> list[Chosen]:
        """The groups that run, the most urgent first; no GPU is given yet."""
        start = walk.mark()
        most = self._how.most if ctx.may_share else 1
        found: list[Chosen] = []
        for classes, gpus in self._candidates(units, most, walk):
            if self.options.grouping == "blossom":
                groups = matched_groups(classes, gpus, jobs, most)
            else:
                groups = consecutive_groups(classes, gpus, jobs, most)
            found += unpacked(self._known_together(groups, units, ctx), jobs)
        walk.rollback(start)
        found.sort(key=lambda each: key.item(min(each[1])))  # positions ascend by key
        full: set[tuple[int, int]] = set()
        chosen = [each for each in found if self._reserves(units, each[1][0], full, walk)]
        walk.rollback(start)
        return chosen

    @staticmethod
    def _known_together(groups: Sequence[Chosen], units: Units, ctx: RoundContext) -> list[Chosen]:
        """Split the groups of which this world does not know how fast they are, or that misfit."""
        if ctx.perf.sharing is None:
            return list(groups)
        gpu_type = ctx.occupancy.cluster.gpu_types[0]
        found: list[Chosen] = []
        for gang, group in groups:
            rows = units.rows[list(group)].tolist()
            if len(group) == 1 or (ctx.perf.together(rows, gpu_type, gang) > 0).all():
                found.append((gang, group))
            else:
                found += [(gang, (job,)) for job in group]
        return found

    def _candidates(
        self, units: Units, most: int, walk: Walk
    ) -> list[tuple[list[tuple[int, list[int]]], int]]:
        """Of each pool the jobs that may run by gang size, in order of their keys, and its GPUs."""
        pools: dict[int, dict[int, list[int]]] = {}
        for position, (pool, gang) in enumerate(
            zip(units.pool.tolist(), units.gang.tolist(), strict=True)
        ):
            pools.setdefault(pool, {}).setdefault(gang, []).append(position)
        gpus = {pool: walk.free_gpus(pool) for pool in pools}
        taken = {(pool, gang): 0 for pool, sizes in pools.items() for gang in sizes}
        full: set[tuple[int, int]] = set()
        place_in_class = self._places(pools)
        for position in range(len(units)):
            like = (units.pool.item(position), units.gang.item(position))
            if place_in_class[position] >= taken[like] and self._reserves(
                units, position, full, walk
            ):
                taken[like] += most
        return [
            (
                [(gang, some[: taken[pool, gang]]) for gang, some in sizes.items()],
                gpus[pool],
            )
            for pool, sizes in pools.items()
        ]

    @staticmethod
    def _places(pools: dict[int, dict[int, list[int]]]) -> dict[int, int]:
        """Each job's place among those of its pool and gang size."""
        return {
            position: place
            for sizes in pools.values()
            for some in sizes.values()
            for place, position in enumerate(some)
        }

    @staticmethod
    def _reserves(units: Units, position: int, full: set[tuple[int, int]], walk: Walk) -> bool:
        """Try to hold GPUs for a job's gang; what is full for one is full for all alike."""
        like = (units.pool.item(position), units.gang.item(position))
        if like in full and walk.requests_are_alike:
            return False
        fits = not isinstance(walk.place(units.rows.item(position)), Refused)
        if not fits:
            full.add(like)
        return fits

    # -- where ------------------------------------------------------------------------------------

    def _place(self, chosen: Sequence[Chosen], rows: list[int], walk: Walk, *, keep: bool) -> bool:
        """Place the groups, the largest gangs first; says whether all that could be were.

        Args:
            chosen: gang size and positions of each group.
            rows: of all positions.
            walk: the decision's walk.
            keep: groups stay where their jobs are, as far as they can.
        """
        groups = [[rows[position] for position in group] for _, group in self._by_size(chosen)]
        waiting = [group for group in groups if not (keep and self._stays(group, walk))]
        complete = True
        for group in waiting:
            first, *others = group
            if isinstance(walk.place(first), Refused):
                complete = False
            else:
                self._join(others, first, walk)
        return complete

    @staticmethod
    def _by_size(chosen: Sequence[Chosen]) -> list[Chosen]:
        """Largest gangs first; of one size the group of the first job."""
        return sorted(chosen, key=lambda each: (-each[0], min(each[1])))

    def _stays(self, group: list[int], walk: Walk) -> bool:
        """Put a group on GPUs that most of its jobs had, if they are free."""
        had = [walk.suspended[row] for row in group if row in walk.suspended]
        for where in sorted(set(had), key=lambda each: (-had.count(each), each)):
            first = next(row for row in group if walk.suspended.get(row) == where)
            if walk.is_open(first, where):
                walk.place_exactly(first, where)
                self._join([row for row in group if row != first], first, walk)
                return True
        return False

    @staticmethod
    def _join(others: Sequence[int], first: int, walk: Walk) -> None:
        for row in others:
            if may_join(row, first, walk):
                walk.share(row, first, returns=True)
