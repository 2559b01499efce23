"""The live jobs: a table of units that grows, and is packed when enough of them have ended.

Rows are in the order of job ids. Invariant: `row_of` names exactly the rows in use, and packing
keeps their order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from dlsched.core.arrays import Bools, Floats, Ints
from dlsched.core.cluster.site_rules import WEEK_S
from dlsched.core.service_clock import Account, ServiceClock
from dlsched.core.sharing.decayed_usage import DecayedUsage
from dlsched.core.units import UNIT_COLUMNS, Kinds, UnitTable

# a job's phase; a suspended job keeps its GPUs, a job that is away does not
PENDING, HOLDING, SUSPENDED, ENDED, AWAY = 0, 1, 2, 3, 4
# how an ended job ended
COMPLETED, FAILED = 1, 2
# whether a run has been asked to stop: no; yes, its GPUs go to others; yes, as it ends
STAYS, GIVES_WAY, IS_ENDING = 0, 1, 2

_F, _I, _B, _S = np.float64, np.int64, np.bool_, np.int8
_SEEN: Kinds = {  # what rounds are told besides
    "job": (_I, 0),
    "runs": (_I, 0),  # the highest run number given
    "claimed": (_B, False),  # it does not run yet on the GPUs that it has; set for each round
    "expected": (_F, np.nan),  # seconds that its user expects it to run
    "steps_done": (_F, np.nan),  # as its run has reported
    "loss": (_F, np.nan),  # likewise
    "accuracy": (_F, np.nan),  # likewise; unknown after a restart of the daemon until it reports
    "gpu_util": (_F, np.nan),  # per cent of the time in which its GPUs computed, while alone there
}
_OWN: Kinds = {  # what only the live world needs
    "gpu_util_s": (_F, 0.0),  # seconds over which `gpu_util` was measured
    "phase": (_S, PENDING),
    "outcome": (_S, 0),
    "leaving": (_S, STAYS),
    "held": (_B, False),
    "partition": (_I, -1),
    "begin_at": (_F, -np.inf),
    "not_before": (_F, -np.inf),  # after a start that failed
    "failed_starts": (_I, 0),
    "measured_starts": (_I, 0),  # those of which `restart_s` is the sum
    "bytes": (_I, 0),  # of its script, arguments and environment; its part of what an array shares
    "orphan": (_B, False),  # a run of it that is unknown, or cannot be killed, is alive
}


class SeenJobs(UnitTable):
    """Jobs as a round sees them: units with ids and with what their runs have reported.

    Here `gpu_memory` is what was in use on the fullest of a job's GPUs, in GiB.
    """

    kinds: ClassVar[Kinds] = {**UNIT_COLUMNS, **_SEEN}

    job: Ints
    runs: Ints
    claimed: Bools
    expected: Floats
    steps_done: Floats
    loss: Floats
    accuracy: Floats
    gpu_util: Floats

    @classmethod
    def of_columns(cls, count: int, columns: Mapping[str, NDArray[Any]]) -> Self:
        """A table of such columns; the others say nothing."""
        table = cls(count)
        for name, column in columns.items():
            setattr(table, name, column)
        return table

    def telling(self) -> dict[str, NDArray[Any]]:
        """The columns that say something of any row."""
        found: dict[str, NDArray[Any]] = {}
        for name, (_, unknown) in self.kinds.items():
            column: NDArray[Any] = getattr(self, name)
            says = ~np.isnan(column) if np.isnan(unknown) else column != unknown
            if name == "job" or says.any():
                found[name] = column
        return found


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
    return np.dtype([(name, JobColumns.kinds[name][0]) for name in names])


class JobColumns(SeenJobs):
    """The jobs of the live world; each column shows the rows in use of a longer one.

    Attributes:
        row_of: the row of each job.
        usage: what the owners of jobs have used, in this term and before.
        clock: the jobs' service clocks.
    """

    kinds: ClassVar[Kinds] = {**SeenJobs.kinds, **_OWN}
    usage: DecayedUsage

    def __init__(self, room: int = 64) -> None:
        super().__init__(0)
        self.usage = DecayedUsage(WEEK_S)
        self.clock = ServiceClock(self, self.usage)
        self.row_of: dict[int, int] = {}
        self._whole: dict[str, NDArray[Any]] = {
            name: np.full(room, fresh, kind) for name, (kind, fresh) in self.kinds.items()
        }
        self._show(0)

    def _show(self, count: int) -> None:
        self.count = count
        for name, whole in self._whole.items():
            setattr(self, name, whole[:count])

    def __getitem__(self, name: str) -> NDArray[Any]:
        """A column; writing to it changes the row."""
        column: NDArray[Any] = getattr(self, name)
        return column

    def get(self, name: str, row: int) -> Any:
        """One value, as a plain one."""
        return getattr(self, name).item(row)

    def set(self, row: int | slice, **values: Any) -> None:
        """Set values of one row, or of neighbouring ones."""
        for name, value in values.items():
            getattr(self, name)[row] = value

    def seen(self) -> SeenJobs:
        """A copy for a round, which may be changed."""
        return SeenJobs.of_columns(self.count, {name: self[name].copy() for name in SeenJobs.kinds})

    def accounts(self, rows: Sequence[int]) -> list[Account]:
        """What the jobs in some rows have received."""
        columns = [self[name][rows].tolist() for name in Account._fields]
        return [Account(*values) for values in zip(*columns, strict=True)]

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
        if end > len(self._whole["job"]):
            for name, column in self._whole.items():
                kind, fresh = self.kinds[name]
                longer = self._whole[name] = np.full(end + 64 + end // 8, fresh, kind)
                longer[:first] = column[:first]
        self._show(end)
        self.row_of.update(zip(jobs, range(first, end), strict=True))
        self.set(slice(first, end), job=jobs, **values)
        if rows:
            made = np.frombuffer(b"".join([row.values for row in rows]), rows[0].kinds)
            for name in rows[0].kinds.names or ():
                self[name][first:end] = np.repeat(made[name], counts)

    def sort(self) -> None:
        """Put the rows in the order of their jobs again, after an earlier job came back."""
        order = np.argsort(self.job, kind="stable")
        for name in self.kinds:
            self[name][:] = self[name][order]
        self.row_of = {job: row for row, job in enumerate(self.job.tolist())}

    def pack(self, keep: Bools) -> list[int]:
        """Drop rows; returns the jobs dropped."""
        gone: list[int] = self.job[~keep].tolist()
        kept = np.flatnonzero(keep)
        for name, (kind, fresh) in self.kinds.items():
            packed = np.full(max(64, len(kept) + len(kept) // 2), fresh, kind)
            packed[: len(kept)] = self[name][kept]
            self._whole[name] = packed
        self._show(len(kept))
        self.row_of = {job: row for row, job in enumerate(self.job.tolist())}
        return gone
