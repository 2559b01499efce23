"""The estimator `co-location`: pairs of jobs are guessed, and measured once they really ran.

Durations and speeds alone are known, as by `oracle`. How fast two jobs run on the same GPUs is
known for pairs of reference kinds only; a new job is tried beside some of them and taken for the
reference that it resembles most (see `co_location`). What a pair did when it ran replaces the
guess.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np

from dlsched.core.arrays import Floats, Ints, Rows
from dlsched.core.context import Change, RoundContext
from dlsched.core.errors import BadInput
from dlsched.core.options import option
from dlsched.core.performance import Speeds
from dlsched.core.stage import Estimator
from dlsched.core.units import Units
from dlsched.policies.estimators.co_location import CoLocation

__all__ = ["GuessedPairs", "PairOptions", "PairsByResemblance"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairOptions:
    """Pairs by resemblance."""

    probability: float = option(
        0.5, "with which a new job is tried on a type beside a reference", low=0.0, high=1.0
    )
    references: int = option(16, "kinds of jobs of which all pairs are known", low=1)
    seed: int = option(0, "of what is drawn by lot; the run's unless given", low=0)


@runtime_checkable
class MeasuredPairs(Speeds, Protocol):
    """Speeds that also know kinds of jobs, and of some kinds how all their pairs run."""

    def codes(self, rows: Rows) -> Ints:
        """The kinds of rows; −1 where nothing is known."""
        ...

    def paired_kinds(self, types: Sequence[str], scale: int = 1) -> Ints:
        """Kinds that run on so many GPUs of each type, and whose pairs were all measured there."""
        ...

    def normalised(self, kinds: Ints, others: Ints, types: Sequence[str], scale: int = 1) -> Floats:
        """Throughput beside another over that alone, [kind, type, other]; NaN where unknown."""
        ...


@runtime_checkable
class PartlyMeasured(MeasuredPairs, Protocol):
    """Such speeds of a world in which not all is known that could be: the live one."""

    def known_together(
        self, first: Rows, second: Rows, scales: Ints, types: Sequence[str]
    ) -> Floats:
        """Steps/s of both halves of pairs, [pair, type, half]; NaN where not measured."""
        ...


@dataclass(slots=True)
class _References:
    """The reference kinds for one number of GPUs, and who is taken for which."""

    kinds: Ints
    normal: Floats  # beside another over alone, [reference, type, reference]
    pairs: CoLocation
    matched: dict[int, int] = field(default_factory=dict)  # by row


class GuessedPairs:
    """Speeds as they are believed: alone as they are, together by resemblance or measurement.

    Jobs are paired with those of as many GPUs. For numbers of GPUs for which the profile has no
    pairs, they count as not fitting together.
    """

    def __init__(self, truth: MeasuredPairs, options: PairOptions) -> None:
        self._truth, self._options = truth, options
        self._types: tuple[str, ...] = ()
        self._of_scale: dict[int, _References | None] = {}
        self._measured: dict[tuple[int, int, int], tuple[float, float]] = {}

    def alone(self, rows: Rows, scales: Ints, types: Sequence[str]) -> Floats:
        """The truth."""
        return self._truth.alone(rows, scales, types)

    def steps_per_work(self, rows: Rows) -> Floats:
        """The truth."""
        return self._truth.steps_per_work(rows)

    def together(self, first: Rows, second: Rows, scales: Ints, types: Sequence[str]) -> Floats:
        """Guessed steps/s of both halves, [pair, type, half], and measured ones."""
        self._look_at(tuple(types))
        found = np.zeros((len(first), len(types), 2))
        for scale in np.unique(scales).tolist():
            references = self._references(scale)
            here = np.flatnonzero(scales == scale)
            if references is not None:
                found[here] = self._guess(references, first[here], second[here], scale)
        truth = self._truth
        if isinstance(truth, PartlyMeasured):
            known = truth.known_together(first, second, scales, types)
            return np.where(np.isnan(known), found, known)
        place = {
            pair: number
            for number, pair in enumerate(zip(first.tolist(), second.tolist(), strict=True))
        }
        for (one, two, kind), rates in self._measured.items():
            if (one, two) in place:
                found[place[one, two], kind] = rates
            elif (two, one) in place:
                found[place[two, one], kind] = rates[::-1]
        return found

    def _guess(self, references: _References, first: Rows, second: Rows, scale: int) -> Floats:
        for row in np.unique(np.concatenate([first, second])).tolist():
            self._match(references, row, scale)
        match = np.array([references.matched[row] for row in first.tolist()], np.int64)
        other = np.array([references.matched[row] for row in second.tolist()], np.int64)
        scales = np.full(len(first), scale)
        halves = [
            references.normal[match, :, other] * self.alone(first, scales, self._types),
            references.normal[other, :, match] * self.alone(second, scales, self._types),
        ]
        return np.stack(halves, axis=2).reshape(len(first), len(self._types), 2)

    def ran(self, one: int, other: int, kind: str, ctx: RoundContext) -> bool:
        """Two jobs ran side by side: from now on it is known how fast; says whether that is new.

        Where speeds are measured as jobs run, they are known already, or not yet.
        """
        if kind not in self._types or isinstance(self._truth, PartlyMeasured):
            return False
        key = one, other, self._types.index(kind)
        if key in self._measured:
            return False
        rows = np.array([one]), np.array([other])
        rates = self._truth.together(*rows, ctx.table.gang[[one]], [kind])[0, 0]
        self._measured[key] = (float(rates[0]), float(rates[1]))
        return True

    def _look_at(self, types: tuple[str, ...]) -> None:
        """Choose references anew for other types.

        Raises:
            BadInput: a profile that all is taken from has no pairs at all.
        """
        if types == self._types:
            return
        self._types, self._of_scale = types, {}
        if not isinstance(self._truth, PartlyMeasured) and self._references(1) is None:
            raise BadInput("--estimate co-location: the profile has no pairs on all GPU types")

    def _references(self, scale: int) -> _References | None:
        if scale not in self._of_scale:
            known = self._truth.paired_kinds(self._types, scale)
            made = None
            if known.size:
                rng = np.random.default_rng((self._options.seed, 4 if scale == 1 else 4 + scale))
                count = min(self._options.references, len(known))
                kinds = np.sort(rng.choice(known, size=count, replace=False))
                normal = self._truth.normalised(kinds, kinds, self._types, scale)
                # what a live cluster knows, it has tried
                measured = isinstance(self._truth, PartlyMeasured)
                chance = 1.0 if measured else self._options.probability
                made = _References(kinds, normal, CoLocation(normal, chance))
            self._of_scale[scale] = made
        return self._of_scale[scale]

    def _match(self, references: _References, row: int, scale: int) -> None:
        if row in references.matched:
            return
        kind = self._truth.codes(np.array([row]))
        profile = self._truth.normalised(kind, references.kinds, self._types, scale)[0]
        if not isinstance(self._truth, PartlyMeasured):
            profile = np.nan_to_num(profile, nan=0.0)  # the table has all there is
        rng = np.random.default_rng((self._options.seed, row))
        references.matched[row] = references.pairs.arrive(row, profile, rng).reference

    def rename(self, place: Mapping[int, int]) -> None:
        """Jobs have other row numbers now; of those that are gone, nothing is kept."""
        self._measured = {
            (place[one], place[other], kind): rates
            for (one, other, kind), rates in self._measured.items()
            if one in place and other in place
        }
        for references in self._of_scale.values():
            if references is not None:
                matched = references.matched
                references.matched = {place[r]: m for r, m in matched.items() if r in place}

    def state_dict(self) -> dict[str, Any]:
        """What has been measured; guesses are drawn again alike."""
        return {"measured": [[*key, *rates] for key, rates in self._measured.items()]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state_dict`."""
        self._measured = {(int(a), int(b), int(k)): (x, y) for a, b, k, x, y in state["measured"]}


