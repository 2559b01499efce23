"""The policy `optimus`: marginal gain in every round, for trainings with all-reduce.

Each round every job gets its fewest GPUs in order of submission; then one GPU after another goes
to the job that it saves most seconds, (t(K) - t(K+1)) x what is left. With `oracle=true` t and
what is left are the world's word (Optimus+Oracle, as Pollux evaluates it). Else t is fitted to what
the job has been seen to do, as `a/K + b + d·K`, and what is left is predicted (`--estimate`,
`loss-curve` being Optimus' own). A job of which little is known grows to twice as many GPUs a round
as it was ever seen on, so that there is something to fit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dlsched.core.arrays import Floats, Ints, Rows
from dlsched.core.context import RoundContext
from dlsched.core.errors import BadInput
from dlsched.core.goodput.scaling import most_gpus
from dlsched.core.options import option
from dlsched.core.scaling import Scaling
from dlsched.core.scheduling import SchedulingPolicy
from dlsched.core.units import Units
from dlsched.core.walk import Walk
from dlsched.policies.scheduling.optimus.marginal import divide_gpus
from dlsched.policies.scheduling.optimus.samples import SpeedSamples, told_steps
from dlsched.policies.scheduling.optimus.speed import ring_step_s
from dlsched.policies.scheduling.sizes import bounds_of, capacity, resize, share_by_pool

__all__ = ["Optimus"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimusOptions:
    """Marginal gain."""

    oracle: bool = option(
        False, "take the world's word for speeds and steps left instead of fitting speeds"
    )
    samples: int = option(
        4, "numbers of GPUs on which a job is tried before its speed is fitted", low=2
    )


class Optimus(SchedulingPolicy[OptimusOptions]):
    """Who gains most from one more GPU gets it."""

    name = "optimus"
    summary = "elastic jobs: marginal gain by fitted speed (oracle=true: Optimus+Oracle)"
    Options: ClassVar[type[Any]] = OptimusOptions
    needs = frozenset({"predicted_work"})
    preemptive = True
    rests = False

    def __init__(self, options: OptimusOptions) -> None:
        super().__init__(options)
        self._samples = SpeedSamples(options.samples)

    @property
    def needs_scaling(self) -> bool:
        """Perfect knowledge must come from somewhere."""
        return self.options.oracle

    def allocate(self, units: Units, ctx: RoundContext, walk: Walk) -> None:
        """Divide the GPUs of each pool, and resize whoever has another number now."""
        if not self.options.oracle:
            self._samples.look(ctx.running, ctx.now)
        protected = ctx.protected(units)
        units = units[~protected] if protected.any() else units
        for pool, places in share_by_pool(units):
            some = units[places]
            if len(some):
                resize(walk, some, self._divide(some, capacity(some, walk, pool), ctx))

    def _divide(self, units: Units, gpus: int, ctx: RoundContext) -> Ints:
        if self.options.oracle and ctx.scaling is None:  # live, before any job has told its speed
            gangs = units.gang.tolist()
            sizes = divide_gpus(gangs, gangs, [0.0] * len(gangs), gpus, lambda job, size: 0.0)
            return np.array(sizes, np.int64)
        if self.options.oracle and ctx.scaling is not None:
            return _by_oracle(units, gpus, ctx.scaling)
        return self._by_samples(units, gpus, ctx)

    def _by_samples(self, units: Units, gpus: int, ctx: RoundContext) -> Ints:
        """By what was seen: who has not been tried enough grows first, in order of submission."""
        least, most = bounds_of(units, np.ones(len(units), np.bool_))
        if ctx.goodput is not None and "batch_size" in ctx.table.extra:
            most = np.minimum(most, most_gpus(ctx.goodput, ctx.table, units.rows))
        left = units.remaining_work
        if np.isnan(left).any():
            raise BadInput(
                f"the work that is left is not known of {int(np.isnan(left).sum())} of "
                f"{len(units)} jobs: estimate it (--estimate)"
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
        """What is left in the measure of the samples: predictions are meant on the asked gang."""
        found = left.copy()
        for place in np.flatnonzero(told_steps(units)).tolist():
            model = self._samples.model(int(units.rows[place]))
            if model is not None:
                found[place] /= float(ring_step_s(model, units.gang[[place]])[0])
        return found

    def state_dict(self) -> dict[str, Any]:
        """What jobs were seen to do."""
        return self._samples.state_dict()

    def load_state_dict(self, state: Any) -> None:
        """Go on seeing."""
        self._samples.load_state_dict(state)

    def renumber(self, old: Rows, finished_gone: int) -> None:
        """Samples follow their rows."""
        self._samples.renumber(old)


def _by_oracle(units: Units, gpus: int, scaling: Scaling) -> Ints:
    """By the world's word, asked for no more GPUs than a job comes to."""
    rows: list[int] = units.rows.tolist()
    least, most = bounds_of(units, np.ones(len(units), np.bool_))
    left = scaling.steps_left(units)
    few, many = least.tolist(), most.tolist()
    for place, row in enumerate(rows):
        first = scaling.step(row, few[place])
        if math.isnan(first):  # nobody knows how it scales
            few[place] = many[place] = units.gang.item(place)
        elif first == math.inf:
            few[place] = _first_size(scaling, row, few[place], many[place]) or gpus + 1

    def step(job: int, size: int) -> float:
        return scaling.step(rows[job], size)

    return np.array(divide_gpus(few, many, left.tolist(), gpus, step), np.int64)


def _first_size(scaling: Scaling, row: int, least: int, most: int) -> int:
    """The fewest GPUs on which a row runs; 0 when there are none."""
    sizes = range(least, most + 1)
    return next((size for size in sizes if math.isfinite(scaling.step(row, size))), 0)
