"""Metrics that jobs push and policies read: any key, merged over ranks and over time.

A part declares the keys it knows with a merge rule and a default. Between two collections a job's
ranks push values; a collection merges them (`sum` adds to the total so far, `mean` replaces it by
the mean of what came) and clears what was pushed. Merged values are columns of the unit table, so a
policy reads them with `units.extra(key)`. As in Blox, EuroSys 2024.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from dlsched.core.arrays import Floats
from dlsched.core.sums import ordered_sum
from dlsched.core.units import UnitTable


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A key that jobs may push.

    Attributes:
        key: its name, also the column's.
        merge: `sum` (amounts: iterations, examples) or `mean` (rates: seconds an iteration).
        default: the value before anything was pushed.
    """

    key: str
    merge: Literal["sum", "mean"]
    default: float = math.nan


class MetricBoard:
    """What was pushed since the last collection, and the columns it is merged into.

    Nonsense (NaN, infinity, an unknown key) is ignored and counted.

    Attributes:
        metrics: the declared ones, by key.
        ignored: how many pushes were ignored.
    """

    def __init__(self, table: UnitTable, metrics: Iterable[Metric]) -> None:
        self.metrics: dict[str, Metric] = {}
        for metric in metrics:
            known = self.metrics.setdefault(metric.key, metric)
            if known != metric:
                raise ValueError(f"metric {metric.key} is declared twice, as {known} and {metric}")
        self.ignored = 0
        self._table = table
        self._pushed: dict[tuple[str, int], list[float]] = {}
        for key, metric in self.metrics.items():
            table.extra.setdefault(key, np.full(len(table), metric.default))

    def push(self, row: int, key: str, value: float) -> None:
        """One rank of a unit reports a value."""
        if key not in self.metrics or not math.isfinite(value):
            self.ignored += 1
            return
        self._pushed.setdefault((key, row), []).append(float(value))

    def collect(self) -> None:
        """Merge what was pushed into the columns, and clear it."""
        for (key, row), values in self._pushed.items():
            column: Floats = self._table.extra[key]
            if self.metrics[key].merge == "mean":
                column[row] = ordered_sum(values) / len(values)
            else:
                before = column[row]
                column[row] = (0.0 if math.isnan(before) else before) + ordered_sum(values)
        self._pushed.clear()
