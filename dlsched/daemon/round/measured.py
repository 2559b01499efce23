"""What a live round believes of speeds: what was measured, and what stands in for the rest.

Invariant: a kind of which nothing is known runs equally fast on every type.

Of a kind that was measured on some types, another type is believed to be as much faster or slower
as it is for the kinds that were measured on both (their median); as fast, while there are none. A
number of GPUs on which a kind was not measured stands as the nearest one that was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dlsched.core.arrays import Floats, Ints, Rows


class MeasuredSpeeds:
    """Measured steps per second as policies see them."""

    def __init__(self, columns: Mapping[str, Any], gangs: Ints) -> None:
        """Take in what is known.

        `columns` of the table of speeds are `types`, by entry `of`, `type`, `gpus`, `partner`,
        `rate` and `changed_at`, and by row `kind`, −1 for those of which nothing is known.
        """
        self._types: tuple[str, ...] = tuple(columns["types"])
        self._kind: Ints = np.concatenate(
            [columns["kind"], np.full(max(len(gangs) - len(columns["kind"]), 0), -1, np.int64)]
        )
        self._gangs = gangs
        alone = columns["partner"] < 0
        of, gpus = columns["of"][alone].tolist(), columns["gpus"][alone].tolist()
        types, rates = columns["type"][alone].tolist(), columns["rate"][alone].tolist()
        self._measured: dict[int, dict[int, Floats]] = {}  # by kind and GPUs, [type]
        for kind, scale, where, rate in zip(of, gpus, types, rates, strict=True):
            known = self._measured.setdefault(kind, {})
            known.setdefault(scale, np.full(len(self._types), np.nan))[where] = rate
        names = ("of", "partner", "type", "gpus", "rate")
        pairs = zip(*(columns[name][~alone].tolist() for name in names), strict=True)
        self._pairs = {(a, b, t, scale): rate for a, b, t, scale, rate in pairs}
        self._ratio = self._ratios()
        self._known: dict[tuple[int, int], Floats] = {}

    def _ratios(self) -> Floats:
        """How much faster each type is than another, [type, type]: the median over kinds."""
        every = [rates for known in self._measured.values() for rates in known.values()]
        rates = np.array(every).reshape(-1, len(self._types))
        rates = np.where(rates > 0, rates, np.nan)
        ratio = np.ones((len(self._types), len(self._types)))
        for one in range(len(self._types)):
            for other in range(len(self._types)):
                found = rates[:, one] / rates[:, other]
                found = found[~np.isnan(found)]
                if found.size:
                    ratio[one, other] = float(np.median(found))
        return ratio

    def _believed(self, kind: int, scale: int) -> Floats:
        """Steps/s of a kind on so many GPUs, [type]; ones where nothing is known."""
        key = kind, scale
        found = self._known.get(key)
        if found is None:
            by_scale = self._measured.get(kind)
            if not by_scale:
                found = np.ones(len(self._types))
            else:
                nearest = min(by_scale, key=lambda other: (abs(np.log(other / scale)), other))
                found = by_scale[nearest].copy()
                unknown = np.isnan(found)
                best = int(np.nanargmax(found))
                fastest = float(found[best])
                found[unknown] = fastest * self._ratio[unknown, best] if fastest > 0 else 1.0
            self._known[key] = found
        return found

    # -- Speeds ------------------------------------------------------------------------------------

    def alone(self, rows: Rows, scales: Ints, types: Sequence[str]) -> Floats:
        """Steps/s of rows that have their GPUs for themselves, [row, type]."""
        return self._of_kinds(self._kind[rows], scales, types)

    def _of_kinds(self, kinds: Ints, scales: Ints, types: Sequence[str]) -> Floats:
        found = np.empty((len(kinds), len(types)))
        columns = [self._types.index(name) if name in self._types else -1 for name in types]
        for line, (kind, scale) in enumerate(zip(kinds.tolist(), scales.tolist(), strict=True)):
            believed = self._believed(kind, scale)
            best = float(believed.max())
            for place, column in enumerate(columns):
                found[line, place] = believed[column] if column >= 0 else best or 1.0
        return found

    def together(self, first: Rows, second: Rows, scales: Ints, types: Sequence[str]) -> Floats:
        """Steps/s of both halves of pairs on the same GPUs, [pair, type, half]; 0 if unknown."""
        found: Floats = np.nan_to_num(self.known_together(first, second, scales, types), nan=0.0)
        return found

    def known_together(
        self, first: Rows, second: Rows, scales: Ints, types: Sequence[str]
    ) -> Floats:
        """The same; NaN where not both halves were measured."""
        return self._of_pairs(self._kind[first], self._kind[second], scales, types)

    def _of_pairs(self, first: Ints, second: Ints, scales: Ints, types: Sequence[str]) -> Floats:
        found = np.full((len(first), len(types), 2), np.nan)
        if not self._pairs:
            return found
        columns = [self._types.index(name) if name in self._types else -1 for name in types]
        lines = zip(first.tolist(), second.tolist(), scales.tolist(), strict=True)
        for line, (one, other, scale) in enumerate(lines):
            for place, column in enumerate(columns):
                mine = self._pairs.get((one, other, column, scale))
                theirs = self._pairs.get((other, one, column, scale))
                if mine is not None and theirs is not None:
                    found[line, place] = mine, theirs
        return found

    def steps_per_work(self, rows: Rows) -> Floats:
        """Steps in a second on the fastest type, which is what a user's seconds are taken for."""
        kinds, scales = self._kind[rows].tolist(), self._gangs[rows].tolist()
        best = [float(self._believed(k, s).max()) for k, s in zip(kinds, scales, strict=True)]
        return np.array([rate or 1.0 for rate in best])

    # -- for estimators of pairs -------------------------------------------------------------------

    def codes(self, rows: Rows) -> Ints:
        """The kinds of rows; −1: nothing is known."""
        return self._kind[rows]

    def paired_kinds(self, types: Sequence[str], scale: int = 1) -> Ints:
        """Kinds that run on so many GPUs of each type, and whose pairs were all measured there."""
        if not all(name in self._types for name in types):
            return np.zeros(0, np.int64)
        columns = [self._types.index(name) for name in types]
        good = []
        for kind, known in sorted(self._measured.items()):
            rates = known.get(scale)
            if rates is not None and bool((rates[columns] > 0).all()):
                good.append(kind)

        def is_known(one: int, other: int) -> bool:
            return all((one, other, column, scale) in self._pairs for column in columns)

        # kinds with any pair at all first, so that one without none does not spoil the others
        good = [one for one in good if any(is_known(one, other) for other in good)]
        found = [one for one in good if all(is_known(one, other) for other in good)]
        return np.array(found, np.int64)

    def normalised(self, kinds: Ints, others: Ints, types: Sequence[str], scale: int = 1) -> Floats:
        """Throughput beside another over that alone, [kind, type, other]; NaN where unknown."""
        first, second = np.repeat(kinds, len(others)), np.tile(others, len(kinds))
        scales = np.full(len(first), scale)
        beside = self._of_pairs(first, second, scales, types)[:, :, 0]
        alone = self._of_kinds(first, scales, types)
        part = np.divide(beside, alone, out=np.zeros(alone.shape), where=alone > 0)
        shaped = np.clip(part, 0.0, 1.0).reshape(len(kinds), len(others), len(types))
        return np.ascontiguousarray(shaped.transpose(0, 2, 1))


def measured_speeds(columns: Mapping[str, Any], gangs: Ints) -> MeasuredSpeeds | None:
    """What a snapshot knows of speeds; None when it knows nothing of its own jobs."""
    if not columns or not (columns["kind"] >= 0).any():
        return None
    return MeasuredSpeeds(columns, gangs)


def latest_change(columns: Mapping[str, Any]) -> float:
    """When a speed last changed much; −inf for never."""
    return float(columns["changed_at"].max()) if columns else -np.inf


def changed_since(columns: Mapping[str, Any], moment: float, rows: Rows) -> Rows:
    """Those rows of whose kind a speed has changed much after a moment."""
    if not columns:
        return rows[:0]
    kinds = np.unique(columns["of"][columns["changed_at"] > moment])
    known = columns["kind"]
    there = rows[rows < len(known)]
    found: Rows = there[np.isin(known[there], kinds)]
    return found
