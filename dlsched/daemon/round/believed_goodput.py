"""What a live round believes of goodput: what jobs have reported, and what stands in for the rest.

Of a job that has reported nothing, nothing is fitted and its batch size stays; its restart is taken
to cost what those of other jobs do, or what the cluster assumes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dlsched.core.arrays import Bools, Floats, Ints, Rows
from dlsched.core.goodput.belief import TrainingOracle
from dlsched.core.goodput.efficiency import UNKNOWN_NOISE
from dlsched.core.goodput.params import BatchLimits
from dlsched.core.units import UnitTable

FIELDS = 7  # of the throughput model


class BelievedGoodput:
    """The columns of the table of training profiles, as policies see them."""

    oracle: TrainingOracle | None = None

    def __init__(self, columns: Mapping[str, Any], table: UnitTable, restart_s: float) -> None:
        """Take in the columns of the table of training profiles.

        Where no restart was measured, one is taken to cost `restart_s`.
        """
        count = len(table)
        self._types: tuple[str, ...] = tuple(columns.get("types", ()))
        self._at = np.full(count, -1, np.int64)  # each row's place in the columns
        self._columns = columns
        if columns:
            self._at[columns["rows"]] = np.arange(len(columns["rows"]))
        reported = columns.get("restart_s", np.zeros(0))
        measured = reported[~np.isnan(reported)]
        self._restart_s = float(measured.mean()) if measured.size else restart_s
        self._asked = self._asked_for(table)

    @staticmethod
    def _asked_for(table: UnitTable) -> Floats:
        """Samples a step that rows were submitted with; where they say nothing, one a GPU."""
        batch = table.extra.get("batch_size")
        most = np.maximum(np.maximum(table.max_gpus, table.gang), 1).astype(np.float64)
        if batch is None or batch.dtype.kind != "f":
            return most
        return np.where(batch >= 1, batch, most)

    def _known(self, rows: Rows) -> tuple[Bools, Ints]:
        at = self._at[rows]
        return at >= 0, at[at >= 0]

    def _of_type(self, name: str, rows: Rows, gpu_type: str, column: Any) -> Any:
        """Fill a column, that has what stands for unknown in it, from those of a GPU type."""
        if not gpu_type and len(self._types) == 1:
            gpu_type = self._types[0]
        if gpu_type in self._types:
            known, at = self._known(rows)
            column[known] = self._columns[name][at, self._types.index(gpu_type)]
        return column

    # -- GoodputBelief -----------------------------------------------------------------------------

    def perf(self, rows: Rows, gpu_type: str = "") -> Floats:
        """Fitted `PerfParams`, [row, 7]; NaN where nothing has been fitted."""
        found: Floats = self._of_type("perf", rows, gpu_type, np.full((len(rows), FIELDS), np.nan))
        return found

    def grads(self, rows: Rows) -> Floats:
        """The latest noise of gradients, [row, 2]."""
        found = np.tile(np.array(UNKNOWN_NOISE, np.float64), (len(rows), 1))
        known, at = self._known(rows)
        if at.size:
            found[known] = self._columns["grads"][at]
        return found

    def limits(self, rows: Rows, gpu_type: str = "") -> BatchLimits:
        """Batch limits, a column each."""
        asked = self._asked[rows]
        ones = np.ones(len(rows))
        found = np.stack([asked, asked, ones, asked, ones, ones], axis=1)
        known, at = self._known(rows)
        if at.size:
            found[known] = self._columns["limits"][at]
        initial, maximum, least, most, accumulation, fixed = found.T
        return BatchLimits(initial, maximum, least, most, accumulation > 0, fixed > 0)

    def replica_gpus(self, rows: Rows, gpu_type: str = "") -> Ints:
        """One GPU a replica."""
        return np.ones(len(rows), np.int64)

    def profiled(self, rows: Rows, gpu_type: str = "") -> Ints:
        """Most replicas it ever ran on there; 0: never."""
        found: Ints = self._of_type("profiled", rows, gpu_type, np.zeros(len(rows), np.int64))
        return found

    def one_gpu_step(self, rows: Rows, gpu_type: str = "") -> Floats:
        """Seconds a sample on one GPU there; NaN: never measured."""
        found: Floats = self._of_type("one_gpu_step", rows, gpu_type, np.full(len(rows), np.nan))
        return found

    def restart_s(self, rows: Rows) -> Floats:
        """Seconds without progress that a start costs."""
        found = np.full(len(rows), self._restart_s)
        known, at = self._known(rows)
        if at.size:
            reported = self._columns["restart_s"][at]
            found[known] = np.where(np.isnan(reported), self._restart_s, reported)
        return found

    def version(self, rows: Rows) -> Ints:
        """Grows whenever anything that is believed of the row changes."""
        found = np.zeros(len(rows), np.int64)
        known, at = self._known(rows)
        if at.size:
            found[known] = self._columns["version"][at]
        return found
