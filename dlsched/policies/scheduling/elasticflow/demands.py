"""What ElasticFlow asks of each unit: work left, deadline, and speeds by number of GPUs.

A unit's numbers of GPUs are the powers of two within its bounds, up to the one on which it is
fastest; a column `useful_gpus` of a trace says where that is instead. One without bounds, or of
unknown speed, has the number that it asked for.
"""

from __future__ import annotations

import numpy as np

from dlsched.core.arrays import Floats, Ints
from dlsched.core.context import RoundContext
from dlsched.core.units import Units
from dlsched.policies.scheduling.elasticflow.planning import Demand, Sizes
from dlsched.policies.scheduling.elasticflow.timeline import FOREVER
from dlsched.policies.scheduling.gang_sizes import bounds_of, has_known_scaling

ENDLESS_S = 1e9  # of work, where nothing is known of it


class Demands:
    """Makes demands of units; what is the same for many of them is made once."""

    def __init__(self, *, margin: float, beyond_useful: bool, restarts: bool) -> None:
        """Prepare.

        Args:
            margin: how many times its predicted work a unit is given.
            beyond_useful: may it have more GPUs than it is fastest on?
            restarts: do plans count what changes of its GPUs cost?
        """
        self._margin = margin
        self._beyond_useful = beyond_useful
        self._restarts = restarts
        self._sizes: dict[tuple[int, int, int, int, bytes], Sizes] = {}

    def of(self, units: Units, total: int, ctx: RoundContext, start: float) -> list[Demand]:
        """The demands of units, in their order.

        Args:
            units: the units.
            total: GPUs that they share.
            ctx: the round.
            start: when their plans begin [s].
        """
        most = max(int(units.table.max_gpus[units.rows].max(initial=1)), 1)
        rates = ctx.perf.rate_by_count(units.rows, min(most, total))
        known = has_known_scaling(rates)
        least, largest = bounds_of(units, known)
        steps = np.where(known, ctx.perf.steps_left(units), units.remaining_work)
        left = np.where(np.isnan(steps), ENDLESS_S, steps) * self._margin
        due = np.floor(units.submit_time + units.deadline - start)
        due = np.where(np.isnan(due), FOREVER, due)
        useful = self._useful(units)
        has = units.gpus_now
        restart = ctx.restart_overhead if self._restarts else 0.0
        pause = units.table.progress_from[units.rows] - start  # of a restart that goes on
        since = np.where(units.running & (pause > 0), restart - pause, np.inf)
        return [
            Demand(
                max(left.item(place), 1e-9),
                due.item(place),
                self._sizes_of(
                    least.item(place),
                    largest.item(place),
                    useful.item(place),
                    rates[place] if known[place] else None,
                    total,
                ),
                has.item(place),
                restart,
                since.item(place),
            )
            for place in range(len(units))
        ]

    @staticmethod
    def _useful(units: Units) -> Ints:
        """The most useful GPUs that a trace names; 0 where it says nothing."""
        if "useful_gpus" not in units.table.extra:
            return np.zeros(len(units), np.int64)
        named = np.asarray(units.extra("useful_gpus"), np.float64)
        return np.nan_to_num(named, nan=0.0).astype(np.int64)

    def _sizes_of(
        self, least: int, most: int, useful: int, rates: Floats | None, total: int
    ) -> Sizes:
        key = least, most, useful, total, b"" if rates is None else rates.tobytes()
        found = self._sizes.get(key)
        if found is None:
            found = self._sizes[key] = self._made(least, most, useful, rates, total)
        return found

    def _made(self, least: int, most: int, useful: int, rates: Floats | None, total: int) -> Sizes:
        if rates is None:
            return Sizes.of(np.array([most]), np.ones(1), total)
        gpus = 2 ** np.arange(int(min(most, total)).bit_length())
        gpus = gpus[(gpus >= least) & (gpus <= len(rates))]
        if not len(gpus) and least <= len(rates):
            gpus = np.array([least])
        speeds = np.nan_to_num(rates[gpus - 1], nan=0.0)
        if not self._beyond_useful and len(gpus):
            limit = useful or int(gpus[speeds.argmax()])
            gpus, speeds = gpus[gpus <= limit], speeds[gpus <= limit]
        return Sizes.of(gpus, speeds, total)
