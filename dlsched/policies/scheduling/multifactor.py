"""Multifactor priority: age, fair share, size, priority class and nice, in one sum.

Source: Slurm's plugin priority/multifactor, with its classic fair-share formula and preemption by
QOS (preempt/qos). For each waiting job

    P = w_age · A + w_fair_share · F + w_size · J + w_class · Q + priority

with A = min(seconds since the submit / max_age_s, 1), F the fair-share factor of its owner
(`core/sharing/fair_shares.py`), J = its GPUs / the cluster's, Q = its class's priority / the
largest, and `priority` what its user says (−nice). The larger P, the earlier. P is worked out anew
in each decision.

Jobs start from the head of this order; what happens behind a head that does not fit, `behind`
says. A job of a class that may preempt others suspends running jobs of these classes: those with
the smallest P first, of equal ones those that started last, and no more than it needs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from dlsched.core.allocation import Refused
from dlsched.core.arrays import Bools, Floats
from dlsched.core.cluster.description import Cluster
from dlsched.core.cluster.occupancy import Placement
from dlsched.core.cluster.site_rules import Level, PriorityClass
from dlsched.core.context import RoundContext
from dlsched.core.errors import PolicyFailed
from dlsched.core.options import option
from dlsched.core.scheduling import SchedulingPolicy
from dlsched.core.sharing.fair_shares import fair_shares
from dlsched.core.units import Units
from dlsched.core.walk.walk import Walk
from dlsched.policies.scheduling.backfill import backfill, pools_in_order

DAY_S = 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MultifactorOptions:
    """Multifactor priority, as Slurm's."""

    age: float = option(1000.0, "points of a job that has waited `max_age_s`", low=0.0)
    max_age_s: float = option(7 * DAY_S, "seconds after which age grows no more", low=1.0)
    fair_share: float = option(10_000.0, "points of a job whose owner has used nothing", low=0.0)
    half_life_s: float | None = option(
        None, "seconds after which usage counts half; none: the cluster's (7 days)", low=1.0
    )
    level: Literal["account", "vc", "user"] | None = option(
        None, "users share within account or vc, or all together; none: the cluster's (account)"
    )
    size: float = option(100.0, "points of a job on all GPUs", low=0.0)
    favours: Literal["large", "small"] = option("large", "which jobs get the points of size")
    priority_class: float = option(
        10_000.0, "points of a job in the class with the largest priority", low=0.0
    )
    behind: Literal["backfill", "skip", "stop"] = option(
        "backfill",
        "behind a job that does not fit: start what does not delay it, start what fits, or nothing",
    )


