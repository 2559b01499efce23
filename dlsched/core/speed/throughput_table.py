"""Throughput tables: steps per second by model, batch size, GPU type, scale factor and partner.

A *kind* of job is a model with a batch size. The table holds, for every kind on every type and
number of GPUs, how fast a job of it runs alone, and beside a job of another kind on the same GPUs.
Throughputs are those of the whole job, not per GPU. 0 means that it does not run there (or does not
fit together); NaN that it was not measured, which is an error as soon as it is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dlsched.core.arrays import Bools, Floats, Ints, Rows
from dlsched.core.cluster.occupancy import Occupancy, Placement
from dlsched.core.errors import BadInput, plural
from dlsched.core.speed.truth import PerformanceModel
from dlsched.core.units import UnitTable


class JobKind(NamedTuple):
    """What decides a job's speed, beside where it runs.

    Attributes:
        model: its name.
        batch_size: examples a step; None where a model has only one.
    """

    model: str
    batch_size: int | None = None

    def __str__(self) -> str:
        size = "" if self.batch_size is None else f" (batch size {self.batch_size})"
        return f"{self.model}{size}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One row of a table.

    Attributes:
        gpu_type: where.
        scale: GPUs of the job, and of its partner if it has one.
        kind: what.
        rate: its steps/s.
        partner: the kind of the job on the same GPUs; None when it ran alone.
        partner_rate: the partner's steps/s.
        spread: the GPUs were not all on one server.
        where: file and line, for messages.
    """

    gpu_type: str
    scale: int
    kind: JobKind
    rate: float
    partner: JobKind | None = None
    partner_rate: float = np.nan
    spread: bool = False
    where: str = ""


