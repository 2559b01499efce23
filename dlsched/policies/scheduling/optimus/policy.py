"""The policy `optimus`: marginal gain in every round, for trainings with all-reduce.

In each round every job gets its fewest GPUs in order of submission; then one GPU after another goes
to the job that saves most seconds by it, (t(K) − t(K+1)) × steps left, with t(K) the seconds of a
step on K GPUs. With `oracle=true`, t and the steps left are true values from the world
(Optimus+Oracle, as Pollux evaluates it). Otherwise t = a/K + b + d·K is fitted to the speeds that
the job has shown, and the steps left are predicted (`--estimate`; `loss-curve` is Optimus' own). A
job with few samples grows to at most twice the GPUs of its largest sample in each round, which
gives samples to fit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dlsched.core.arrays import Floats, Ints
from dlsched.core.context import RoundContext
from dlsched.core.errors import BadInput, plural
from dlsched.core.goodput.scaling import most_gpus
from dlsched.core.options import option
from dlsched.core.scheduling import SchedulingPolicy
from dlsched.core.speed.belief import Belief
from dlsched.core.units import Units
from dlsched.core.walk.walk import Walk
from dlsched.policies.scheduling.gang_sizes import (
    bounds_of,
    capacity,
    resize,
    share_by_pool,
)
from dlsched.policies.scheduling.optimus.marginal_gain import divide_gpus
from dlsched.policies.scheduling.optimus.speed_models import ring_step_s
from dlsched.policies.scheduling.optimus.speed_samples import SpeedSamples, reports_steps


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimusOptions:
    """Marginal gain."""

    oracle: bool = option(False, "use the true speeds and steps left instead of fitted speeds")
    samples: int = option(
        4, "numbers of GPUs on which a job runs before its speed is fitted", low=2
    )


class Optimus(SchedulingPolicy[OptimusOptions]):
    """The next GPU goes to the job that gains most from it."""

    name = "optimus"
    summary = "elastic jobs: marginal gain by fitted speed (oracle=true: Optimus+Oracle)"
    needs = frozenset({"predicted_work"})
    preemptive = True
    rests = False

    def __init__(self, options: OptimusOptions) -> None:
        super().__init__(options)
        self._samples = SpeedSamples(options.samples)
        self.memories = (self._samples,)

    @property
    def needs_scaling(self) -> bool:
        """True with `oracle`, which needs the true speeds by number of GPUs."""
        return self.options.oracle

    def allocate(self, units: Units, ctx: RoundContext, walk: Walk) -> None:
        """Divide the GPUs of each pool, and resize the jobs with another number than before."""
        if not self.options.oracle:
            self._samples.sample(ctx.running, ctx.now)
        protected = ctx.protected(units)
        units = units[~protected] if protected.any() else units
        for pool, places in share_by_pool(units):
            some = units[places]
            if len(some):
                resize(walk, some, self._divide(some, capacity(some, walk, pool), ctx))

    def _divide(self, units: Units, gpus: int, ctx: RoundContext) -> Ints:
        if not self.options.oracle:
            return self._by_samples(units, gpus, ctx)
        if ctx.perf.by_count is None:  # live, before any job has reported its speed
            gangs = units.gang.tolist()
            sizes = divide_gpus(gangs, gangs, [0.0] * len(gangs), gpus, lambda job, size: 0.0)
            return np.array(sizes, np.int64)
        return _by_oracle(units, gpus, ctx.perf)

    def _by_samples(self, units: Units, gpus: int, ctx: RoundContext) -> Ints:
        """Divide by fitted speeds; jobs with too few samples grow first, in order of submission."""
        least, most = bounds_of(units, np.ones(len(units), np.bool_))
        if ctx.perf.goodput is not None and "batch_size" in ctx.table.extra:
            most = np.minimum(most, most_gpus(ctx.perf.goodput, ctx.table, units.rows))
        left = units.remaining_work
        if np.isnan(left).any():
            raise BadInput(
                f"the remaining work of {int(np.isnan(left).sum())} of "
                f"{plural(len(units), 'job')} is not known: estimate it (--estimate)"
            )
        rows = units.rows.tolist()
        models = [self._samples.model(row) for row in rows]
        left = self._in_steps(units, left)
        wanted = least.copy()
        room = gpus - int(least.sum())
        for place, row in enumerate(rows):
            if models[place] is None and room > 0:
                tries = min(self._samples.next_size(row), most.item(place))
                wanted[place] += min(max(tries - least.item(place), 0), room)
                room -= wanted.item(place) - least.item(place)
                most[place] = wanted[place]

        def step(job: int, size: int) -> float:
            model = models[job]
            return 0.0 if model is None else float(model[0] / size + model[1] + model[2] * size)

        sizes = divide_gpus(wanted.tolist(), most.tolist(), left.tolist(), gpus, step)
        return np.array(sizes, np.int64)

    def _in_steps(self, units: Units, left: Floats) -> Floats:
        """Remaining work in the unit of the samples; predictions are seconds on the asked gang."""
        found = left.copy()
        for place in np.flatnonzero(reports_steps(units)).tolist():
            model = self._samples.model(int(units.rows[place]))
            if model is not None:
                found[place] /= float(ring_step_s(model, units.gang[[place]])[0])
        return found


def _by_oracle(units: Units, gpus: int, perf: Belief) -> Ints:
    """Divide by the true speeds; these are asked for only as far as a job may grow."""
    rows: list[int] = units.rows.tolist()
    least, most = bounds_of(units, np.ones(len(units), np.bool_))
    left = perf.steps_left(units)
    few, many = least.tolist(), most.tolist()
    for place, row in enumerate(rows):
        first = perf.step_s(row, few[place])
        if math.isnan(first):  # its scaling is not known
            few[place] = many[place] = units.gang.item(place)
        elif first == math.inf:
            few[place] = _first_size(perf, row, few[place], many[place]) or gpus + 1

    def step(job: int, size: int) -> float:
        return perf.step_s(rows[job], size)

    return np.array(divide_gpus(few, many, left.tolist(), gpus, step), np.int64)


def _first_size(perf: Belief, row: int, least: int, most: int) -> int:
    """The fewest GPUs on which a row runs; 0 when there are none."""
    sizes = range(least, most + 1)
    return next((size for size in sizes if math.isfinite(perf.step_s(row, size))), 0)
