"""A generalised additive model with pairs (GA2M): a sum of one-feature and two-feature functions.

    y = base + Σ f_i(x_i) + Σ f_ij(x_i, x_j)

Every function is a table over bins of its features, learned by boosting in turns: each round takes
one feature after the other and adds a small part of what its bins still miss. Pairs follow when the
single features are done. Each function is 0 on average, so that `base` is the mean of what was
learned from, and a prediction is the sum of terms that can be shown one by one.

Source: Lou, Caruana, Gehrke, Hooker, "Accurate Intelligible Models with Pairwise Interactions",
KDD 2013; Lucid (ASPLOS 2023) uses it for durations and for the load.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np

from dlsched.core.arrays import Floats, Ints

SMOOTHING = 30.0  # rows of "nothing" that each bin counts with: a rare value says little
PAIR_BINS = 8  # of each feature of a pair


@dataclass(frozen=True, slots=True, kw_only=True)
class Boosting:
    """How a model is learned.

    Attributes:
        rate: the part of what a bin misses that a round adds.
        rounds: turns through all features, and through all pairs.
        bins: most bins of a feature.
        pairs: most pairs.
        cap: this quantile of the target counts for all above it: a few huge values would otherwise
            decide everything.
    """

    rate: float = 0.1
    rounds: int = 10
    bins: int = 32
    pairs: int = 10
    cap: float = 0.95


@dataclass(slots=True)
class _Binned:
    """One feature in bins; bin 0 is for what is unknown."""

    edges: Floats  # of numbers: upper ends of all bins but the last
    values: Floats  # of kinds: the known ones, ascending; empty for numbers

    def of(self, column: Floats) -> Ints:
        unknown = np.isnan(column)
        if len(self.values):
            place = np.searchsorted(self.values, column)
            place = np.minimum(place, len(self.values) - 1)
            found = np.where(self.values[place] == column, place + 1, 0)
        else:
            found = np.searchsorted(self.edges, column, side="left") + 1
        return np.where(unknown, 0, found)

    @property
    def count(self) -> int:
        return 1 + (len(self.values) or len(self.edges) + 1)


def _binned(column: Floats, is_kind: bool, bins: int) -> _Binned:
    known = column[~np.isnan(column)]
    distinct = np.unique(known)
    if is_kind:
        return _Binned(np.zeros(0), distinct if len(distinct) else np.array([0.0]))
    if len(distinct) <= bins:
        return _Binned((distinct[1:] + distinct[:-1]) / 2, np.zeros(0))
    edges = np.unique(np.quantile(known, np.arange(1, bins) / bins))
    return _Binned(edges, np.zeros(0))


@dataclass(slots=True)
class AdditiveModel:
    """A learned model.

    Attributes:
        names: of the features.
        base: the mean of what was learned from.
        shapes: by feature, what each of its bins adds.
        pairs: the pairs of features, each with what its cells add.
    """

    names: tuple[str, ...]
    base: float
    shapes: list[Floats]
    pairs: list[tuple[int, int, Floats]]
    _bins: list[_Binned] = field(default_factory=list)
    _coarse: list[_Binned] = field(default_factory=list)

    @classmethod
    def fit(
        cls,
        features: Mapping[str, Floats],
        target: Floats,
        *,
        kinds: Sequence[str] = (),
        boosting: Boosting | None = None,
    ) -> AdditiveModel:
        """Learn from rows.

        Args:
            features: a column of numbers by name, NaN where unknown.
            target: what is to be predicted, by row.
            kinds: features whose numbers are only names, such as users.
            boosting: how.
        """
        boosting = boosting or Boosting()
        names = tuple(features)
        columns = [np.asarray(features[name], np.float64) for name in names]
        bins = [
            _binned(column, name in kinds, boosting.bins)
            for name, column in zip(names, columns, strict=True)
        ]
        places = [each.of(column) for each, column in zip(bins, columns, strict=True)]
        target = np.minimum(target, np.quantile(target, boosting.cap))
        base = float(target.mean())
        missing = target - base
        shapes = _boosted(places, [each.count for each in bins], missing, boosting)
        coarse = [
            _binned(column, name in kinds, PAIR_BINS)
            for name, column in zip(names, columns, strict=True)
        ]
        cells = [each.of(column) for each, column in zip(coarse, columns, strict=True)]
        counts = [each.count for each in coarse]
        chosen = _promising(cells, counts, missing, boosting.pairs)
        joint = [cells[i] * counts[j] + cells[j] for i, j in chosen]
        sizes = [counts[i] * counts[j] for i, j in chosen]
        tables = _boosted(joint, sizes, missing, boosting)
        pairs = [
            (i, j, table.reshape(counts[i], counts[j]))
            for (i, j), table in zip(chosen, tables, strict=True)
        ]
        return cls(names, base, shapes, pairs, bins, coarse)

    def terms(self, features: Mapping[str, Floats]) -> dict[str, Floats]:
        """What each function adds to the prediction of each row, beside `base`."""
        columns = [np.asarray(features[name], np.float64) for name in self.names]
        found = {
            name: shape[bins.of(column)]
            for name, shape, bins, column in zip(
                self.names, self.shapes, self._bins, columns, strict=True
            )
        }
        for i, j, table in self.pairs:
            cells = self._coarse[i].of(columns[i]), self._coarse[j].of(columns[j])
            found[f"{self.names[i]} x {self.names[j]}"] = table[cells]
        return found

    def predict(self, features: Mapping[str, Floats]) -> Floats:
        """The prediction of each row."""
        total: Floats = np.sum(list(self.terms(features).values()), axis=0) + self.base
        return total

    def state_dict(self) -> dict[str, Any]:
        """Everything, as plain values and arrays."""
        return {
            "names": list(self.names),
            "base": self.base,
            "shapes": list(self.shapes),
            "pairs": [[i, j, table] for i, j, table in self.pairs],
            "bins": [[each.edges, each.values] for each in self._bins],
            "coarse": [[each.edges, each.values] for each in self._coarse],
        }

    @classmethod
    def of_state(cls, state: Mapping[str, Any]) -> AdditiveModel:
        """The model of a `state_dict`."""

        def bins(key: str) -> list[_Binned]:
            return [
                _Binned(np.asarray(edges, np.float64), np.asarray(values, np.float64))
                for edges, values in state[key]
            ]

        return cls(
            tuple(state["names"]),
            float(state["base"]),
            [np.asarray(shape, np.float64) for shape in state["shapes"]],
            [(int(i), int(j), np.asarray(table, np.float64)) for i, j, table in state["pairs"]],
            bins("bins"),
            bins("coarse"),
        )


def _boosted(
    places: Sequence[Ints], sizes: Sequence[int], missing: Floats, boosting: Boosting
) -> list[Floats]:
    """Tables that explain what is missing, learned in turns; `missing` becomes what is left."""
    tables = [np.zeros(size) for size in sizes]
    counts = [np.bincount(place, minlength=size) for place, size in zip(places, sizes, strict=True)]
    for _ in range(boosting.rounds):
        for place, table, count in zip(places, tables, counts, strict=True):
            sums = np.bincount(place, missing, minlength=len(table))
            step = boosting.rate * sums / (count + SMOOTHING)
            step -= (step * count).sum() / max(count.sum(), 1)  # 0 on average
            np.add(table, step, out=table)
            missing -= step[place]
    return tables


def _promising(
    cells: Sequence[Ints], counts: Sequence[int], missing: Floats, most: int
) -> list[tuple[int, int]]:
    """The pairs of features whose cells explain most of what is missing."""
    gains = []
    for i, j in combinations(range(len(cells)), 2):
        joint = cells[i] * counts[j] + cells[j]
        sums = np.bincount(joint, missing, minlength=counts[i] * counts[j])
        rows = np.bincount(joint, minlength=counts[i] * counts[j])
        gains.append((-float((sums**2 / (rows + SMOOTHING)).sum()), i, j))
    return [(i, j) for _, i, j in sorted(gains)[:most]]