class Multifactor(SchedulingPolicy[MultifactorOptions]):
    """Jobs by the sum of their factors; classes may preempt others."""

    name = "multifactor"
    summary = "age, fair share, size, class and nice in one sum (Slurm's priority/multifactor)"
    preemptive = True
    at_limits = "tries"
    weighs_usage = True

    def half_life_s(self, cluster: Cluster) -> float:
        """That of the options, else the cluster's."""
        return self.options.half_life_s or cluster.rules.half_life_s

    def allocate(self, units: Units, ctx: RoundContext, walk: Walk) -> None:
        """Start the waiting jobs in order; heads may preempt where their class may."""
        everything = Units(ctx.table, ctx.active, ctx.now)
        terms = self.terms(everything, ctx)
        total = terms["total"]
        waits = ~everything.running
        order = np.lexsort((everything.submit_time, -total))
        order = order[waits[order]]
        queue = everything[order]
        walk.ranked(queue.rows, {name: values[order] for name, values in terms.items()})
        start = partial(_start, walk, _Rights(everything, total, ctx))
        if self.options.behind == "backfill":
            for pool in pools_in_order(queue, walk):
                backfill(queue[queue.pool == pool], pool, ctx, walk, start)
            return
        for row in queue.rows[walk.within_limits(queue.rows)].tolist():
            placed = start(row)
            if isinstance(placed, Refused):
                walk.refuse(row, placed)
                if self.options.behind == "stop" and placed.reason != "Quota":
                    break

    def terms(self, units: Units, ctx: RoundContext) -> dict[str, Floats]:
        """The points of each unit, by factor, and their sum as `total`.

        Raises:
            PolicyFailed: usage is not counted in this world.
        """
        chosen, table = self.options, ctx.table
        aged = np.clip((ctx.now - units.submit_time) / chosen.max_age_s, 0.0, 1.0)
        part = units.gang / max(ctx.occupancy.cluster.total_gpus, 1)
        large = part if chosen.favours == "large" else 1.0 - part
        nice = np.nan_to_num(table.priority[units.rows])
        terms = {
            "age": chosen.age * aged,
            "fair_share": chosen.fair_share * self._fair_share(units, ctx),
            "size": chosen.size * np.clip(large, 0.0, 1.0),
            "class": chosen.priority_class * _class_factor(units, ctx),
            "nice": nice,
        }
        total: Floats = np.sum(list(terms.values()), axis=0)
        return terms | {"total": total}

    def _fair_share(self, units: Units, ctx: RoundContext) -> Floats:
        """The factor of each unit's owner."""
        usage, cluster = ctx.table.usage, ctx.occupancy.cluster
        if usage is None:
            raise PolicyFailed("the usage of owners is not counted in this world")
        here = np.zeros(len(usage.owners), np.bool_)
        here[units.owner] = True
        level: Level | None = self.options.level
        shares = fair_shares(
            cluster.rules, cluster.vcs, usage.owners, usage.as_of(ctx.now), here, level
        )
        factors: Floats = shares.factors[units.owner]
        return factors


def _class_factor(units: Units, ctx: RoundContext) -> Floats:
    """The priority of each unit's class over the largest one."""
    classes = _classes(ctx)
    by_code = np.array([each.priority for each in classes] + [0.0])  # the last: no class
    largest = max((abs(each.priority) for each in ctx.occupancy.cluster.rules.classes), default=0.0)
    factors: Floats = by_code[units.priority_class] / (largest or 1.0)
    return factors


def _classes(ctx: RoundContext) -> list[PriorityClass]:
    """The classes by their codes in the table."""
    known = {each.name: each for each in ctx.occupancy.cluster.rules.classes}
    names = ctx.table.names["priority_class"]
    return [known.get(name) or PriorityClass(name=name) for name in names]


class _Rights:
    """Which running rows a waiting row may preempt."""

    def __init__(self, units: Units, total: Floats, ctx: RoundContext) -> None:
        self._ctx = ctx
        self._classes = _classes(ctx)
        self._code_of = {each.name: code for code, each in enumerate(self._classes)}
        self._units = units
        self._order = np.lexsort((-ctx.table.since[units.rows], total))

    def victims(self, row: int) -> list[int]:
        """Running rows that have to give way to a row, in the order in which they do."""
        code = self._ctx.table.priority_class.item(row)
        names = self._classes[code].preempts if code >= 0 else ()
        codes = [self._code_of[name] for name in names if name in self._code_of]
        if not codes:
            return []
        units = self._units
        may: Bools = units.running & np.isin(units.priority_class, codes)
        found: list[int] = units.rows[self._order[may[self._order]]].tolist()
        return found


def _start(walk: Walk, rights: _Rights, row: int) -> Placement | Refused:
    """Start a row, if need be on GPUs of rows that it may preempt."""
    placed = walk.place(row)
    if not isinstance(placed, Refused) or placed.reason == "Quota" or not walk.may_preempt:
        return placed
    nodes = walk.ctx.pools.nodes[walk.table.pool.item(row)]
    mark, gone = walk.mark(), []
    for victim in rights.victims(row):
        if not walk.is_victim(victim, nodes):
            continue
        walk.suspend(victim)
        gone.append(victim)
        again = walk.place(row)
        if not isinstance(again, Refused):
            _give_back(walk, gone)
            return again
    walk.rollback(mark)
    return placed


def _give_back(walk: Walk, gone: list[int]) -> None:
    """Rows whose own GPUs are still free were suspended in vain, and go on."""
    for victim in gone:
        if walk.is_free(walk.suspended[victim]):
            walk.place(victim)