class ThroughputTable:
    """Measured throughputs as arrays.

    Attributes:
        types: GPU types that were measured, sorted by name.
        kinds: kinds of jobs, sorted.
        scales: numbers of GPUs, ascending.
        alone: steps/s, [spread, type, scale, kind].
        together: steps/s of the first kind beside the second, [spread, type, scale, kind, kind].
    """

    def __init__(self, measurements: Sequence[Measurement]) -> None:
        """Take in measurements; a pair counts for both of its halves.

        Raises:
            BadInput: there are none, one is not a number from 0 up, or two contradict each other.
        """
        if not measurements:
            raise BadInput("a profile without throughputs")
        partners = {m.partner for m in measurements if m.partner is not None}
        self.types = tuple(sorted({m.gpu_type for m in measurements}))
        self.kinds = tuple(
            sorted({m.kind for m in measurements} | partners, key=lambda k: (k[0], k[1] or 0))
        )
        self.scales = tuple(sorted({m.scale for m in measurements}))
        self._type = {name: number for number, name in enumerate(self.types)}
        self._kind = {kind: number for number, kind in enumerate(self.kinds)}
        self._scale = {scale: number for number, scale in enumerate(self.scales)}
        shape = (2, len(self.types), len(self.scales), len(self.kinds))
        self.alone: Floats = np.full(shape, np.nan)
        self.together: Floats = np.full((*shape, len(self.kinds)), np.nan)
        for measured in measurements:
            self._enter(measured)

    def _enter(self, m: Measurement) -> None:
        for rate in (m.rate, m.partner_rate) if m.partner is not None else (m.rate,):
            if not (np.isfinite(rate) and rate >= 0):
                raise BadInput(
                    f"{m.where}: steps per second of {m.kind} must be 0 or more, not {rate}"
                )
        place = (int(m.spread), self._type[m.gpu_type], self._scale[m.scale])
        kind = self._kind[m.kind]
        if m.partner is None:
            self._set(self.alone, (*place, kind), m.rate, m)
            return
        other = self._kind[m.partner]
        self._set(self.together, (*place, kind, other), m.rate, m)
        self._set(self.together, (*place, other, kind), m.partner_rate, m)

    @staticmethod
    def _set(column: Floats, place: tuple[int, ...], rate: float, m: Measurement) -> None:
        known = float(column[place])
        if not np.isnan(known) and known != rate:
            beside = "" if m.partner is None else f" beside {m.partner}"
            raise BadInput(
                f"{m.where}: {m.kind}{beside} on {m.scale} {m.gpu_type} has {rate:g} steps/s here "
                f"and {known:g} before"
            )
        column[place] = rate

    def codes(self, kinds: Sequence[JobKind]) -> Ints:
        """Numbers of kinds.

        Raises:
            BadInput: one is not in the table.
        """
        for kind in kinds:
            if kind not in self._kind:
                sizes = [str(k.batch_size) for k in self.kinds if k.model == kind.model]
                known = (
                    f"of {kind.model} it has batch sizes {', '.join(sizes)}"
                    if sizes
                    else f"it has {', '.join(sorted({k.model for k in self.kinds}))}"
                )
                raise BadInput(f"the profile has no throughputs of {kind}; {known}")
        return np.array([self._kind[kind] for kind in kinds], np.int64)

    def speeds(
        self, kinds: Ints, scales: Ints, types: Sequence[str], *, spread: bool = False
    ) -> Floats:
        """Steps/s of jobs that run alone, [job, type].

        Args:
            kinds: codes.
            scales: GPUs of each job.
            types: GPU types, in the order of the columns.
            spread: on GPUs of several servers.

        Raises:
            BadInput: a type, or a job's number of GPUs, was not measured.
        """
        columns = self._columns(types)
        rows = self._rows(scales)
        found: Floats = self.alone[int(spread)][columns[:, None], rows, kinds].T
        unknown = np.isnan(found)
        if unknown.any():
            job, kind = np.argwhere(unknown)[0].tolist()
            raise BadInput(
                f"the profile has no throughput of {self.kinds[int(kinds[job])]} on "
                f"{scales[job]} {types[kind]}"
            )
        return found

    def pair_speeds(
        self, first: Ints, second: Ints, scales: Ints, types: Sequence[str], *, spread: bool = False
    ) -> Floats:
        """Steps/s of both halves of pairs of equal scale, [pair, type, half]; 0 where unknown."""
        speed: Floats = np.nan_to_num(
            self.known_pair_speeds(first, second, scales, types, spread=spread), nan=0.0
        )
        return speed

    def known_pair_speeds(
        self, first: Ints, second: Ints, scales: Ints, types: Sequence[str], *, spread: bool = False
    ) -> Floats:
        """Steps/s of both halves of pairs of equal scale, [pair, type, half]; NaN where unknown.

        Args:
            first: codes of the first halves.
            second: codes of the second halves.
            scales: GPUs of each half.
            types: GPU types, in the order of the columns.
            spread: on GPUs of several servers.
        """
        place = self._columns(types)[:, None], self._rows(scales)
        table = self.together[int(spread)]
        halves = table[*place, first, second], table[*place, second, first]
        return np.stack([half.T for half in halves], axis=2)

    def curve(self, kind: int, gpu_type: str, *, spread: bool = False) -> Floats:
        """Steps/s of a kind on 1 GPU up to the most measured, linear between what was measured.

        On no GPU it does no step, so below the least measured the line goes through 0. NaN where
        the kind was measured nowhere on this type.
        """
        place = int(spread), int(self._columns([gpu_type])[0]), slice(None), kind
        measured, scales = self.alone[place], np.array(self.scales, np.float64)
        runs = measured > 0
        if not runs.any():
            return np.where(np.isnan(measured).all(), np.nan, np.zeros(self.scales[-1]))
        every = np.arange(1.0, self.scales[-1] + 1)
        curve: Floats = np.interp(every, [0.0, *scales[runs]], [0.0, *measured[runs]], right=0.0)
        curve[scales[measured == 0].astype(np.int64) - 1] = 0.0
        return curve

    def _columns(self, types: Sequence[str]) -> Ints:
        for name in types:
            if name not in self._type:
                raise BadInput(
                    f"the profile has no throughputs on {name}; it has {', '.join(self.types)}"
                )
        return np.array([self._type[name] for name in types], np.int64)

    def _rows(self, scales: Ints) -> Ints:
        known = np.array(self.scales, np.int64)
        rows = np.minimum(np.searchsorted(known, scales), len(known) - 1)
        wrong: Bools = known[rows] != scales
        if wrong.any():
            asked = plural(int(scales[np.argmax(wrong)]), "GPU")
            raise BadInput(
                f"the profile has no throughputs on {asked}; it has them "
                f"on {', '.join(map(str, self.scales))}"
            )
        return np.asarray(rows, np.int64)


