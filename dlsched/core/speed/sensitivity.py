"""How fast jobs run with more or fewer processors and memory of their nodes.

A job that reads and prepares its data on the processors may be far slower with few of them, and one
whose data set does not fit into memory reads it again from storage. A profile has the speed of one
model by processors and memory for each GPU, relative to that with the *proportional share*: what a
GPU has of its node if all GPUs get equally much (Synergy, OSDI 2022).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from dlsched.core.allocation import HostShare
from dlsched.core.arrays import Floats, Ints, Rows, kinds_of
from dlsched.core.cluster.description import Cluster
from dlsched.core.cluster.occupancy import Occupancy, Placement
from dlsched.core.speed.truth import PerformanceModel
from dlsched.core.units import UnitTable

ENOUGH = 0.99  # of its greatest speed: a job with this needs no more


def proportional_share(cluster: Cluster) -> HostShare:
    """What a GPU has of its node; of nodes that differ, the least. 0 where it is not known.

    A share that is not known is not counted.
    """
    used = cluster.gpus > 0
    with np.errstate(invalid="ignore"):
        each = [values[used] / cluster.gpus[used] for values in (cluster.cpus, cluster.memory_gb)]
    cpus, memory = (0.0 if np.isnan(v).all() else float(np.nanmin(v)) for v in each)
    return HostShare(cpus, memory)


@dataclass(frozen=True)
class HostProfile:
    """The speed of one model by what each of its GPUs has of its node.

    Attributes:
        cpus: processors for each GPU, ascending.
        memory_gb: 10^9 bytes for each GPU, ascending.
        gain: speed, [processors, memory]; of any unit.
        step_s: seconds of a step where `gain` is 1; NaN where it is not known.
        best: with more than this a job is no faster; None: to be read off `gain`.
    """

    cpus: Floats
    memory_gb: Floats
    gain: Floats
    step_s: float = math.nan
    best: HostShare | None = None

    def at(self, share: HostShare) -> float:
        """Speed with a share, linear between what was measured.

        Beyond the most that was measured more is no use; below the fewest processors that were
        measured, speed is in proportion to them. What is not counted (0) is there in plenty.
        """
        cpus, memory = (s or math.inf for s in share)
        by_cpus = [float(np.interp(memory, self.memory_gb, row)) for row in self.gain]
        few = min(cpus / self.cpus.item(0), 1.0)
        return few * float(np.interp(cpus, self.cpus, by_cpus))

    @cached_property
    def ideal(self) -> HostShare:
        """The fewest processors, and with them the least memory, with nearly its full speed."""
        if self.best is not None:
            return self.best
        top = ENOUGH * self.gain.max()
        row = int(np.argmax(self.gain.max(axis=1) >= top))
        column = int(np.argmax(self.gain[row] >= top))
        return HostShare(self.cpus.item(row), self.memory_gb.item(column))

    def relative_to(self, share: HostShare) -> HostProfile:
        """The same profile with a gain of 1 at a share."""
        base = self.at(share)
        return replace(self, gain=self.gain / base, step_s=self.step_s / base)


class HostSpeeds:
    """What rows gain by processors and memory: part of a belief, and of the truth of a replay.

    Attributes:
        proportional: the share with which a row's gain is 1.
        steps_per_work: steps in one unit of the work that the table counts, where work is steps;
            None: work is seconds with the proportional share.
    """

    def __init__(
        self,
        models: Sequence[str],
        profiles: Mapping[str, HostProfile],
        proportional: HostShare,
        *,
        work_per_step: float | None = None,
    ) -> None:
        """Look up what each row is.

        Args:
            models: by row of the unit table; one without a profile is equally fast with any share.
            profiles: by model.
            proportional: see above.
            work_per_step: work in one step, where the work that the table counts is steps.
        """
        names = sorted(profiles)
        codes = {name: code for code, name in enumerate(names)}
        self.proportional = proportional
        self._profiles = [profiles[name].relative_to(proportional) for name in names]
        self._codes: Ints = np.array([codes.get(model, -1) for model in models], np.int64)
        self._step_s = np.array([each.step_s for each in self._profiles] + [math.nan])
        self._ideal = np.array([*(each.ideal for each in self._profiles), (math.nan, math.nan)])
        self._known: dict[tuple[int, HostShare], float] = {}
        self.work_per_step = work_per_step

    def ideal(self, rows: Rows) -> Floats:
        """With how much rows have nearly their full speed, [row, (processors, GB)]; NaN unknown."""
        found: Floats = self._ideal[self._codes[rows]]
        return found

    def gains(self, rows: Rows, shares: Floats) -> Floats:
        """Speeds of rows with shares, over those with the proportional one; 1 where unknown.

        Args:
            rows: the units.
            shares: of each, [row, (processors, GB)] for each GPU.
        """
        first, kind = kinds_of(self._codes[rows], *shares.T)
        codes, distinct = self._codes[rows[first]].tolist(), shares[first].tolist()
        found = [self._gain(code, HostShare(*s)) for code, s in zip(codes, distinct, strict=True)]
        return np.array(found, np.float64)[kind]

    def _gain(self, code: int, share: HostShare) -> float:
        if code < 0:
            return 1.0
        known = self._known.get((code, share))
        if known is None:
            known = self._known[code, share] = self._profiles[code].at(share)
        return known

    def step_s(self, rows: Rows) -> Floats:
        """Seconds of a step with the proportional share; NaN where it is not known."""
        found: Floats = self._step_s[self._codes[rows]]
        return found

    def seconds(self, rows: Rows, work: Floats) -> Floats:
        """How long work takes with the proportional share, in seconds."""
        if self.work_per_step is None:
            return work
        return work / self.work_per_step * self.step_s(rows)

    def menu(self, row: int) -> tuple[list[HostShare], Floats]:
        """The shares that were measured of a row's model, and the gain with each; none unknown."""
        code = self._codes.item(row)
        if code < 0:
            return [], np.zeros(0)
        profile = self._profiles[code]
        cpus, memory = profile.cpus.tolist(), profile.memory_gb.tolist()
        return [HostShare(c, m) for c in cpus for m in memory], profile.gain.ravel()