class PairsByResemblance(Estimator[PairOptions]):
    """True durations; pairs as GuessedPairs has them."""

    name = "co-location"
    summary = "true durations; speeds of pairs on the same GPUs by resemblance, then as measured"
    Options: ClassVar[type[Any]] = PairOptions
    knows = True

    def __init__(self, options: PairOptions) -> None:
        super().__init__(options)
        self._guessed: GuessedPairs | None = None
        self._state: Mapping[str, Any] = {}  # until there is somebody to have it

    def predict(self, units: Units, true_work: Floats, ctx: RoundContext) -> Floats:
        """The truth."""
        return true_work

    def believed(self, speeds: Speeds | None) -> Speeds | None:
        """The truth about jobs alone, guesses about pairs.

        Raises:
            BadInput: there is no table.
        """
        if not isinstance(speeds, MeasuredPairs):
            raise BadInput("--estimate co-location needs a table of throughputs: --profiles")
        self._guessed = GuessedPairs(speeds, self.options)
        if self._state:
            self._guessed.load_state_dict(self._state)
        return self._guessed

    def observe(self, ctx: RoundContext) -> None:
        """Pairs that have run are measured."""
        occupancy = ctx.occupancy
        if self._guessed is None:
            return
        for row, others in list(occupancy.beside.items()):
            if row < others[0]:
                node = occupancy.held[row].nodes[0]
                kind = occupancy.cluster.gpu_types[int(occupancy.type_of[node])]
                if self._guessed.ran(row, others[0], kind, ctx):
                    ctx.changes.append(Change("adapt", ctx.now, row))

    def renumber(self, old: Rows, finished_gone: int) -> None:
        """Jobs have other row numbers now."""
        if self._guessed is not None:
            self._guessed.rename(
                {before: row for row, before in enumerate(old.tolist()) if before >= 0}
            )

    def state_dict(self) -> dict[str, Any]:
        """What has been measured."""
        return dict(self._state) if self._guessed is None else self._guessed.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state_dict`."""
        self._state = state
        if self._guessed is not None and state:
            self._guessed.load_state_dict(state)
