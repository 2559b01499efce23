"""What policies may believe of speeds: one handle, however much or little is known.

A rate is in steps of the job's own per second, at its own global batch, so that rates of different
jobs compare as times only. A policy asks by GPU type, by number of GPUs, or beside a partner. What
is not known is 1, 0 or NaN, as each method says, so that a policy need not ask first. Where it
adapts batch sizes itself, `goodput` has the fitted models; where it plans whole trainings, `epochs`
has the epochs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dlsched.core.arrays import Floats, Ints, Rows
from dlsched.core.speed.interference import NoInterference, TablePairs
from dlsched.core.speed.truth import PerformanceModel, Speeds
from dlsched.core.units import Units, UnitTable

if TYPE_CHECKING:
    from dlsched.core.cluster.occupancy import Occupancy, Placement
    from dlsched.core.goodput.belief import GoodputBelief
    from dlsched.core.speed.epochs import Epochs
    from dlsched.core.speed.interference import Interference
    from dlsched.core.speed.scaling import Scaling
    from dlsched.core.speed.sensitivity import HostSpeeds


@dataclass(frozen=True, slots=True, kw_only=True)
class Belief:
    """What is believed of how fast units run.

    Attributes:
        by_type: rates by GPU type, alone and beside a partner; None: nothing is known.
        by_count: rates by number of GPUs, in the fewest nodes; None: nothing is known.
        sharing: how fast units on the same GPUs are, relative to alone; None: as `by_type` has it
            of pairs.
        goodput: fitted models of trainings, and their batch sizes; None: there are none.
        epochs: how trainings go on, epoch by epoch; None: nothing is known.
        by_host: what units gain by processors and memory of their nodes; None: nothing is known.
    """

    by_type: Speeds | None = None
    by_count: Scaling | None = None
    sharing: Interference | None = None
    goodput: GoodputBelief | None = None
    epochs: Epochs | None = None
    by_host: HostSpeeds | None = None

    def rate(self, rows: Rows, gpu_types: Sequence[str], count: Ints) -> Floats:
        """Steps per second of rows that have their GPUs to themselves, [row, type].

        `count` is the GPUs of each row. 0 where a row cannot run; 1 everywhere where nothing is
        known of types.
        """
        if self.by_type is None:
            return np.ones((len(rows), len(gpu_types)))
        return self.by_type.alone(rows, count, gpu_types)

    def rate_in_pairs(
        self, rows: Rows, partners: Rows, gpu_types: Sequence[str], count: Ints
    ) -> Floats:
        """Steps per second of rows and of partners on the same GPUs, [pair, type, row or partner].

        0 where two do not fit together, or where that is not known.

        Args:
            rows: the units.
            partners: one of each row.
            gpu_types: in the order of the columns.
            count: GPUs of each pair.
        """
        if self.by_type is not None:
            return self.by_type.together(rows, partners, count, gpu_types)
        found = np.zeros((len(rows), len(gpu_types), 2))
        if self.sharing is not None:  # of jobs that do one step a second alone
            pairs = zip(rows.tolist(), partners.tolist(), count.tolist(), strict=True)
            for place, (row, partner, gpus) in enumerate(pairs):
                for column, name in enumerate(gpu_types):
                    found[place, column] = self.together((row, partner), name, gpus)
        return np.nan_to_num(found, nan=0.0)

    def together(
        self, rows: Sequence[int], gpu_type: str, gpus: int, limits: Floats | None = None
    ) -> Floats:
        """Speeds of units on the very same GPUs, each relative to its speed alone.

        0 where they do not fit together, NaN where it is not known: such a group is not formed.

        Args:
            rows: the units, any number of them; of two alike, the one that came last is first.
            gpu_type: of the GPUs.
            gpus: how many each of them has.
            limits: the part of the time for which each may use the GPUs; None: all of it.
        """
        if limits is None:
            limits = np.ones(len(rows))
        if self.sharing is not None:
            return self.sharing.relative(rows, limits, gpu_type, gpus)
        if self.by_type is not None:
            return TablePairs(self.by_type).relative(rows, limits, gpu_type, gpus)
        return limits if len(rows) == 1 else np.full(len(rows), np.nan)

    @property
    def most_together(self) -> float:
        """Units on the same GPUs of which it may be known how fast they are."""
        return math.inf if self.sharing is None else self.sharing.most_together

    @property
    def knows_pairs(self) -> bool:
        """Is anything known of how fast two units on the same GPUs are?"""
        return self.by_type is not None or self.sharing is not None

    @property
    def partners_are_alike(self) -> bool:
        """Is it no matter, as far as is known, beside which others a unit runs?"""
        return self.sharing is None or isinstance(self.sharing, NoInterference)

    def rate_by_count(self, rows: Rows, most: int) -> Floats:
        """Steps per second on 1 to `most` GPUs, [row, GPUs - 1]; NaN where it is not known."""
        if self.by_count is None:
            return np.full((len(rows), most), np.nan)
        return self.by_count.rates(rows, most)

    def step_s(self, row: int, count: int) -> float:
        """Seconds of a step of one row on so many GPUs; NaN where it is not known."""
        return math.nan if self.by_count is None else self.by_count.step(row, count)

    def steps_left(self, units: Units) -> Floats:
        """Steps until each unit is done; NaN where it is not known."""
        if self.by_count is None:
            return np.full(len(units), np.nan)
        return self.by_count.steps_left(units)

    def steps_per_work(self, rows: Rows) -> Floats:
        """Steps in one unit of the work that the unit table counts; 1 where it is not known."""
        return np.ones(len(rows)) if self.by_type is None else self.by_type.steps_per_work(rows)

    def version(self, rows: Rows) -> int:
        """Grows when rates by number of GPUs change; 0 where they never do."""
        return 0 if self.by_count is None else self.by_count.version(rows)


NOTHING_KNOWN = Belief()


class AsBelieved(PerformanceModel):
    """A belief taken for the truth: what would become of a plan?

    Work is in seconds on the gang that was asked for, on the fastest type that is known. A gang
    over several types is as fast as on the slowest. A row beside another is as fast as the pair is
    known to be, or as if alone. Where a row is believed not to run, but does, the belief is wrong:
    it runs as elsewhere.
    """

    def __init__(self, belief: Belief) -> None:
        """Run as is believed; what is not known makes no difference."""
        self._belief = belief
        self._known: dict[tuple[int, tuple[int, ...], tuple[int, ...]], float] = {}

    def rate(
        self,
        row: int,
        placement: Placement,
        units: UnitTable,
        occupancy: Occupancy,
        partners: tuple[int, ...] = (),
    ) -> float:
        """Work per second."""
        gpus, gang = placement.gpus, units.gang.item(row)
        speedup = 1.0
        if gpus != gang:
            ratio = self._belief.step_s(row, gang) / self._belief.step_s(row, gpus)
            speedup = ratio if math.isfinite(ratio) and ratio > 0 else 1.0
        if self._belief.by_type is None:
            return speedup
        types = tuple(sorted({int(occupancy.type_of[node]) for node in placement.nodes}))
        key = row, types, partners
        rate = self._known.get(key)
        if rate is None:
            names = [occupancy.cluster.gpu_types[code] for code in types]
            rate = self._known[key] = self._by_type(row, gang, names, partners)
        return rate * speedup

    def _by_type(
        self, row: int, gang: int, types: Sequence[str], partners: tuple[int, ...]
    ) -> float:
        rows, count = np.array([row]), np.array([gang])
        steps = float(self._belief.rate(rows, types, count).min())
        if len(partners) == 1:
            both = self._belief.rate_in_pairs(rows, np.array(partners), types, count)
            beside = float(both[0, :, 0].min())
            steps = beside if beside > 0 else steps
        rate = steps / float(self._belief.steps_per_work(rows)[0])
        return rate if rate > 0 else 1.0
