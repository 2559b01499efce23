"""The latest submit with which a job still keeps its deadline.

Where nothing else arrives, a cluster changes only when jobs start or end. So a job is supposed to
be submitted at those moments, and in every scenario run on until it has ended. The last moment that
keeps the deadline is found by halving. Under backfilling a later submit may be the better one, so
the moments that follow it are tried too. After the last moment that keeps it, a job that starts at
once may wait for as long as it has time to spare, or, if it fills a hole, as the hole lasts. A time
that is returned was tried.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from dlsched.core.arrays import Floats, Rows
from dlsched.core.scenarios import SCENARIOS, SURE
from simulate.engine import Engine
from simulate.outlook import Outlook

FURTHER = 32  # moments after the last that keeps the deadline which are tried, too
DUST_S = 1e-6  # a difference that rounding makes
TO_S = 1.0  # how exact it is where it cannot be said to the digit
LONGEST_FIRST = sorted(SCENARIOS, reverse=True)  # the scenario that most likely misses a deadline


class _NoTimeLeft(Exception):
    """A run was cut short."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaterSubmit:
    """A job that is not submitted yet, and could be submitted later than now.

    Attributes:
        present: an engine in which it is still to arrive; what is tried leaves it as it was.
        row: of the job.
        due: its deadline, in seconds of the engine's clock.
        unknown_s: what a job takes whose duration is not predicted.
        arrivals: all rows that still arrive, this one too.
        overrides: other parts by stage, which decide from now on.
        horizon_s: look no further.
        until: by `time.monotonic`, when there is no time left.
    """

    present: Engine
    row: int
    due: float
    unknown_s: float
    arrivals: Rows
    overrides: Mapping[str, str] | None = None
    horizon_s: float = math.inf
    until: float = math.inf

    def latest(self, now: float) -> float:
        """When it can be submitted at the latest, seconds of the engine's clock.

        Args:
            now: when it is sure to keep its deadline.

        Returns:
            the time, not before `now`; NaN: there was no time to find out.
        """
        best = math.nan
        try:
            moments: list[float] = [now, *self._moments(now).tolist()]
            spare: dict[int, float] = {}

            def keeps(place: int) -> bool:
                if place not in spare:
                    spare[place] = self._spare(moments[place])
                return not math.isnan(spare[place])

            last, beyond = 0, len(moments)
            while beyond - last > 1:
                middle = (last + beyond) // 2
                last, beyond = (middle, beyond) if keeps(middle) else (last, middle)
                best = moments[last]
            further = last
            while further < min(last + FURTHER, len(moments) - 1):
                further += 1
                if keeps(further):
                    last = further
                    best = moments[last]
            if not keeps(last):
                return math.nan
            best = moments[last]
            following = moments[last + 1] if last + 1 < len(moments) else self.due
            waits = min(best + spare[last], math.nextafter(following, -math.inf))
            for at in (waits, waits - DUST_S):
                if at > best and not math.isnan(self._spare(at)):
                    return at
            while waits - best > TO_S:  # a hole that it fills gets shorter
                half = (best + waits) / 2
                best, waits = (best, half) if math.isnan(self._spare(half)) else (half, waits)
        except _NoTimeLeft:
            pass
        return best

    def _moments(self, now: float) -> Floats:
        """When other jobs start or end before the deadline, in any scenario; ascending."""
        with self._submitted(self.due) as outlook:
            for factor, _ in SCENARIOS:
                self._look(outlook, factor, None)
            others = outlook.rows != self.row
            times: Floats = np.unique([each[others] for each in (*outlook.starts, *outlook.ends)])
        ahead: Floats = times[(times > now) & (times < self.due)]
        return ahead

    def _spare(self, at: float) -> float:
        """Seconds between its end, when submitted then, and its deadline; NaN: it may miss it."""
        chance = 1.0
        with self._submitted(at) as outlook:
            for factor, weight in LONGEST_FIRST:
                self._look(outlook, factor, self.row)
                if not outlook.ends[-1][outlook.rows == self.row].item() <= self.due:
                    chance -= weight
                if chance < SURE:
                    return math.nan
            ends = [float(each[outlook.rows == self.row][0]) for each in outlook.ends]
        return self.due - max(end for end in ends if end <= self.due)

    def _look(self, outlook: Outlook, factor: float, only: int | None) -> None:
        patience_s = self.until - time.monotonic()
        if patience_s <= 0 or not outlook.look(factor, self.horizon_s, patience_s, only=only):
            raise _NoTimeLeft

    @contextmanager
    def _submitted(self, at: float) -> Iterator[Outlook]:
        """The present in which the job is submitted at a time, with the same deadline."""
        table, visible, row = self.present.world.table, self.present.coming.visible, self.row
        columns = (table.submit_time, table.deadline, visible)
        before = [column.item(row) for column in columns]
        table.submit_time[row], table.deadline[row], visible[row] = at, self.due - at, at
        try:
            yield Outlook(
                self.present,
                self.unknown_s,
                arrivals=self.arrivals[np.argsort(visible[self.arrivals], kind="stable")],
                overrides=self.overrides,
            )
        finally:
            for column, value in zip(columns, before, strict=True):
                column[row] = value
