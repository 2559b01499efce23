"""The service clock of units: what they held, attained, worked, lost; one for both worlds.

The clocks are a few columns of a table, one row a unit. They are lazy: a row has what was true when
the unit last started, resumed or left its GPUs, and `Units` adds what has passed since. Times are
seconds, work is in the unit's own measure, service is GPU-seconds. A unit that needs parts of GPUs
is served as many parts.

The methods for one row take plain numbers out of the columns (`item`), with which arithmetic is
several times cheaper; those for many rows do the same to whole columns.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from operator import add
from typing import NamedTuple, Protocol

import numpy as np

from dlsched.core.arrays import Floats, Ints, Rows
from dlsched.core.parts import part_of, parts_of
from dlsched.core.sharing.decayed_usage import DecayedUsage


class ClockColumns(Protocol):
    """The columns of a clock; see `UnitTable` for their meaning."""

    since: Floats
    progress_from: Floats
    held_s: Floats
    executed: Floats
    saved: Floats
    attained: Floats
    gpus_now: Ints
    gpu_share: Floats
    first_start: Floats
    starts: Ints
    lost_s: Floats
    overhead_s: Floats
    restart_s: Floats
    largest_scale: Ints
    owner: Ints


class Account(NamedTuple):
    """What a unit has received, and since when: its values in `UnitTable`'s columns of these names.

    A live cluster writes it down and reads it back as it is, so that a clock goes on after a
    restart as if there had been none.
    """

    since: float
    progress_from: float
    first_start: float
    held_s: float
    executed: float
    saved: float
    attained: float
    lost_s: float
    overhead_s: float
    restart_s: float
    gpus_now: int
    largest_scale: int
    starts: int
    preemptions: int
    migrations: int
    resizes: int


_UNKNOWN = math.nan
NEW = Account(
    math.nan, math.nan, math.nan, *(0.0,) * 7, *(0,) * 6
)  # of a unit that has received nothing


class Received(NamedTuple):
    """What a unit received in one segment, or all those of one run: the only count there is of it.

    Attributes:
        held_s: seconds on GPUs.
        worked_s: seconds at work.
        lost_s: seconds of work that have to be done again.
        overhead_s: seconds on GPUs without progress.
        restart_s: those of them that starts cost.
        attained: GPU-seconds.
    """

    held_s: float = 0.0
    worked_s: float = 0.0
    lost_s: float = 0.0
    overhead_s: float = 0.0
    restart_s: float = 0.0
    attained: float = 0.0

    def plus(self, more: Received) -> Received:
        """Both together."""
        return Received(*map(add, self, more))


NOTHING = Received()


class Segment(NamedTuple):
    """What a unit did on its GPUs, from its start until it leaves them.

    Attributes:
        worked: seconds at work since its work was entered last.
        entered: seconds at work before that, since its start.
        work: what it did in `worked`.
        ready: when it began to work, in seconds; -inf where that is counted elsewhere.
    """

    worked: float
    entered: float
    work: float
    ready: float


class SegmentArrays(NamedTuple):
    """As `Segment`, in arrays by unit; `ready` is None where it is counted elsewhere."""

    worked: Floats
    entered: Floats
    work: Floats
    ready: Floats | None


class ServiceClock:
    """The service clocks of all units of a table.

    Attributes:
        columns: of the table; every method writes to them.
        usage: what the owners of units use; None: it is not counted.
    """

    __slots__ = ("columns", "usage")

    def __init__(self, columns: ClockColumns, usage: DecayedUsage | None = None) -> None:
        """Keep the clocks in these columns."""
        self.columns = columns
        self.usage = usage

    def begin(self, row: int, now: float, gpus: int, *, ready: float, counts: bool = True) -> None:
        """A unit starts on GPUs, resumes on them, or goes on on others.

        Args:
            row: the unit.
            now: seconds.
            gpus: how many it holds from now on.
            ready: when it begins to work.
            counts: is it one more start? Not where it was counted before a restart of the daemon.
        """
        clock = self.columns
        if math.isnan(clock.first_start.item(row)):
            clock.first_start[row] = now
        if counts:
            clock.starts[row] += 1
        clock.since[row] = now
        clock.progress_from[row] = ready
        clock.gpus_now[row] = gpus
        if gpus > clock.largest_scale.item(row):
            clock.largest_scale[row] = gpus
        if self.usage is not None:
            part = part_of(clock.gpu_share.item(row))
            self.usage.change(clock.owner.item(row), gpus * part, now)

    def leave(self, row: int, now: float, segment: Segment) -> Received:
        """A unit leaves its GPUs: it is suspended, preempted, resized, or has ended.

        Returns:
            what it has received since it has them.
        """
        clock = self.columns
        since = clock.since.item(row)
        held = now - since
        worked, entered, work, ready = segment
        clock.held_s[row] += held
        started = min(held, ready - since) if ready > since else 0.0
        if started:
            clock.restart_s[row] += started
        gpus = clock.gpus_now.item(row) * part_of(clock.gpu_share.item(row))
        clock.attained[row] += held * gpus
        if self.usage is not None:
            self.usage.change(clock.owner.item(row), -gpus, now)
        overhead = held - worked - entered
        if overhead:
            clock.overhead_s[row] += overhead
        clock.executed[row] += work
        clock.since[row] = now
        clock.gpus_now[row] = 0
        return Received(held, worked, 0.0, overhead, started, held * gpus)

    def checkpoint(self, row: int, work: float) -> None:
        """So much of a unit's work is saved."""
        clock = self.columns
        clock.saved[row] = work

    def restarted(self, row: int, seconds: float) -> Received:
        """A unit on GPUs reports how long its start took; a second report changes nothing."""
        clock = self.columns
        since = clock.since.item(row)
        if clock.progress_from.item(row) == since:
            clock.progress_from[row] = since + seconds
            clock.restart_s[row] += seconds
            return Received(restart_s=seconds)
        return NOTHING

    def fall_back(self, row: int, rate: float = 1.0) -> Received:
        """A unit that holds no GPUs loses what it did, at `rate` a second, since its checkpoint."""
        clock = self.columns
        saved = clock.saved.item(row)
        lost = clock.executed.item(row) - saved
        if lost > 0:
            clock.lost_s[row] += lost / rate
            clock.executed[row] = saved
            return Received(lost_s=lost / rate)
        return NOTHING

    def begin_all(self, rows: Rows, now: float | Floats, gpus: Ints, ready: Floats) -> None:
        """As `begin`, for many units at once.

        Args:
            rows: the units.
            now: seconds, of all or of each.
            gpus: how many each holds from now on.
            ready: when each begins to work.
        """
        clock = self.columns
        first = clock.first_start[rows]
        clock.first_start[rows] = np.where(np.isnan(first), now, first)
        clock.starts[rows] += 1
        clock.since[rows] = now
        clock.progress_from[rows] = ready
        clock.gpus_now[rows] = gpus
        clock.largest_scale[rows] = np.maximum(clock.largest_scale[rows], gpus)
        if self.usage is not None:
            self.usage.change_all(clock.owner[rows], gpus * parts_of(clock.gpu_share[rows]), now)

    def leave_all(self, rows: Rows, now: float | Floats, segments: SegmentArrays) -> None:
        """As `leave`, for many units at once."""
        clock = self.columns
        since = clock.since[rows]
        held = now - since
        clock.held_s[rows] += held
        if segments.ready is not None:
            clock.restart_s[rows] += np.minimum(now, np.maximum(segments.ready, since)) - since
        gpus = clock.gpus_now[rows] * parts_of(clock.gpu_share[rows])
        clock.attained[rows] += held * gpus
        if self.usage is not None:
            self.usage.change_all(clock.owner[rows], -gpus, now)
        clock.overhead_s[rows] += held - segments.worked - segments.entered
        clock.executed[rows] += segments.work
        clock.since[rows] = now
        clock.gpus_now[rows] = 0


@dataclass(slots=True)
class RunClock:
    """For how long one run of a job has executed, as far as it is known before its end.

    Attributes:
        running_since: when it last started or resumed, in seconds; None while it does not execute.
        before: seconds that it executed before that.
    """

    running_since: float | None = None
    before: float = 0.0

    def start(self, now: float) -> None:
        """Another run begins."""
        self.running_since, self.before = now, 0.0

    def suspend(self, now: float) -> None:
        """The run executes no more; nothing happens where it did not."""
        self.before, self.running_since = self.seconds(now), None

    def resume(self, now: float) -> None:
        """The run goes on."""
        self.running_since = now

    def end(self) -> None:
        """The run is over."""
        self.running_since, self.before = None, 0.0

    def seconds(self, now: float) -> float:
        """Executed seconds up to now."""
        return self.before + (now - self.running_since if self.running_since is not None else 0.0)