class TableSpeed(PerformanceModel):
    """The table as a performance model, and as what policies believe of speeds.

    A unit's work is counted in steps, or in seconds on its fastest type. A unit on GPUs of several
    types is as fast as on the slowest.
    """

    def __init__(
        self,
        table: ThroughputTable,
        kinds: Sequence[JobKind],
        *,
        by_placement: bool = False,
        unit: Floats | None = None,
        types: Sequence[str] = (),
    ) -> None:
        """Look up what each unit is.

        Args:
            table: the throughputs.
            kinds: by row of the unit table.
            by_placement: tell GPUs on one server from GPUs on several; else all count as on one.
            unit: steps in one unit of work, by row; 1 for all when None.
            types: on which a row must have been measured that becomes of another kind.
        """
        self._types = types
        self._table = table
        self._codes = table.codes(kinds)
        self._by_placement = by_placement
        self._unit = np.ones(len(self._codes)) if unit is None else unit
        self._known: dict[tuple[int, tuple[int, ...], int, bool, tuple[int, ...]], float] = {}
        self._curves: dict[tuple[int, str, bool], Floats] = {}

    def alone(self, rows: Rows, scales: Ints, types: Sequence[str]) -> Floats:
        """Steps/s of rows that have their GPUs for themselves, [row, type].

        Raises:
            BadInput: one was not measured.
        """
        return self._table.speeds(self._codes[rows], scales, types)

    def together(self, first: Rows, second: Rows, scales: Ints, types: Sequence[str]) -> Floats:
        """Steps/s of both halves of pairs on the same GPUs, [pair, type, half]."""
        return self._table.pair_speeds(self._codes[first], self._codes[second], scales, types)

    def steps_per_work(self, rows: Rows) -> Floats:
        """Steps in one unit of the work that the unit table counts."""
        return self._unit[rows]

    def by_scale(self, rows: Rows, gpu_type: str, most: int) -> Floats:
        """Steps/s of rows on 1 to `most` GPUs of a type, in the fewest nodes, [row, GPUs - 1].

        0 beyond the most GPUs measured, NaN where a row's kind was measured nowhere.
        """
        found = np.zeros((len(rows), most))
        for place, row in enumerate(rows.tolist()):
            curve = self._curve(self._codes.item(row), gpu_type)[:most]
            found[place, : len(curve)] = curve
        return found

    def _curve(self, kind: int, gpu_type: str, *, spread: bool = False) -> Floats:
        known = self._curves.get((kind, gpu_type, spread))
        if known is None:
            known = self._table.curve(kind, gpu_type, spread=spread)
            self._curves[kind, gpu_type, spread] = known
        return known

    @property
    def has_pairs(self) -> bool:
        """Was any pair measured?"""
        return not np.isnan(self._table.together).all()

    def codes(self, rows: Rows) -> Ints:
        """The kinds of rows, as numbers of the table."""
        return self._codes[rows]

    def paired_kinds(self, types: Sequence[str], scale: int = 1) -> Ints:
        """Kinds that run on so many GPUs of each type, and whose pairs were all measured there."""
        table = self._table
        if scale not in table.scales:
            return np.zeros(0, np.int64)
        place = table._rows(np.array([scale]))[0]
        columns = table._columns(types)
        alone, pairs = table.alone[0][columns, place], table.together[0][columns, place]
        good = np.flatnonzero((alone > 0).all(axis=0))
        # kinds with any pair at all first, so that one without none does not spoil the others
        good = good[~np.isnan(pairs[:, good][:, :, good]).any(axis=0).all(axis=1)]
        measured = ~np.isnan(pairs[:, good][:, :, good]).any(axis=0)
        found: Ints = good[measured.all(axis=1)]
        return found

    def normalised(self, kinds: Ints, others: Ints, types: Sequence[str], scale: int = 1) -> Floats:
        """Throughput beside another over that alone, [kind, type, other]; NaN where unknown."""
        first, second = np.repeat(kinds, len(others)), np.tile(others, len(kinds))
        scales = np.full(len(first), scale)
        beside = self._table.known_pair_speeds(first, second, scales, types)[:, :, 0]
        alone = self._table.speeds(first, scales, types)
        part = np.divide(beside, alone, out=np.zeros(alone.shape), where=alone > 0)
        shaped = np.clip(part, 0.0, 1.0).reshape(len(kinds), len(others), len(types))
        return np.ascontiguousarray(shaped.transpose(0, 2, 1))

    def become(self, row: int, kind: JobKind, scale: int) -> bool:
        """A row is of another kind from now on; returns False where that was not measured."""
        try:
            code = self._table.codes([kind])
            self._table.speeds(code, np.array([scale]), self._types)
        except BadInput:
            return False
        self._codes[row] = code[0]
        self._known = {
            key: rate for key, rate in self._known.items() if row not in (key[0], *key[4])
        }
        return True

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
            BadInput: it was not measured, or there is more than one partner.
        """
        nodes = placement.nodes
        if len(nodes) == 1:
            types: tuple[int, ...] = (occupancy.type_of.item(nodes[0]),)
        else:
            types = tuple(sorted({occupancy.type_of.item(node) for node in nodes}))
        spread = self._by_placement and len(nodes) > 1
        # what was asked for before is looked up: rounds start the same units again and again
        key = (row, types, placement.gpus, spread, partners)
        known = self._known.get(key)
        if known is None:
            names = [occupancy.cluster.gpu_types[code] for code in types]
            known = self._known[key] = self._slowest(row, names, placement.gpus, spread, partners)
        return known

    def _slowest(
        self, row: int, types: Sequence[str], gpus: int, spread: bool, partners: tuple[int, ...]
    ) -> float:
        scales, kind = np.array([gpus]), self._codes[[row]]
        if not partners:
            curves = [self._curve(kind.item(0), name, spread=spread) for name in types]
            steps = np.array([curve[gpus - 1] if gpus <= len(curve) else 0.0 for curve in curves])
            if np.isnan(steps).any():
                steps = self._table.speeds(kind, scales, types, spread=spread)  # says what is not
        elif len(partners) == 1:
            other = self._codes[[partners[0]]]
            pair = self._table.pair_speeds(kind, other, scales, types, spread=spread)
            steps = pair[:, :, 0]
        else:
            raise BadInput("the profile has throughputs of two jobs on the same GPUs, not of more")
        return float(steps.min()) / self._unit.item(row)
