"""The estimator `co-location`: throughputs of pairs are estimated, and measured when a pair runs.

Durations and throughputs alone are the true ones, as with `oracle`. The throughput of two jobs on
the same GPUs is known only for pairs of reference kinds. A new job is profiled with some of them
and matched with the most similar reference (see `co_location`). The measured throughput of a pair
that ran replaces its estimate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np

from dlsched.core.arrays import Floats, Ints, Rows
from dlsched.core.context import Change, RoundContext
from dlsched.core.errors import BadInput
from dlsched.core.options import option
from dlsched.core.speed.belief import Belief
from dlsched.core.speed.truth import Speeds
from dlsched.core.stage import Estimator
from dlsched.core.units import Units
from dlsched.policies.estimators.co_location import CoLocation


@dataclass(frozen=True, slots=True, kw_only=True)
class PairOptions:
    """Throughputs of pairs by resemblance."""

    probability: float = option(
        0.5, "probability of profiling a new job on a type with a reference", low=0.0, high=1.0
    )
    references: int = option(16, "number of kinds of jobs with all pairs known", low=1)
    seed: int = option(0, "seed of random choices; by default the run's seed", low=0)


@runtime_checkable
class MeasuredPairs(Speeds, Protocol):
    """Speeds that also know kinds of jobs, and for some kinds the throughputs of all pairs."""

    def codes(self, rows: Rows) -> Ints:
        """The kinds of rows; −1 where unknown."""
        ...

    def paired_kinds(self, types: Sequence[str], scale: int = 1) -> Ints:
        """Kinds that run on so many GPUs of each type, with all their pairs measured there."""
        ...

    def normalised(self, kinds: Ints, others: Ints, types: Sequence[str], scale: int = 1) -> Floats:
        """Throughput of kinds together with others, over that alone; NaN where unknown.

        Args:
            kinds: the measured kinds.
            others: their partners.
            types: GPU types.
            scale: GPUs of both jobs.

        Returns:
            [kind, type, other].
        """
        ...


@runtime_checkable
class PartlyMeasured(MeasuredPairs, Protocol):
    """Such speeds where some pairs of known kinds are not measured yet, as in a live cluster."""

    def known_together(
        self, first: Rows, second: Rows, scales: Ints, types: Sequence[str]
    ) -> Floats:
        """Steps/s of both jobs of pairs, [pair, type, job]; NaN where not measured."""
        ...


@dataclass(slots=True)
class _References:
    """The reference kinds for one number of GPUs, and the matched reference of each row."""

    kinds: Ints
    normal: Floats  # together over alone, [reference, type, reference]
    pairs: CoLocation
    matched: dict[int, int] = field(default_factory=dict)  # by row


class GuessedPairs:
    """Throughputs alone as they are, of pairs as estimated or measured.

    Only jobs with equally many GPUs are paired. For numbers of GPUs without pairs in the profile,
    jobs count as not fitting together.
    """

    def __init__(self, truth: MeasuredPairs, options: PairOptions) -> None:
        self._truth, self._options = truth, options
        self._types: tuple[str, ...] = ()
        self._of_scale: dict[int, _References | None] = {}
        self._measured: dict[tuple[int, int, int], tuple[float, float]] = {}

    def alone(self, rows: Rows, scales: Ints, types: Sequence[str]) -> Floats:
        """The true durations."""
        return self._truth.alone(rows, scales, types)

    def steps_per_work(self, rows: Rows) -> Floats:
        """The true durations."""
        return self._truth.steps_per_work(rows)

    def together(self, first: Rows, second: Rows, scales: Ints, types: Sequence[str]) -> Floats:
        """Estimated or measured steps/s of both jobs of pairs, [pair, type, job].

        Args:
            first: rows.
            second: their partners.
            scales: GPUs of each pair.
            types: GPU types.
        """
        self._choose_references(tuple(types))
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
        for (one, two, gpu_type), rates in self._measured.items():
            if (one, two) in place:
                found[place[one, two], gpu_type] = rates
            elif (two, one) in place:
                found[place[two, one], gpu_type] = rates[::-1]
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

    def ran(self, one: int, other: int, gpu_type: str, ctx: RoundContext) -> bool:
        """Replace an estimate by the true throughput after two jobs ran together.

        In a live cluster speeds are measured by other means, so nothing changes here.

        Args:
            one: a row.
            other: its partner.
            gpu_type: where they ran.
            ctx: the round.

        Returns:
            whether the throughput was unknown before.
        """
        if gpu_type not in self._types or isinstance(self._truth, PartlyMeasured):
            return False
        key = one, other, self._types.index(gpu_type)
        if key in self._measured:
            return False
        rows = np.array([one]), np.array([other])
        rates = self._truth.together(*rows, ctx.table.gang[[one]], [gpu_type])[0, 0]
        self._measured[key] = (float(rates[0]), float(rates[1]))
        return True

    def _choose_references(self, types: tuple[str, ...]) -> None:
        """Choose references for these GPU types.

        Raises:
            BadInput: the profile has no pairs at all.
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
                # a live cluster has measured all that it knows
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
            profile = np.nan_to_num(profile, nan=0.0)  # the table has all measurements
        rng = np.random.default_rng((self._options.seed, row))
        references.matched[row] = references.pairs.arrive(row, profile, rng).reference

    def rename(self, place: Mapping[int, int]) -> None:
        """Follow a table that was packed: `place` is the new row number by the old one."""
        self._measured = {
            (place[one], place[other], gpu_type): rates
            for (one, other, gpu_type), rates in self._measured.items()
            if one in place and other in place
        }
        for references in self._of_scale.values():
            if references is not None:
                matched = references.matched
                references.matched = {place[r]: m for r, m in matched.items() if r in place}

    def state_dict(self) -> dict[str, Any]:
        """The measurements; the same estimates are drawn again."""
        return {"measured": [[*key, *rates] for key, rates in self._measured.items()]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict`."""
        self._measured = {(int(a), int(b), int(k)): (x, y) for a, b, k, x, y in state["measured"]}


class PairsByResemblance(Estimator[PairOptions]):
    """True durations; throughputs of pairs by `GuessedPairs`."""

    name = "co-location"
    summary = "true durations; speeds of co-located pairs by resemblance, then as measured"
    knows = True

    def __init__(self, options: PairOptions) -> None:
        super().__init__(options)
        self._guessed: GuessedPairs | None = None
        self._state: Mapping[str, Any] = {}  # until `GuessedPairs` exists

    def predict(self, units: Units, true_work: Floats, ctx: RoundContext) -> Floats:
        """The true durations."""
        return true_work

    def believed(self, perf: Belief) -> Belief:
        """True throughputs of jobs alone, estimated ones of pairs.

        Raises:
            BadInput: there is no table.
        """
        if not isinstance(perf.by_type, MeasuredPairs):
            raise BadInput("--estimate co-location needs a table of throughputs: --profiles")
        self._guessed = GuessedPairs(perf.by_type, self.options)
        if self._state:
            self._guessed.load_state_dict(self._state)
        return replace(perf, by_type=self._guessed)

    def observe(self, ctx: RoundContext) -> None:
        """Measure the pairs that have run."""
        occupancy = ctx.occupancy
        if self._guessed is None:
            return
        for row, others in list(occupancy.beside.items()):
            if row < others[0]:
                node = occupancy.held[row].nodes[0]
                gpu_type = occupancy.cluster.gpu_types[int(occupancy.type_of[node])]
                if self._guessed.ran(row, others[0], gpu_type, ctx):
                    ctx.changes.append(Change("adapt", ctx.now, row))

    def renumber(self, old: Rows, finished_gone: int) -> None:
        """Follow a table that was packed."""
        if self._guessed is not None:
            self._guessed.rename(
                {before: row for row, before in enumerate(old.tolist()) if before >= 0}
            )

    def state_dict(self) -> dict[str, Any]:
        """The measurements."""
        return dict(self._state) if self._guessed is None else self._guessed.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict`."""
        self._state = state
        if self._guessed is not None and state:
            self._guessed.load_state_dict(state)
