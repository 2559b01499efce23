"""Shortest first, in its five senses; the literature calls all of them "SJF", so names are full.

The preemptive ones are those of Tiresias' simulator (NSDI 2019):

* `sjf`: shortest predicted duration first, non-preemptive; the first misfit ends the pass.
* `qssf`: least predicted time × GPUs first, non-preemptive (Helios).
* `sjf-gpu`: fewest GPUs first, preemptive (Tiresias' "sjf").
* `srtf`: least predicted remaining time first, preemptive (Tiresias' "shortest").
* `srsf`: least remaining time × GPUs first, preemptive (Tiresias' "shortest-gpu").

The preemptive ones start from an empty cluster: they take jobs that fit in order and skip the
others. Equal keys keep the order of the previous decision (`ties=persistent`) or of admission
(`ties=submit`, Blox). Durations are predictions in seconds (`--estimate`); a job that has outrun
its prediction has 0 left, or is charged for that (`overdue`).
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np

from dlsched.core.allocation import Ranking
from dlsched.core.arrays import Floats, Rows
from dlsched.core.context import RoundContext
from dlsched.core.options import option
from dlsched.core.scheduling import SchedulingPolicy
from dlsched.core.units import Units, UnitTable
from dlsched.core.walk.walk import Walk
from dlsched.policies.scheduling.key_order import KeyOptions, KeyOrder
from dlsched.policies.scheduling.ordering import PersistentOrder, TwoLists, order_by

LAST_S = 1e12  # what a job has left that goes behind all others


@dataclass(frozen=True, slots=True, kw_only=True)
class SjfOptions:
    """Shortest predicted duration first."""

    misfit: Literal["stop", "skip"] = option(
        "stop", "what a job that does not fit means for the jobs behind it"
    )


class Sjf(SchedulingPolicy[SjfOptions]):
    """Among waiting jobs, start the shortest while it fits."""

    name = "sjf"
    summary = "shortest predicted duration first, non-preemptive"
    needs = frozenset({"predicted_work"})
    rounds_fill = "always"

    def __init__(self, options: SjfOptions) -> None:
        super().__init__(options)
        self.fills = options.misfit

    def fill_key(self, row: int, table: UnitTable) -> float:
        """Its predicted duration."""
        return table.predicted_work.item(row)

    def rank(self, units: Units, ctx: RoundContext) -> Ranking:
        """By predicted duration; ties in order of admission."""
        order = order_by(units.predicted_work)
        return Ranking(order=order, misfit=self.options.misfit, stable_until=np.inf)


@dataclass(frozen=True, slots=True, kw_only=True)
class QssfOptions(SjfOptions):
    """Least predicted service first."""

    newest: Literal["ranked", "by-size"] = option(
        "ranked", "a queue of nothing but jobs that arrived just now: by service, or by GPUs alone"
    )


class Qssf(SchedulingPolicy[QssfOptions]):
    """Among waiting jobs, start the one with the least predicted GPU time while it fits.

    Source: Helios (SC 2021), "quasi-shortest-service-first", and its simulator.
    """

    name = "qssf"
    summary = "least predicted GPU time first, non-preemptive (Helios)"
    needs = frozenset({"predicted_work"})

    def __init__(self, options: QssfOptions) -> None:
        super().__init__(options)
        self.fills = options.misfit if options.newest == "ranked" else None
        self._previous = PersistentOrder()
        self.memories = (self._previous,)

    def fill_key(self, row: int, table: UnitTable) -> tuple[float, ...]:
        """Its predicted GPU-seconds, its GPUs, and its place in the previous order."""
        gang = table.gang.item(row)
        return table.predicted_work.item(row) * gang, gang, self._previous.place(row)

    def rank(self, units: Units, ctx: RoundContext) -> Ranking:
        """By predicted GPU-seconds, then by GPUs; ties as in the previous order."""
        service = units.predicted_work * units.gang
        is_unranked = self.options.newest == "by-size" and bool(
            (units.admitted_at == ctx.now).all()
        )
        if is_unranked:
            service = np.zeros(len(units))
        _, key = np.unique(np.stack([service, units.gang]), axis=1, return_inverse=True)
        return Ranking(
            order=self._previous.sort(units, key.astype(np.float64)),
            misfit=self.options.misfit,
            stable_until=-np.inf if is_unranked else np.inf,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortestOptions(KeyOptions):
    """The preemptive orders."""

    ties: Literal["persistent", "submit", "lists"] = option(
        "persistent",
        "order of equal keys: that of the previous decision, of admission, or of the last move "
        "between queue and GPUs, the queue first",
    )
    charge_restart: bool = option(
        False, "add the restart overhead to the remaining time of jobs that do not run"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RemainingOptions(ShortestOptions):
    """The preemptive orders by what is predicted to be left."""

    overdue: Literal["trusted", "charged", "last"] = option(
        "trusted",
        "a job that has had GPUs for longer than it was predicted to need: has 0 left and stays "
        "first (trusted), has as much left as it is over (charged), or goes behind all that are "
        "not (last)",
    )


R = TypeVar("R", bound=ShortestOptions)


class Shortest(KeyOrder[R]):
    """The common part of the preemptive orders."""

    needs = frozenset({"predicted_work"})

    def __init__(self, options: R) -> None:
        super().__init__(options)
        if options.charge_restart:
            self.fills = None
        if options.ties != "submit":
            self.rounds_fill = None
        self._previous, self._lists = PersistentOrder(), TwoLists()
        self.memories = (self._classes, self._previous, self._lists)

    def allocate(self, units: Units, ctx: RoundContext, walk: Walk) -> None:
        """As in every order by a key; then the lists are as the decision leaves them."""
        super().allocate(units, ctx, walk)
        if self.options.ties == "lists":
            self._lists.moved([*walk.suspended, *walk.launched])

    @abstractmethod
    def waiting_key(self, row: int, table: UnitTable) -> float:
        """The sort key of one row while it waits."""

    def fill_key(self, row: int, table: UnitTable) -> tuple[float, float]:
        """Its key, then its place in the previous order."""
        place = self._previous.place(row) if self.options.ties == "persistent" else 0.0
        return self.waiting_key(row, table), place

    def _order(self, units: Units, priority: Floats | None, key: Floats, ctx: RoundContext) -> Rows:
        if self.options.ties == "lists" and priority is None:
            base = self._lists.order(units, running_first=False)
            return base[np.argsort(key[base], kind="stable")]
        if self.options.ties == "persistent" and priority is None:
            return self._previous.sort(units, key, remember=ctx.mode == "full")
        return super()._order(units, priority, key, ctx)


class ByRemaining(Shortest[RemainingOptions]):
    """The orders by predicted time left."""

    def allocate(self, units: Units, ctx: RoundContext, walk: Walk) -> None:
        """As the others; a job that passes its prediction changes its place at that moment."""
        super().allocate(units, ctx, walk)
        if self.options.overdue != "trusted" and len(units):
            left = (units.predicted_work - units.held_s)[walk.runs(units)]
            walk.wake_at(ctx.now + float(left[left > 0].min(initial=np.inf)))
            walk.stable_until(-np.inf)

    def _remaining(self, units: Units, ctx: RoundContext) -> tuple[Floats, Floats]:
        """Predicted seconds left of each unit, and their growth per second while it runs."""
        left = units.remaining_work
        if self.options.charge_restart:
            left = left + np.where(units.running, 0.0, ctx.restart_overhead)
        growth = np.full(len(units), -1.0)
        if self.options.overdue != "trusted":
            over = units.held_s - units.predicted_work
            left = np.where(over > 0, self._of_overdue(over), left)
            growth[over > 0] = 1.0
        return left, growth

    def _left(self, row: int, table: UnitTable) -> float:
        """The same of one row that waits."""
        over = table.held_s.item(row) - table.predicted_work.item(row)
        if self.options.overdue != "trusted" and over > 0:
            return float(self._of_overdue(np.float64(over)))
        return max(table.predicted_work.item(row) - table.executed.item(row), 0.0)

    def _of_overdue(self, over: Floats | np.float64) -> Floats | np.float64:
        return over + (LAST_S if self.options.overdue == "last" else 0.0)


class Srtf(ByRemaining):
    """Least remaining time first."""

    name = "srtf"
    summary = "least predicted remaining time first, preemptive (Tiresias' 'shortest')"

    def key(self, units: Units, ctx: RoundContext) -> tuple[Floats, Floats]:
        """Remaining seconds, which shrink as the job runs."""
        return self._remaining(units, ctx)

    def waiting_key(self, row: int, table: UnitTable) -> float:
        """Remaining seconds."""
        return self._left(row, table)


class Srsf(ByRemaining):
    """Least remaining service (time × GPUs) first."""

    name = "srsf"
    summary = "least predicted remaining time x GPUs first, preemptive (Tiresias' 'shortest-gpu')"
    rests = False  # running keys shrink at different rates: ties depend on every decision

    def key(self, units: Units, ctx: RoundContext) -> tuple[Floats, Floats]:
        """Remaining GPU-seconds."""
        left, growth = self._remaining(units, ctx)
        return left * units.gang, growth * units.gang

    def waiting_key(self, row: int, table: UnitTable) -> float:
        """Remaining GPU-seconds."""
        return self._left(row, table) * table.gang.item(row)


class SjfGpu(Shortest[ShortestOptions]):
    """Fewest GPUs first."""

    name = "sjf-gpu"
    summary = "fewest GPUs first, preemptive (Tiresias' 'sjf')"
    needs = frozenset()

    def key(self, units: Units, ctx: RoundContext) -> tuple[Floats, Floats]:
        """The gang size, which never changes."""
        return units.gang.astype(np.float64), np.zeros(len(units))

    def waiting_key(self, row: int, table: UnitTable) -> float:
        """The gang size."""
        return float(table.gang.item(row))
