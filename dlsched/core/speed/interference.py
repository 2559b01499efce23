"""How fast units run that share GPUs, each relative to its speed alone.

One protocol, for any number of units and for both handles on speeds: what is true in a replay, and
what policies believe (`Belief.together`). Speeds are 1 for "as fast as alone", 0 for "they do not
fit together", and NaN for "not known". A group with a speed that is not known is never formed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from dlsched.core.arrays import Floats
from dlsched.core.cluster.occupancy import Occupancy, Placement
from dlsched.core.errors import BadInput
from dlsched.core.speed.throughput_table import TableSpeed
from dlsched.core.speed.truth import PerformanceModel, Speeds
from dlsched.core.units import UnitTable


class Interference(Protocol):
    """What becomes of the speeds of units on the very same GPUs.

    Attributes:
        name: the word for it on the command line.
        most_together: units on the same GPUs of which it knows at most.
    """

    name: str
    most_together: float

    def relative(self, rows: Sequence[int], limits: Floats, gpu_type: str, gpus: int) -> Floats:
        """The speed of each unit of a group, relative to its speed alone; NaN where not known.

        Args:
            rows: the units, at least one, the one first that came last.
            limits: the part of the time for which each may use the GPUs, above 0 up to 1.
            gpu_type: of the GPUs.
            gpus: how many GPUs each of them has.
        """
        ...


class NoInterference:
    """Each unit is as fast as alone, as far as it may use the GPUs."""

    name = "none"
    most_together = math.inf

    def relative(self, rows: Sequence[int], limits: Floats, gpu_type: str, gpus: int) -> Floats:
        """The limits."""
        return limits


class TablePairs:
    """Pairs from a table of steps per second; a larger group is not known."""

    name = "measured"
    most_together = 2.0

    def __init__(self, speeds: Speeds) -> None:
        """Take speeds alone and in pairs."""
        self._speeds = speeds

    def relative(self, rows: Sequence[int], limits: Floats, gpu_type: str, gpus: int) -> Floats:
        """As measured of pairs."""
        if len(rows) == 1:
            return limits
        if len(rows) > 2:
            return np.full(len(rows), np.nan)
        first, second = np.array([rows[0]]), np.array([rows[1]])
        count = np.array([gpus])
        pair = self._speeds.together(first, second, count, [gpu_type])[0, 0]
        alone = self._speeds.alone(np.array(rows), np.repeat(count, 2), [gpu_type])[:, 0]
        full = np.divide(pair, alone, out=np.full(2, np.nan), where=alone > 0)
        return limited(full, limits)


def limited(full: Floats, limits: Floats) -> Floats:
    """Relative speeds of a group whose units use the GPUs for a part of the time.

    A step that takes (1 + k) times as long beside others takes (1 + k·s) times as long where the
    others run for at most a part s of the time, and 1/p times that for a unit that may itself run
    for a part p (AntMan's model of a throttled job).

    Args:
        full: the speeds where each runs all the time.
        limits: the part of the time for which each may run.
    """
    if (limits == 1.0).all():
        return full
    with np.errstate(divide="ignore"):
        slower: Floats = 1.0 / full - 1.0
    found: Floats = limits / (1.0 + slower * of_others(limits))
    return found


def of_others(limits: Floats) -> Floats:
    """For each unit of a group the most of the time that any other may run; 0 for a single one."""
    if len(limits) == 1:
        return np.zeros(1)
    least, most = np.sort(limits)[-2:].tolist()
    found: Floats = np.where(limits == most, least, most)
    return found


class SharedSpeed(PerformanceModel):
    """The truth of units that share GPUs: as fast as alone, times what the others leave of it.

    A table of steps per second knows its pairs itself; it is asked directly where no unit is
    limited, so that its speeds stay the same to the last digit.

    Attributes:
        interference: what the others leave.
    """

    def __init__(
        self, alone: PerformanceModel, interference: Interference, jobs: Sequence[str]
    ) -> None:
        """Take the speeds alone, and the names of all units, for messages."""
        self._alone, self.interference, self._jobs = alone, interference, jobs
        self._knows_pairs = isinstance(alone, TableSpeed) and isinstance(interference, TablePairs)

    def rate(
        self,
        row: int,
        placement: Placement,
        units: UnitTable,
        occupancy: Occupancy,
        partners: tuple[int, ...] = (),
    ) -> float:
        """Work per second.

        Raises:
            BadInput: nothing is known of units that share these GPUs.
        """
        limit = units.gpu_limit.item(row)
        if not partners and limit == 1.0:
            return self._alone.rate(row, placement, units, occupancy)
        rows = (row, *partners)
        limits = units.gpu_limit[list(rows)]
        if self._knows_pairs and len(rows) == 2 and (limits == 1.0).all():
            return self._alone.rate(row, placement, units, occupancy, partners)
        relative = self.relative(rows, placement, units, occupancy).item(0)
        if relative != relative:  # noqa: PLR0124 - NaN
            together = " and ".join(self._jobs[each] for each in sorted(rows))
            raise BadInput(
                f"jobs {together} share GPUs, and --interference {self.interference.name} does not "
                "know how fast they are together"
            )
        return self._alone.rate(row, placement, units, occupancy) * relative

    def rates(
        self, placements: Mapping[int, Placement], units: UnitTable, occupancy: Occupancy
    ) -> Floats:
        """Work per second of units that have their GPUs for themselves."""
        if (units.gpu_limit[list(placements)] == 1.0).all():
            return self._alone.rates(placements, units, occupancy)
        return super().rates(placements, units, occupancy)

    def relative(
        self,
        rows: tuple[int, ...],
        placement: Placement,
        units: UnitTable,
        occupancy: Occupancy,
        where: Mapping[int, Placement] | None = None,
    ) -> Floats:
        """Speeds of units on the same GPUs relative to alone, on the slowest of their types.

        Where opportunistic units have some of these GPUs, each GPU has a group of its own, and a
        unit is as slow as on its slowest GPU.

        Args:
            rows: the units, all on some GPU of the placement.
            placement: the GPUs in question.
            units: all units.
            occupancy: which GPUs each unit has.
            where: of each unit, if some have just left; else what the occupancy says.
        """
        if len(rows) > 1:  # the one that came last is first
            ordered = tuple(each for each in reversed(occupancy.held) if each in rows)
            if ordered != rows and len(ordered) == len(rows):
                speeds = self.relative(ordered, placement, units, occupancy, where)
                in_turn: Floats = speeds[[ordered.index(row) for row in rows]]
                return in_turn
        if len(rows) > 2 and (occupancy.opportunistic or where):
            groups = _on_each_gpu(rows, placement, where or occupancy.held)
            if groups != {rows}:
                found = np.full(len(rows), np.inf)
                for group in groups:
                    places = [rows.index(row) for row in group]
                    speeds = self._of_group(group, placement, units, occupancy)
                    found[places] = np.minimum(found[places], speeds)
                return found
        return self._of_group(rows, placement, units, occupancy)

    def _of_group(
        self,
        rows: tuple[int, ...],
        placement: Placement,
        units: UnitTable,
        occupancy: Occupancy,
    ) -> Floats:
        limits = units.gpu_limit[list(rows)]
        types = sorted({occupancy.type_of.item(node) for node in placement.nodes})
        names = [occupancy.cluster.gpu_types[code] for code in types]
        found = [self.interference.relative(rows, limits, n, placement.gpus) for n in names]
        return found[0] if len(found) == 1 else np.min(found, axis=0)


def _on_each_gpu(
    rows: tuple[int, ...], placement: Placement, held: Mapping[int, Placement]
) -> set[tuple[int, ...]]:
    """The groups of rows that are together on any GPU of a placement, in the order of `rows`."""
    masks = [dict(zip(*held[row], strict=True)) for row in rows]
    return {
        tuple(row for row, has in zip(rows, masks, strict=True) if has.get(node, 0) >> gpu & 1)
        for node, mask in zip(*placement, strict=True)
        for gpu in range(mask.bit_length())
        if mask >> gpu & 1
    }
