"""Units as columns: the jobs that a round decides on.

A *unit* is a schedulable row: a plain job is one unit; an app, a DAG or a service is a group of
units. `UnitTable` holds every unit a world knows, one numpy array a column. `Units` is a selection
of its rows at a moment, the form in which policies see them. Unknown is NaN, -1 or "", never a
made-up default.

Clocks are kept lazily: the table stores what was true at a row's last start or stop, and `Units`
adds what has run since. So a round in which nothing changes costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import IntEnum
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from dlsched.core.arrays import Bools, Floats, Ints, Rows
from dlsched.core.cluster.gpus_by_type import ByType
from dlsched.core.cluster.occupancy import Placement
from dlsched.core.deadlines import BEST_EFFORT
from dlsched.core.parts import parts_of
from dlsched.core.sharing.decayed_usage import DecayedUsage, owner_numbers
from dlsched.core.sharing.gpu_limits import RowLimits
from dlsched.jobs.fields import COLUMNS
from dlsched.jobs.typed_forms import AskedColumns


class Status(IntEnum):
    """Where a unit is in its life."""

    FUTURE = 0  # not visible yet
    HELD_BACK = 1  # submitted, waits for admission
    WAITING = 2  # admitted, holds no GPUs (never started, or preempted)
    RUNNING = 3  # holds GPUs
    COMPLETED = 4
    REFUSED = 5
    CANCELLED = 6

    @property
    def is_terminal(self) -> bool:
        """Nothing will happen to it any more."""
        return self >= Status.COMPLETED


# plain numbers for hot paths, where looking up an enum's member would cost more than the work
WAITING, RUNNING = int(Status.WAITING), int(Status.RUNNING)
FUTURE, HELD_BACK = int(Status.FUTURE), int(Status.HELD_BACK)
COMPLETED = int(Status.COMPLETED)


Kinds = dict[str, tuple[type[np.generic], float | int]]  # of columns, by name


class _Column(NamedTuple):
    dtype: type[np.generic]
    unknown: float
    doc: str


def _column(dtype: type[np.generic], unknown: float, doc: str) -> Any:
    """A column of `UnitTable`: its type, the value for "unknown", and what it says."""
    return _Column(dtype, unknown, doc)


class UnitTable(AskedColumns):
    """Every unit of a world, one array a column; row numbers never change.

    Besides those here it has the columns of `dlsched.jobs.fields.COLUMNS`, which users ask for.
    By row, where it matters: `parents`; `array_limits` (the array's number, and how many rows of it
    may be there at once); `gpu_limits` (of priority classes and other holders); `shapes` (GPUs on
    each of several nodes, where the gang may not lie as it comes); `gpus_by_type` (of rows with a
    shape: how many of each type these are, on every node); `whole_nodes` (rows that have their
    nodes to themselves); `homes` (where a suspended row is resident: it goes on there, or not at
    all). `fills_gpus`: rows that need parts of GPUs join others while GPUs are free, as in clusters
    that give out parts. `usage` is what the owners of units have used; None where no part asks for
    it.
    """

    kinds: ClassVar[Kinds]  # the type of each column, and its value for "unknown"

    # what the user asked for
    submit_time: Floats = _column(np.float64, np.nan, "Seconds of the submit.")
    gang: Ints = _column(np.int64, 1, "GPUs needed at once.")
    user: Ints = _column(np.int64, -1, "User code (of `names`).")
    account: Ints = _column(np.int64, -1, "Account code.")
    vc: Ints = _column(np.int64, -1, "Virtual cluster code.")
    priority_class: Ints = _column(np.int64, -1, "Priority class code.")
    reservation: Ints = _column(np.int64, -1, "Code of the reservation that it names.")
    owner: Ints = _column(np.int64, -1, "Number of its owner in `usage`.")
    group: Ints = _column(np.int64, -1, "Group number, -1 for none.")
    pool: Ints = _column(np.int64, 0, "Which set of nodes it may use.")
    gpu_memory: Floats = _column(np.float64, np.nan, "GiB that it needs on each of its GPUs.")
    # what is believed of it
    predicted_work: Floats = _column(np.float64, np.nan, "Seconds of work in all, as predicted.")
    # what happened to it
    status: NDArray[np.int8] = _column(np.int8, int(Status.FUTURE), "A Status.")
    admitted_at: Floats = _column(np.float64, np.nan, "When it was admitted.")
    since: Floats = _column(np.float64, np.nan, "When it last started or stopped.")
    progress_from: Floats = _column(np.float64, np.nan, "When this start's overhead ends.")
    rate: Floats = _column(np.float64, 1.0, "Work per second now.")
    held_s: Floats = _column(np.float64, 0.0, "Seconds on GPUs, until `since`.")
    executed: Floats = _column(np.float64, 0.0, "Seconds of work done, until `since`.")
    saved: Floats = _column(np.float64, 0.0, "Work in the last checkpoint.")
    attained: Floats = _column(np.float64, 0.0, "GPU-seconds received, until `since`.")
    gpus_now: Ints = _column(np.int64, 0, "GPUs held now.")
    gpu_limit: Floats = _column(np.float64, 1.0, "Part of the time it may use its GPUs now.")
    first_start: Floats = _column(np.float64, np.nan, "First start; NaN if never.")
    finish: Floats = _column(np.float64, np.nan, "When it ended.")
    starts: Ints = _column(np.int64, 0, "How often it has started.")
    preemptions: Ints = _column(np.int64, 0, "How often it was preempted.")
    migrations: Ints = _column(np.int64, 0, "How often it moved.")
    resizes: Ints = _column(np.int64, 0, "How often its number of GPUs changed.")
    lost_s: Floats = _column(np.float64, 0.0, "Seconds of work done again.")
    overhead_s: Floats = _column(np.float64, 0.0, "Seconds on GPUs without progress.")
    restart_s: Floats = _column(np.float64, 0.0, "Those of them that starts cost.")
    largest_scale: Ints = _column(np.int64, 0, "Most GPUs that it ever ran on.")
    gpu_cpus: Floats = _column(np.float64, np.nan, "Processors given for each GPU; NaN: as asked.")
    gpu_memory_gb: Floats = _column(np.float64, np.nan, "GB given for each GPU; NaN: as asked.")

    def __init__(self, count: int) -> None:
        for name, (dtype, unknown) in self.kinds.items():
            setattr(self, name, np.full(count, unknown, dtype))
        self.count = count
        self.extra: dict[str, NDArray[Any]] = {}
        self.names: dict[str, tuple[str, ...]] = {
            "user": (), "account": (), "vc": (), "group": (),
            "priority_class": (), "reservation": (),
        }  # fmt: skip
        self.parents: dict[int, tuple[int, ...]] = {}
        self.array_limits: dict[int, tuple[int, int]] = {}
        self.gpu_limits = RowLimits()
        self.shapes: dict[int, tuple[int, ...]] = {}
        self.gpus_by_type: dict[int, ByType] = {}
        self.whole_nodes: set[int] = set()
        self.homes: dict[int, Placement] = {}
        self.fills_gpus = False
        self.usage: DecayedUsage | None = None
        self._forget_marks()

    def _forget_marks(self) -> None:
        self._says_shares: bool | None = None
        self._says_priorities: bool | None = None
        self._marks: Bools = np.zeros(self.count, np.bool_)
        self._marked: Rows = np.zeros(0, np.int64)

    def __len__(self) -> int:
        return self.count

    def copy(self) -> Self:
        """A table of its own with the same rows."""
        return self.take(np.arange(self.count))

    def take(self, rows: Rows) -> Self:
        """A new table of copies of some rows, renumbered from 0."""
        table = object.__new__(type(self))
        for name in self.kinds:
            setattr(table, name, getattr(self, name)[rows])
        table.count = len(rows)
        table.extra = {name: column[rows] for name, column in self.extra.items()}
        table.names = self.names
        table._forget_marks()
        renumbered = {int(old): new for new, old in enumerate(rows)}
        table.parents = {
            renumbered[row]: tuple(renumbered[p] for p in parents if p in renumbered)
            for row, parents in self.parents.items()
            if row in renumbered
        }
        table.array_limits = {
            renumbered[r]: limit for r, limit in self.array_limits.items() if r in renumbered
        }
        table.gpu_limits = self.gpu_limits.take(rows)
        table.shapes = {renumbered[r]: s for r, s in self.shapes.items() if r in renumbered}
        table.gpus_by_type = {
            renumbered[r]: wanted for r, wanted in self.gpus_by_type.items() if r in renumbered
        }
        table.whole_nodes = {renumbered[row] for row in self.whole_nodes if row in renumbered}
        table.homes = {renumbered[r]: p for r, p in self.homes.items() if r in renumbered}
        table.fills_gpus = self.fills_gpus
        table.usage = None if self.usage is None else self.usage.copy()
        return table

    def keep_usage(self, half_life_s: float, now: float = 0.0) -> None:
        """Count from now on what the owners of units use; see `DecayedUsage`."""
        self.usage = DecayedUsage(half_life_s)
        kinds = ("user", "account", "vc")
        codes: list[Ints] = [getattr(self, kind) for kind in kinds]
        self.owner = owner_numbers(self.usage, [self.names[k] for k in kinds], codes, now)

    def marks(self, rows: Collection[int]) -> Bools:
        """One flag a row of the table, set for `rows`; valid until the next call."""
        flags = self._marks
        flags[self._marked] = False
        self._marked = np.fromiter(rows, np.int64, len(rows))
        flags[self._marked] = True
        return flags

    @property
    def says_shares(self) -> bool:
        """Does any unit say that it needs only part of a GPU? Asked once: it never changes."""
        if self._says_shares is None:
            self._says_shares = bool(((self.gpu_share > 0) & (self.gpu_share < 1)).any())
        return self._says_shares

    def parts(self, rows: Rows) -> Floats | float:
        """What each GPU of a row counts: the part that it needs; 1 for all where none says any."""
        return parts_of(self.gpu_share[rows]) if self.says_shares else 1.0

    @property
    def says_priorities(self) -> bool:
        """Does any unit have a priority? Asked once: in a replay it never changes."""
        if self._says_priorities is None:
            self._says_priorities = not np.isnan(self.priority).all()
        return self._says_priorities

    def due_at(self, rows: Rows) -> Floats:
        """When rows are to have ended, in seconds; infinite without a deadline to plan for."""
        due = self.submit_time[rows] + self.deadline[rows]
        planned = np.isfinite(due) & (self.deadline_kind[rows] != BEST_EFFORT)
        return np.where(planned, due, np.inf)

    def has(self, column: str) -> Bools:
        """Per row: is this column known? A missing extra column is known nowhere."""
        values: NDArray[Any] | None = (
            getattr(self, column) if column in UNIT_COLUMNS else self.extra.get(column)
        )
        if values is None:
            return np.zeros(self.count, np.bool_)
        if values.dtype.kind == "f":
            found: Bools = ~np.isnan(values)
            return found
        if values.dtype.kind == "O":
            return np.array([bool(value) for value in values], np.bool_)
        known: Bools = np.greater_equal(values, 0)
        return known


_OWN = {name: each for name, each in vars(UnitTable).items() if isinstance(each, _Column)}
UNIT_COLUMNS: Kinds = {
    **{name: (each.dtype, each.unknown) for name, each in _OWN.items()},
    **{
        name: (np.int64 if column.is_whole else np.float64, column.unknown)
        for name, (_, column) in COLUMNS.items()
    },
}
UnitTable.kinds = UNIT_COLUMNS


def _stored(name: str, doc: str) -> Any:
    """A property that gathers one column of the table for the selected rows."""

    def gather(units: Units) -> NDArray[Any]:
        column: NDArray[Any] = getattr(units.table, name)
        return column[units.rows]

    gather.__doc__ = doc
    return property(gather)


class Units(AskedColumns):
    """Some rows of a `UnitTable` at a moment `now`; what policies read.

    Every column is an array as long as `rows`. Clocks of running rows include the time since
    their last start.
    """

    __slots__ = ("_running", "now", "rows", "table")

    def __init__(
        self, table: UnitTable, rows: Rows, now: float, running: Bools | None = None
    ) -> None:
        """Select rows; `running` spares a look at their status when it is known already."""
        self.table = table
        self.rows = rows
        self.now = now
        self._running = running

    def __len__(self) -> int:
        return int(self.rows.shape[0])

    def __getitem__(self, selection: Any) -> Units:
        """The selected ones, in the order of the selection (a mask, positions or a slice)."""
        running = None if self._running is None else self._running[selection]
        return Units(self.table, self.rows[selection], self.now, running)

    # the plain columns, gathered when asked for
    submit_time: Floats
    gang: Ints
    user: Ints
    account: Ints
    vc: Ints
    priority_class: Ints
    owner: Ints
    group: Ints
    pool: Ints
    gpu_memory: Floats
    gpu_limit: Floats
    predicted_work: Floats
    status: NDArray[np.int8]
    since: Floats
    admitted_at: Floats
    starts: Ints
    first_start: Floats
    gpus_now: Ints
    gpu_cpus: Floats
    gpu_memory_gb: Floats

    @property
    def running(self) -> Bools:
        """Which of them hold GPUs now."""
        if self._running is None:
            running: Bools = np.equal(self.table.status[self.rows], RUNNING)
            self._running = running
        return self._running

    def _clock(self, base: Floats, grow: Callable[[Rows], Floats]) -> Floats:
        values = base[self.rows]
        running = self.running
        count = np.count_nonzero(running)  # a quarter of the price of any() and all()
        if count == len(values):
            values += grow(self.rows)
        elif count:
            values[running] += grow(self.rows[running])
        return values

    @property
    def held_s(self) -> Floats:
        """Seconds it has held GPUs in all (restart overhead included)."""
        table = self.table
        return self._clock(table.held_s, lambda rows: self.now - table.since[rows])

    @property
    def attained(self) -> Floats:
        """Attained service in GPU-seconds."""
        table = self.table
        return self._clock(
            table.attained,
            lambda rows: (self.now - table.since[rows]) * table.gpus_now[rows] * table.parts(rows),
        )

    @property
    def counted_gpus(self) -> Floats:
        """What the gang of each counts in service, usage and quotas: parts of GPUs as parts."""
        return self.gang.astype(np.float64) * self.table.parts(self.rows)

    @property
    def executed(self) -> Floats:
        """Seconds of work done so far."""
        table = self.table
        return self._clock(
            table.executed,
            lambda rows: np.maximum(self.now - table.progress_from[rows], 0.0) * table.rate[rows],
        )

    @property
    def remaining_work(self) -> Floats:
        """Predicted seconds of work left; 0 for a unit that has outrun its prediction."""
        return np.maximum(self.table.predicted_work[self.rows] - self.executed, 0.0)

    @property
    def waited_s(self) -> Floats:
        """Seconds since it last stopped or was admitted; 0 for running ones."""
        return np.where(self.running, 0.0, self.now - self.table.since[self.rows])

    def extra(self, column: str) -> NDArray[Any]:
        """A further column of the trace or the submit, by its name."""
        return self.table.extra[column][self.rows]


for _name, _doc in {
    **{name: each.doc for name, each in _OWN.items() if name not in vars(Units)},
    **{name: column.doc for name, (_, column) in COLUMNS.items()},
}.items():
    setattr(Units, _name, _stored(_name, _doc))
