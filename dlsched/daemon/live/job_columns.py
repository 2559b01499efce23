"""Columns that grow: the live jobs, one row each, packed when enough of them have ended.

Rows are in the order of job ids. Invariant: `row_of` names exactly the rows in use, and packing
keeps their order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from dlsched.core.arrays import Bools
from dlsched.core.cluster.site_rules import WEEK_S
from dlsched.core.service_clock import ClockColumns, ServiceClock
from dlsched.core.sharing.decayed_usage import DecayedUsage
from dlsched.core.units import UNIT_COLUMNS

# a job's phase; a suspended job keeps its GPUs, a job that is away does not
PENDING, HOLDING, SUSPENDED, ENDED, AWAY = 0, 1, 2, 3, 4
# how an ended job ended
COMPLETED, FAILED = 1, 2
# whether a run has been asked to stop: no; yes, its GPUs go to others; yes, as it ends
STAYS, GIVES_WAY, IS_ENDING = 0, 1, 2

_F, _I, _B, _S = np.float64, np.int64, np.bool_, np.int8
# what policies see as it is; the rest is made for each snapshot, or is of replays alone
SEEN_BY_POLICIES = tuple(
    name
    for name in UNIT_COLUMNS
    if name
    not in {"group", "predicted_work", "status", "admitted_at", "rate", "gpu_limit", "gpu_memory"}
)
MEASURED = ("gpu_util", "gpu_memory")  # of its GPUs, by the nodes' drivers
_KINDS: dict[str, tuple[type[np.generic], float | int | bool]] = {
    "job": (_I, 0),
    **{name: UNIT_COLUMNS[name] for name in SEEN_BY_POLICIES},
    # what the live world needs besides
    "expected": (_F, np.nan),  # seconds that its user expects it to run
    "steps_done": (_F, np.nan),  # as its run has reported
    "loss": (_F, np.nan),  # likewise
    "accuracy": (_F, np.nan),  # likewise; unknown after a restart of the daemon until it reports
    "gpu_util": (_F, np.nan),  # per cent of the time in which its GPUs computed, while alone there
    "gpu_util_s": (_F, 0.0),  # seconds over which that was measured
    "gpu_memory": (_F, np.nan),  # most GiB that were in use on one of its GPUs, likewise
    "phase": (_S, PENDING),
    "outcome": (_S, 0),
    "leaving": (_S, STAYS),
    "runs": (_I, 0),  # the highest run number given
    "held": (_B, False),
    "begin_at": (_F, -np.inf),
    "not_before": (_F, -np.inf),  # after a start that failed
    "failed_starts": (_I, 0),
    "bytes": (_I, 0),  # of its script, arguments and environment; its part of what an array shares
    "orphan": (_B, False),  # a run of it that the database does not know is alive
}


class PackedRow(NamedTuple):
    """Values of some columns; thousands of them are added at once without a look at each value."""

    kinds: np.dtype[np.void]
    values: bytes

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> PackedRow:
        """A row of values by the names of their columns."""
        kinds = _kinds_of(tuple(values))
        return cls(kinds, np.array(tuple(values.values()), kinds).tobytes())

    def unpacked(self) -> dict[str, Any]:
        """The values by the names of their columns."""
        values = np.frombuffer(self.values, self.kinds)[0].item()
        return dict(zip(self.kinds.names or (), values, strict=True))


@cache
def _kinds_of(names: tuple[str, ...]) -> np.dtype[np.void]:
    return np.dtype([(name, _KINDS[name][0]) for name in names])


class JobColumns:
    """One array a column, each as long as there is room for.

    Attributes:
        count: rows in use.
        row_of: the row of each job.
        usage: what the owners of jobs have used, in this term and before.
    """

    def __init__(self, room: int = 64) -> None:
        self.count = 0
        self.usage = DecayedUsage(WEEK_S)
        self.row_of: dict[int, int] = {}
        self._columns: dict[str, NDArray[Any]] = {
            name: np.full(room, fresh, kind) for name, (kind, fresh) in _KINDS.items()
        }

    def __getitem__(self, name: str) -> NDArray[Any]:
        """A column, of the rows in use; writing to it changes the row."""
        return self._columns[name][: self.count]

    @property
    def clock(self) -> ServiceClock:
        """The jobs' service clocks, until a row is added or the rows are packed."""
        return ServiceClock(cast(ClockColumns, SimpleNamespace(**self._columns)), self.usage)

    def get(self, name: str, row: int) -> Any:
        """One value, as a plain one."""
        return self._columns[name].item(row)

    def set(self, row: int | slice, **values: Any) -> None:
        """Set values of one row, or of neighbouring ones."""
        for name, value in values.items():
            self._columns[name][row] = value

    def append(
        self,
        jobs: Sequence[int],
        rows: Sequence[PackedRow],
        counts: Sequence[int],
        **values: Any,
    ) -> None:
        """Add rows; ids only grow, so they are the last ones.

        Args:
            jobs: their ids.
            rows: values of the same columns each.
            counts: for how many neighbouring jobs each of `rows` stands.
            values: the same for all.
        """
        first, end = self.count, self.count + len(jobs)
        if end > len(self._columns["job"]):
            for name, column in self._columns.items():
                kind, fresh = _KINDS[name]
                longer = self._columns[name] = np.full(end + 64 + end // 8, fresh, kind)
                longer[:first] = column[:first]
        self.count = end
        self.row_of.update(zip(jobs, range(first, end), strict=True))
        self.set(slice(first, end), job=jobs, **values)
        if rows:
            made = np.frombuffer(b"".join([row.values for row in rows]), rows[0].kinds)
            for name in rows[0].kinds.names or ():
                self._columns[name][first:end] = np.repeat(made[name], counts)

    def sort(self) -> None:
        """Put the rows in the order of their jobs again, after an earlier job came back."""
        order = np.argsort(self["job"], kind="stable")
        for column in self._columns.values():
            column[: self.count] = column[: self.count][order]
        self.row_of = {job: row for row, job in enumerate(self["job"].tolist())}

    def pack(self, keep: Bools) -> list[int]:
        """Drop rows; returns the jobs dropped."""
        gone: list[int] = self["job"][~keep].tolist()
        kept = np.flatnonzero(keep)
        for name, column in self._columns.items():
            kind, fresh = _KINDS[name]
            packed = np.full(max(64, len(kept) + len(kept) // 2), fresh, kind)
            packed[: len(kept)] = column[kept]
            self._columns[name] = packed
        self.count = len(kept)
        self.row_of = {job: row for row, job in enumerate(self["job"].tolist())}
        return gone
