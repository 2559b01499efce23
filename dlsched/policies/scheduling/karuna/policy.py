"""The policy `karuna`: the fewest GPUs that keep each deadline, the rest by multi-level queues.

Paper: see the package; the GPU form is ours. Inputs: deadline (a job without one is best effort),
predicted work, gang, and for elastic jobs the speed by number of GPUs; attained service where no
total is predicted. A job whose speed on other numbers is not known has its gang or nothing. How
many GPUs a deadline needs is asked anew in each round: a job that got more before needs less later.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dlsched.core.allocation import Refused
from dlsched.core.arrays import Bools, Floats, Ints
from dlsched.core.context import RoundContext
from dlsched.core.options import option
from dlsched.core.scheduling import SchedulingPolicy
from dlsched.core.units import Units
from dlsched.core.walk.walk import Walk
from dlsched.policies.scheduling.gang_sizes import (
    bounds_of,
    capacity,
    has_known_scaling,
    resize,
    share_by_pool,
)
from dlsched.policies.scheduling.karuna.just_enough import divide
from dlsched.policies.scheduling.karuna.queues import Sample, best_limits, queues_of

HOUR = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class KarunaOptions:
    """Just enough for deadlines."""

    beta: tuple[float, ...] = option(
        (HOUR, 4 * HOUR),
        "GPU-seconds in all between the queues of known jobs, ascending",
        low=0.0,
        ascending=True,
    )
    alpha: tuple[float, ...] = option(
        (HOUR, 4 * HOUR),
        "GPU-seconds attained at which an unknown job sinks, ascending",
        low=0.0,
        ascending=True,
    )
    sample: tuple[float, ...] = option(
        (),
        "GPU-seconds of past jobs (a file, one number a line); beta and alpha then follow from it",
        from_file=True,
    )
    queues: int = option(3, "how many queues follow from the sample", low=1, high=8)
    load: float = option(0.8, "the offered load for which they are made", low=0.0, high=0.99)
    margin: float = option(1.0, "how many times its predicted time a job is given", low=1.0)
    work_conserving: bool = option(
        True, "GPUs that are left make jobs with deadlines faster; false: they stay idle"
    )


class Karuna(SchedulingPolicy[KarunaOptions]):
    """Just enough GPUs for each deadline."""

    name = "karuna"
    summary = "deadlines: the fewest GPUs that keep them, the rest by multi-level queues"
    needs = frozenset({"predicted_work"})
    preemptive = True
    knows_deadlines = True
    rests = False

    def __init__(self, options: KarunaOptions) -> None:
        """Find the limits between the queues."""
        super().__init__(options)
        self._alpha, self._beta = options.alpha, options.beta
        past = [size for size in options.sample if size > 0]
        if past:
            sizes = Sample(past)
            rate = options.load / float(np.mean(past))
            self._alpha = self._beta = best_limits(sizes, rate, options.queues)[0]

    def allocate(self, units: Units, ctx: RoundContext, walk: Walk) -> None:
        """Divide the GPUs of each pool."""
        protected = ctx.protected(units)
        units = units[~protected] if protected.any() else units
        wake = np.inf
        for pool, places in share_by_pool(units):
            some = units[places]
            if len(some):
                wake = min(wake, self._share(some, pool, ctx, walk))
        walk.wake_at(wake)

    def _share(self, units: Units, pool: int, ctx: RoundContext, walk: Walk) -> float:
        """Divide one pool; returns when a deadline or a limit is reached next."""
        gpus = capacity(units, walk, pool)
        due_in = units.table.due_at(units.rows) - ctx.now
        total = units.predicted_work * units.gang
        attained, limits = units.attained, np.array([*self._alpha, np.inf])
        sinks = np.isnan(total)
        queue = np.where(sinks, queues_of(attained, self._alpha), queues_of(total, self._beta))
        found = divide(
            gpus,
            due_in=due_in,
            seconds=self._seconds(units, gpus, ctx),
            gang=units.gang,
            queue=queue,
            present=units.gpus_now,
            restart_s=ctx.restart_overhead,
            work_conserving=self.options.work_conserving,
        )
        resize(walk, units, found.sizes)
        self._say_why(units, found.demoted, found.sizes, walk)
        runs = walk.runs(units)
        sinking = sinks & runs & (queue <= len(self._alpha))
        next_limit = limits[np.where(sinking, queue, len(limits)) - 1]
        times = np.where(sinking, (next_limit - attained) / np.maximum(found.sizes, 1), np.inf)
        ahead = due_in[(due_in > 0) & ~runs]
        return ctx.now + min(float(times.min(initial=np.inf)), float(ahead.min(initial=np.inf)))

    def _seconds(self, units: Units, gpus: int, ctx: RoundContext) -> Floats:
        """Seconds until each job would be done on 1, 2, … GPUs; inf where it may not run."""
        most_of_all = int(max(units.gang.max(), units.table.max_gpus[units.rows].max()))
        width = max(min(most_of_all, gpus), 1)  # an adaptive job may have any number
        rates = ctx.perf.rate_by_count(units.rows, width)
        known = has_known_scaling(rates)
        rates[~known] = 1.0
        least, most = bounds_of(units, known)
        sizes: Ints = np.arange(1, width + 1)
        may: Bools = (sizes >= least[:, None]) & (sizes <= most[:, None]) & (rates > 0)
        left = np.where(known, ctx.perf.steps_left(units), units.remaining_work)
        work = np.broadcast_to((left * self.options.margin)[:, None], rates.shape)
        found: Floats = np.divide(work, rates, out=np.full(rates.shape, np.inf), where=may)
        return found

    def _say_why(self, units: Units, demoted: Bools, sizes: Ints, walk: Walk) -> None:
        """Note which deadlines were given up, and why their jobs wait."""
        for place in np.flatnonzero(np.isfinite(units.table.due_at(units.rows))).tolist():
            walk.output("demoted", int(units.rows[place]), float(demoted[place]))
        late = Refused("Deadline", "it cannot be kept with the GPUs there are; it waits as others")
        for place in np.flatnonzero(demoted & (sizes == 0)).tolist():
            walk.refuse(int(units.rows[place]), late)
