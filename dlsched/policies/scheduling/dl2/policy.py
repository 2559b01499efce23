"""The policy `dl2`: in every round a trained network says how many GPUs each elastic job has.

Peng, Bao, Chen, Wu, Meng, Lin, "DL2: A Deep Learning-driven Scheduler for Deep Learning Clusters",
IEEE TPDS 2021. A slot of the paper is a round. Every job gets its fewest GPUs in order of arrival,
where they fit; then the network gives one GPU after the other, as `window` has it. Between full
rounds, waiting jobs get their fewest GPUs. A job of unknown scaling has its gang or nothing.

Without a network the GPUs are shared equally, as by the teacher; so they are while the guard finds
that this would bring more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import numpy as np

from dlsched.core.arrays import Floats, Ints
from dlsched.core.context import RoundContext
from dlsched.core.options import NETWORK, option
from dlsched.core.scheduling import SchedulingPolicy
from dlsched.core.units import Units
from dlsched.core.walk.walk import Walk
from dlsched.policies.learning.network import Network
from dlsched.policies.scheduling.dl2.guard import Guard, Imagined
from dlsched.policies.scheduling.dl2.shares import equal_shares
from dlsched.policies.scheduling.dl2.window import Asked, Window, divided, window_of
from dlsched.policies.scheduling.gang_sizes import (
    bounds_of,
    capacity,
    has_known_scaling,
    resize,
    share_by_pool,
)

USUAL_ROUND_S = 60.0  # where every change is a round


@dataclass(frozen=True, slots=True, kw_only=True)
class Dl2Options:
    """Numbers of GPUs by a trained network."""

    model: Network | None = option(
        None,
        "a network of `dlsched train dl2`; none: GPUs are shared equally",
        from_file=NETWORK,
    )
    choose: Literal["drawn", "likeliest"] = option(
        "drawn", "draw actions by their probabilities, or take the likeliest each time"
    )
    guard: bool = option(True, "share equally while that would have brought more work done")


class Divides(Protocol):
    """Divides the GPUs of a round in the place of the policy, to learn from it."""

    def __call__(self, asked: Asked, gpus: int) -> Ints:
        """GPUs of each job."""
        ...


class _Known(NamedTuple):
    """What is known of units: parts of their work, and how much of it a round on k GPUs does."""

    done: Floats
    asked: Asked
    per_round: Floats


class Dl2(SchedulingPolicy[Dl2Options]):
    """GPUs are divided anew in every full round.

    Attributes:
        learning: divides in its place while a network is trained; None in ordinary runs.
    """

    name = "dl2"
    summary = "elastic jobs: numbers of GPUs by a trained network (-o model=FILE)"
    needs = frozenset({"predicted_work"})
    preemptive = True
    rests = False

    def __init__(self, options: Dl2Options) -> None:
        super().__init__(options)
        self._jobs = 0 if options.model is None else window_of(options.model)
        self._guard = Guard()
        self.memories = (self._guard,)
        self.learning: Divides | None = None

    def allocate(self, units: Units, ctx: RoundContext, walk: Walk) -> None:
        """Divide the GPUs of each pool; between rounds give waiting jobs their fewest."""
        units = units[np.lexsort((units.rows, units.submit_time))]
        if not walk.may_preempt:
            _start_waiting(units, ctx, walk)
            return
        free = ctx.protected(units)
        self._watch(units, ctx)
        units = units[~free] if free.any() else units
        for pool, places in share_by_pool(units):
            some = units[places]
            if not len(some):
                continue
            gpus = capacity(some, walk, pool)
            asked = _known(some, ctx).asked
            resize(walk, some, self._divide(asked, gpus, ctx.rng.random))

    def _divide(self, asked: Asked, gpus: int, chance: Callable[[], float]) -> Ints:
        if self.learning is not None:
            return self.learning(asked, gpus)
        model, guarded = self.options.model, self.options.guard and self._guard.prefers_teacher
        if model is None or guarded or gpus == 0:
            return equal_shares(asked.least, asked.most, gpus)
        window = Window(asked, gpus, self._jobs)
        divided(window, model, chance if self.options.choose == "drawn" else None)
        return window.sizes

    def _watch(self, units: Units, ctx: RoundContext) -> None:
        """Let the guard see what was done in the round before, and imagine what would have been."""
        if self.learning is not None or self.options.model is None or not self.options.guard:
            return
        before = _done(Units(ctx.table, self._guard.rows, ctx.now))
        known = _known(units, ctx)
        bounds = known.asked
        coming = {
            row: Imagined(
                bounds.left.item(place),
                bounds.least.item(place),
                known.per_round[place, : bounds.most.item(place) + 1].tolist(),
            )
            for place, row in enumerate(units.rows.tolist())
        }
        imagined = self._guard.imagine(ctx.occupancy.cluster.total_gpus, coming)
        self._guard.note(before, units.rows, known.done, imagined)


def _done(units: Units) -> Floats:
    """The part of each unit's work that is done; 0 where its work is not known."""
    total = units.table.predicted_work[units.rows]
    parts = np.divide(units.executed, total, out=np.zeros(len(units)), where=total > 0)
    return np.clip(parts, 0.0, 1.0)


def _known(units: Units, ctx: RoundContext) -> _Known:
    """What is known of units, in the units of the network."""
    gang = units.gang
    total_gpus = ctx.occupancy.cluster.total_gpus
    ceiling = np.minimum(units.table.max_gpus[units.rows], total_gpus)
    width = int(max(gang.max(initial=1), ceiling.max(initial=1)))
    rates = ctx.perf.rate_by_count(units.rows, width)
    known = has_known_scaling(rates)
    least, most = bounds_of(units, known)
    most = np.where(known, np.minimum(most, width), gang)
    slot_s = ctx.round_length or USUAL_ROUND_S
    done, left = _done(units), np.nan_to_num(units.remaining_work)
    places = np.arange(len(units))
    own = np.where(known, rates[places, gang - 1], 1.0)[:, None]
    speed = np.zeros((len(units), width + 1))
    speed[:, 1:] = np.where(known[:, None], np.nan_to_num(rates) / own, 0.0)
    speed[places, gang] = np.where(known, speed[places, gang], 1.0)
    asked = Asked(
        waited=(ctx.now - units.submit_time) / slot_s,
        left=1.0 - done,
        work_left=left / slot_s,
        least=least,
        most=most,
        speed=speed,
    )
    total = units.table.predicted_work[units.rows]
    part = np.divide(slot_s, total, out=np.ones(len(units)), where=total > 0)[:, None]
    return _Known(done, asked, speed * part)


def _start_waiting(units: Units, ctx: RoundContext, walk: Walk) -> None:
    """Waiting units get their fewest GPUs, in order of arrival, where these are free."""
    waiting = units[~units.running]
    for pool, places in share_by_pool(waiting):
        some = waiting[places]
        if len(some):
            least, _ = bounds_of(some, has_known_scaling(ctx.perf.rate_by_count(some.rows, 1)))
            resize(walk, some, equal_shares(least, least, walk.free_gpus(pool)))