class SensitiveSpeed(PerformanceModel):
    """A performance model in which processors and memory matter.

    A row that is given nothing has what it asks for; one that asks for nothing has its
    proportional share.
    """

    def __init__(
        self, inside: PerformanceModel, host: HostSpeeds, *, round_s: float | None = None
    ) -> None:
        """Scale the rates of another model.

        Args:
            inside: rates with the proportional share.
            host: what rows gain.
            round_s: rows do whole steps only in rounds of so many seconds, and `host` counts work
                in steps; None: any part of a step counts.

        Raises:
            BadInput: whole steps of rows whose seconds a step are not known.
        """
        self._inside, self._host, self._round_s = inside, host, round_s

    def rate(
        self,
        row: int,
        placement: Placement,
        units: UnitTable,
        occupancy: Occupancy,
        partners: tuple[int, ...] = (),
    ) -> float:
        """Work per second."""
        rate = self._inside.rate(row, placement, units, occupancy, partners)
        return self._with_shares(np.array([row]), np.array([rate]), units).item(0)

    def rates(
        self, placements: Mapping[int, Placement], units: UnitTable, occupancy: Occupancy
    ) -> Floats:
        """Work per second of units that have their GPUs for themselves."""
        rows = np.fromiter(placements, np.int64, len(placements))
        return self._with_shares(rows, self._inside.rates(placements, units, occupancy), units)

    def _with_shares(self, rows: Rows, rates: Floats, units: UnitTable) -> Floats:
        """The rates of rows with what they have, from those with the proportional share."""
        gains = self._host.gains(rows, given_shares(units, rows, self._host.proportional))
        if self._round_s is None:
            return rates * gains
        steps_s = self._host.step_s(rows) / (gains * rates)
        per_round: Floats = np.floor(self._round_s / steps_s)
        return per_round * (self._host.work_per_step or 1.0) / self._round_s


def given_shares(units: UnitTable, rows: Rows, proportional: HostShare) -> Floats:
    """What rows have for each GPU, [row, (processors, GB)].

    As given, else as asked, else the proportional share.
    """
    given = np.stack([units.gpu_cpus[rows], units.gpu_memory_gb[rows]], axis=1)
    asked = np.stack([units.cpus[rows], units.memory_gb[rows]], axis=1)
    asked /= np.maximum(units.gang[rows], 1)[:, None]
    has = np.where(np.isnan(given), asked, given)
    found: Floats = np.where(np.isnan(has), np.array(proportional), has)
    return found
