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
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlsched.core.arrays import Bools, Floats, Ints, Rows
from dlsched.core.occupancy import Placement

__all__ = ["COMPLETED", "FUTURE", "HELD_BACK", "RUNNING", "WAITING", "Status", "UnitTable", "Units"]


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

_COLUMNS: dict[str, tuple[type[np.generic], float | int]] = {
    # what the user asked for
    "submit_time": (np.float64, np.nan),
    "gang": (np.int64, 1),
    "min_gpus": (np.int64, -1),
    "max_gpus": (np.int64, -1),
    "gpu_share": (np.float64, 0.0),
    "cpus": (np.float64, np.nan),
    "memory_gb": (np.float64, np.nan),
    "priority": (np.float64, np.nan),
    "weight": (np.float64, np.nan),
    "deadline": (np.float64, np.nan),
    "time_limit": (np.float64, np.nan),
    "user": (np.int64, -1),
    "account": (np.int64, -1),
    "vc": (np.int64, -1),
    "group": (np.int64, -1),
    "pool": (np.int64, 0),
    # what is believed of it
    "predicted_work": (np.float64, np.nan),
    # what happened to it
    "status": (np.int8, int(Status.FUTURE)),
    "admitted_at": (np.float64, np.nan),
    "since": (np.float64, np.nan),
    "progress_from": (np.float64, np.nan),
    "rate": (np.float64, 1.0),
    "held_s": (np.float64, 0.0),
    "executed": (np.float64, 0.0),
    "saved": (np.float64, 0.0),
    "attained": (np.float64, 0.0),
    "gpus_now": (np.int64, 0),
    "first_start": (np.float64, np.nan),
    "finish": (np.float64, np.nan),
    "starts": (np.int64, 0),
    "preemptions": (np.int64, 0),
    "migrations": (np.int64, 0),
    "resizes": (np.int64, 0),
    "lost_s": (np.float64, 0.0),
    "overhead_s": (np.float64, 0.0),
    "restart_s": (np.float64, 0.0),
    "largest_scale": (np.int64, 0),
}


