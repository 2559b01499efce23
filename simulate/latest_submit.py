"""The latest submit with which a job still keeps its deadline.

Where nothing else arrives, a cluster changes only when jobs start or end. So a job is supposed to
be submitted at those moments, and in every scenario run on until it has ended. The last moment that
keeps the deadline is found by halving. Under backfilling a later submit may be the better one, so
the moments that follow it are tried too. After the last moment that keeps it, a job that starts at
once may wait for as long as it has time to spare, or, if it fills a hole, as the hole lasts. A time
that is returned was tried.

Before its submit the job changes nothing. So the present is run on without it once, and each try
goes on from there, until the job has ended or its deadline has passed.
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
from simulate.forecast import forecaster
from simulate.scenarios import Scenarios

FURTHER = 32  # moments after the last that keeps the deadline which are tried, too
DUST_S = 1e-6  # a difference that rounding makes
TO_S = 1.0  # how exact it is where it cannot be said to the digit
SEEN_LATER = 2  # rounds after an end in which it is seen at the latest
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
            scenarios = self._scenarios(now)
            spare: dict[int, float] = {}

            def keeps(place: int) -> bool:
                if place not in spare:
                    spare[place] = self._spare(moments[place], scenarios)
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
                if at > best and not math.isnan(self._spare(at, scenarios)):
                    return at
            while waits - best > TO_S:  # a hole that it fills gets shorter
                half = (best + waits) / 2
                keeps_half = not math.isnan(self._spare(half, scenarios))
                best, waits = (half, waits) if keeps_half else (best, half)
        except _NoTimeLeft:
            pass
        return best

    def _moments(self, now: float) -> Floats:
        """When other jobs start or end before the deadline, in any scenario; ascending."""
        scenarios = Scenarios(
            self.present, self.unknown_s, arrivals=self._others(), overrides=self.overrides
        )
        for factor, _ in SCENARIOS:
            if not scenarios.look(factor, self._horizon_s(self.present), self._patience_s()):
                raise _NoTimeLeft
        times: Floats = np.unique([*scenarios.starts, *scenarios.ends])
        ahead: Floats = times[(times > now) & (times < self.due)]
        return ahead

    def _others(self) -> Rows:
        others: Rows = self.arrivals[self.arrivals != self.row]
        return others

    def _scenarios(self, now: float) -> list[_Scenario]:
        scenarios = Scenarios(self.present, self.unknown_s)
        present = _Before(self.present, now, self._others(), self.overrides)
        return [
            _Scenario(weight, scenarios.durations(factor), kept=present, tried=present)
            for factor, weight in LONGEST_FIRST
        ]

    def _spare(self, at: float, scenarios: list[_Scenario]) -> float:
        """Seconds between its end, when submitted then, and its deadline; NaN: it may miss it."""
        chance, latest = 1.0, -math.inf
        for scenario in scenarios:
            end = self._end(at, scenario)
            if end <= self.due:
                latest = max(latest, end)
            else:
                chance -= scenario.weight
            if chance < SURE:
                return math.nan
        for scenario in scenarios:
            scenario.kept = scenario.tried
        return self.due - latest

    def _end(self, at: float, scenario: _Scenario) -> float:
        """When it ends in a scenario, when submitted at a time; NaN: not by its deadline."""
        before = scenario.tried if scenario.tried.moment <= at else scenario.kept
        if before.moment < at:
            ran = self._run(before, scenario, before.coming, until_before=at)
            before = _Before(ran, at, np.array(ran.coming.rows[ran.coming.place :], np.int64))
        scenario.tried = before
        with _submitted(before.engine, self.row, at, self.due) as visible:
            coming = self.arrivals[np.isin(self.arrivals, [*before.coming, self.row])]
            coming = coming[np.argsort(visible[coming], kind="stable")]
            ran = self._run(before, scenario, coming, until_ended=self.row)
        return ran.world.table.finish.item(self.row)

    def _run(
        self,
        before: _Before,
        scenario: _Scenario,
        coming: Rows,
        *,
        until_ended: int | None = None,
        until_before: float | None = None,
    ) -> Engine:
        ran = forecaster(before.engine).run(
            before.overrides,
            horizon=self._horizon_s(before.engine),
            patience_s=self._patience_s(),
            true_work=scenario.needed,
            until_ended=until_ended,
            until_before=until_before,
            arrivals=coming,
        )
        if ran.was_cut:
            raise _NoTimeLeft
        return ran.engine

    def _horizon_s(self, engine: Engine) -> float:
        """Until the round in which an end at the deadline is seen at the latest."""
        semantics = engine.world.semantics
        round_s = max(semantics.grid or 0.0, semantics.spacing or 0.0, DUST_S)
        return min(self.due + SEEN_LATER * round_s - engine.now, self.horizon_s)

    def _patience_s(self) -> float:
        patience_s = self.until - time.monotonic()
        if patience_s <= 0:
            raise _NoTimeLeft
        return patience_s


@dataclass(frozen=True, slots=True)
class _Before:
    """A scenario without the job.

    Attributes:
        engine: as it stands.
        moment: what happens from this moment on has not happened yet, seconds.
        coming: the other rows that still arrive.
        overrides: other parts by stage, which decide from now on.
    """

    engine: Engine
    moment: float
    coming: Rows
    overrides: Mapping[str, str] | None = None


@dataclass(slots=True)
class _Scenario:
    """One scenario.

    Attributes:
        weight: its chance.
        needed: the work that each row really needs.
        kept: right before the latest submit that is known to keep the deadline.
        tried: right before the submit that was tried last.
    """

    weight: float
    needed: Floats
    kept: _Before
    tried: _Before


@contextmanager
def _submitted(engine: Engine, row: int, at: float, due: float) -> Iterator[Floats]:
    """The job is submitted at a time, with the same deadline; gives when rows become visible."""
    table, visible = engine.world.table, engine.coming.visible
    columns = (table.submit_time, table.deadline, visible)
    before = [column.item(row) for column in columns]
    table.submit_time[row], table.deadline[row], visible[row] = at, due - at, at
    try:
        yield visible
    finally:
        for column, value in zip(columns, before, strict=True):
            column[row] = value
