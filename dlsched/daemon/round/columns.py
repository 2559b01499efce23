"""Columns that grow: the live jobs, one row each, packed when enough of them have ended.

Rows are in the order of job ids. Invariant: `row_of` names exactly the rows in use, and packing
keeps their order.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlsched.core.arrays import Bools

__all__ = ["AWAY", "COMPLETED", "ENDED", "FAILED", "HOLDING", "PENDING", "SUSPENDED", "JobColumns"]

# where a job stands, as the board sees it; suspended it keeps its GPUs, away it does not
PENDING, HOLDING, SUSPENDED, ENDED, AWAY = 0, 1, 2, 3, 4
# how an ended job ended
COMPLETED, FAILED = 1, 2
# why a run is on its way out
STAYS, GIVES_WAY, IS_ENDING = 0, 1, 2

_F, _I, _B, _S = np.float64, np.int64, np.bool_, np.int8
_KINDS: dict[str, tuple[type[np.generic], float | int | bool]] = {
    "job": (_I, 0),
    # what policies see as it is
    "submit_time": (_F, np.nan),
    "gang": (_I, 1),
    "min_gpus": (_I, -1),
    "max_gpus": (_I, -1),
    "gpu_share": (_F, 1.0),
    "cpus": (_F, np.nan),
    "memory_gb": (_F, np.nan),
    "priority": (_F, np.nan),
    "weight": (_F, np.nan),
    "deadline": (_F, np.nan),
    "time_limit": (_F, np.nan),
    "user": (_I, -1),
    "account": (_I, -1),
    "vc": (_I, -1),
    "pool": (_I, 0),
    "since": (_F, np.nan),
    "progress_from": (_F, np.nan),
    "held_s": (_F, 0.0),
    "executed": (_F, 0.0),
    "saved": (_F, 0.0),
    "attained": (_F, 0.0),
    "gpus_now": (_I, 0),
    "first_start": (_F, np.nan),
    "finish": (_F, np.nan),
    "starts": (_I, 0),
    "preemptions": (_I, 0),
    "migrations": (_I, 0),
    "resizes": (_I, 0),
    "lost_s": (_F, 0.0),
    "overhead_s": (_F, 0.0),
    "restart_s": (_F, 0.0),
    "largest_scale": (_I, 0),
    # what the live world needs besides
    "expected": (_F, np.nan),  # how long its user thinks it runs, in seconds
    "steps_done": (_F, np.nan),  # as its run has told
    "loss": (_F, np.nan),  # likewise
    "phase": (_S, PENDING),
    "outcome": (_S, 0),
    "leaving": (_S, STAYS),
    "runs": (_I, 0),  # the highest run number given
    "held": (_B, False),
    "begin_at": (_F, -np.inf),
    "not_before": (_F, -np.inf),  # after a start that failed
    "failed_starts": (_I, 0),
    "waits_for": (_B, False),  # others, by its dependencies
    "orphan": (_B, False),  # a run of it that the database does not know is alive
}
SEEN_BY_POLICIES = tuple(_KINDS)[1 : tuple(_KINDS).index("expected")]


class JobColumns:
    """One array a column, each as long as there is room for.

    Attributes:
        count: rows in use.
        row_of: the row of each job.
    """

    def __init__(self, room: int = 64) -> None:
        self.count = 0
        self.row_of: dict[int, int] = {}
        self._columns: dict[str, NDArray[Any]] = {
            name: np.full(room, fresh, kind) for name, (kind, fresh) in _KINDS.items()
        }

    def __getitem__(self, name: str) -> NDArray[Any]:
        """A column, of the rows in use; writing to it changes the row."""
        return self._columns[name][: self.count]

    def get(self, name: str, row: int) -> Any:
        """One value, as a plain one."""
        return self._columns[name].item(row)

    def set(self, row: int, **values: Any) -> None:
        """Set values of one row."""
        for name, value in values.items():
            self._columns[name][row] = value

    def append(self, job: int, **values: Any) -> int:
        """A new row; ids only grow, so it is the last."""
        row = self.count
        if row == len(self._columns["job"]):
            for name, column in self._columns.items():
                kind, fresh = _KINDS[name]
                self._columns[name] = np.concatenate([column, np.full(row + 64, fresh, kind)])
        self.count += 1
        self.row_of[job] = row
        self.set(row, job=job, **values)
        return row

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