class UnitTable:
    """Every unit of a world, one array a column; row numbers never change.

    What the user asked for: `submit_time` (s), `gang` (GPUs needed at once), `min_gpus`,
    `max_gpus`, `gpu_share` (part of each GPU that it needs; 0: not said, so that a policy may pair
    it with anybody), `cpus`, `memory_gb` (for the whole gang), `priority` (smaller first),
    `weight`, `deadline` (s after submit), `time_limit` (s), `user`, `account`, `vc` (codes of
    `names`), `group`, `pool` (which set of nodes it may use).
    What is believed: `predicted_work` (s of execution in all, by the run's estimator).
    What happened: `status`, `admitted_at`, `since` (last start or stop), `progress_from` (when the
    restart overhead of this start ends), `rate` (work per second now), `held_s` (s holding GPUs),
    `executed` (s of work done), `saved` (work in the last checkpoint), `attained` (GPU-s received),
    `gpus_now`, `first_start`, `finish`, `starts`, `preemptions`, `migrations`, `resizes`,
    `lost_s` (work done again), `overhead_s` (s on GPUs without progress), `restart_s` (those
    of them that starts cost), `largest_scale` (most GPUs it ever ran on).
    By row, where it matters: `parents`; `shapes` (GPUs on each of several nodes, where the gang may
    not lie as it comes); `whole_nodes` (rows that share their nodes with nobody); `homes` (where a
    suspended row is resident: it goes on there, or not at all).
    """

    submit_time: Floats
    gang: Ints
    min_gpus: Ints
    max_gpus: Ints
    gpu_share: Floats
    cpus: Floats
    memory_gb: Floats
    priority: Floats
    weight: Floats
    deadline: Floats
    time_limit: Floats
    user: Ints
    account: Ints
    vc: Ints
    group: Ints
    pool: Ints
    predicted_work: Floats
    status: NDArray[np.int8]
    admitted_at: Floats
    since: Floats
    progress_from: Floats
    rate: Floats
    held_s: Floats
    executed: Floats
    saved: Floats
    attained: Floats
    gpus_now: Ints
    first_start: Floats
    finish: Floats
    starts: Ints
    preemptions: Ints
    migrations: Ints
    resizes: Ints
    lost_s: Floats
    overhead_s: Floats
    restart_s: Floats
    largest_scale: Ints

    def __init__(self, count: int) -> None:
        for name, (dtype, unknown) in _COLUMNS.items():
            setattr(self, name, np.full(count, unknown, dtype))
        self.count = count
        self.extra: dict[str, NDArray[Any]] = {}
        self.names: dict[str, tuple[str, ...]] = {"user": (), "account": (), "vc": (), "group": ()}
        self.parents: dict[int, tuple[int, ...]] = {}
        self.shapes: dict[int, tuple[int, ...]] = {}
        self.whole_nodes: set[int] = set()
        self.homes: dict[int, Placement] = {}
        self._forget_marks()

    def _forget_marks(self) -> None:
        self._says_shares: bool | None = None
        self._marks: Bools = np.zeros(self.count, np.bool_)
        self._marked: Rows = np.zeros(0, np.int64)

    def __len__(self) -> int:
        return self.count

    def copy(self) -> UnitTable:
        """A table of its own with the same rows."""
        return self.take(np.arange(self.count))

    def take(self, rows: Rows) -> UnitTable:
        """A new table of copies of some rows, renumbered from 0."""
        table = object.__new__(UnitTable)
        for name in _COLUMNS:
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
        table.shapes = {renumbered[r]: s for r, s in self.shapes.items() if r in renumbered}
        table.whole_nodes = {renumbered[row] for row in self.whole_nodes if row in renumbered}
        table.homes = {renumbered[r]: p for r, p in self.homes.items() if r in renumbered}
        return table

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

    def has(self, column: str) -> Bools:
        """Per row: is this column known? A missing extra column is known nowhere."""
        values: NDArray[Any] | None = (
            getattr(self, column) if column in _COLUMNS else self.extra.get(column)
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


def _stored(name: str, doc: str) -> Any:
    """A property that gathers one column of the table for the selected rows."""

    def gather(units: Units) -> NDArray[Any]:
        column: NDArray[Any] = getattr(units.table, name)
        return column[units.rows]

    gather.__doc__ = doc
    return property(gather)


class Units:
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
    submit_time: Floats = _stored("submit_time", "Seconds of the submit.")
    gang: Ints = _stored("gang", "GPUs needed at once.")
    user: Ints = _stored("user", "User code.")
    vc: Ints = _stored("vc", "Virtual cluster code.")
    group: Ints = _stored("group", "Group number, -1 for none.")
    pool: Ints = _stored("pool", "Which set of nodes it may use.")
    priority: Floats = _stored("priority", "Smaller goes first; NaN when not given.")
    weight: Floats = _stored("weight", "Share weight; NaN when not given.")
    deadline: Floats = _stored("deadline", "Seconds after submit; NaN when none.")
    time_limit: Floats = _stored("time_limit", "The user's own limit in seconds; NaN if none.")
    predicted_work: Floats = _stored("predicted_work", "Seconds of work in all, as predicted.")
    status: NDArray[np.int8] = _stored("status", "A Status.")
    since: Floats = _stored("since", "When it last started or stopped.")
    admitted_at: Floats = _stored("admitted_at", "When it was admitted.")
    starts: Ints = _stored("starts", "How often it has started.")
    first_start: Floats = _stored("first_start", "First start; NaN if never.")
    gpus_now: Ints = _stored("gpus_now", "GPUs held now.")

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
            table.attained, lambda rows: (self.now - table.since[rows]) * table.gpus_now[rows]
        )

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
