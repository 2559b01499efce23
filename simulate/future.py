"""One alternative run on in every scenario: what becomes of one job, and of all the others.

Both worlds answer "what if" with it: a replay that stands right before a submit, and a live
snapshot in which a job is supposed. A prediction is what the present run on comes to (`Scenarios`);
what is here compares two of them, and asks what else would keep the job's deadline.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from functools import partial

import numpy as np

from dlsched.core.arrays import Floats, Ints, Rows
from dlsched.core.scenarios import SCENARIOS, SURE
from simulate.engine import Engine
from simulate.latest_submit import LaterSubmit
from simulate.scenarios import Scenarios


class Future:
    """What becomes of the job of interest, beside all others, in one alternative.

    Attributes:
        row: of the job; −1 where no job is of interest.
        scenarios: of all units, in the scenarios that were run.
        jobs: a number for each of the scenarios' rows, the same in every alternative.
    """

    def __init__(
        self,
        present: Engine,
        unknown_s: float,
        row: int,
        jobs: Ints,
        *,
        horizon_s: float = math.inf,
        segments: bool = False,
        arrivals: Rows | None = None,
        overrides: Mapping[str, str] | None = None,
    ) -> None:
        """Get ready to look.

        Args:
            present: what is run on.
            unknown_s: what a job takes whose duration is not predicted.
            row: of the job; −1 where no job is of interest.
            jobs: a number for each row of the present's table, the same in every alternative.
            horizon_s: look no further.
            segments: record the placements of the first scenario.
            arrivals: rows that still arrive, as for `Scenarios`.
            overrides: other parts by stage, which decide from now on.
        """
        self.row, self._present, self._unknown_s = row, present, unknown_s
        self._horizon_s, self._arrivals, self._overrides = horizon_s, arrivals, overrides
        self._scenarios = partial(
            Scenarios, present, unknown_s, arrivals=arrivals, overrides=overrides
        )
        self.scenarios = self._scenarios(segments=segments)
        self.jobs: Ints = jobs[self.scenarios.rows]

    def look(self, factor: float, patience_s: float = math.inf, *, only: bool = False) -> bool:
        """Run one scenario; `only` leaves out what becomes of others after the job's end.

        Returns whether it came to its end in time, as `Scenarios.look` does.
        """
        row = self.row if only else None
        return self.scenarios.look(factor, self._horizon_s, patience_s, only=row)

    # -- the job of interest -----------------------------------------------------------------------

    @property
    def place(self) -> int | None:
        """The job's place among the scenarios' rows; None: it is not there."""
        found = np.flatnonzero(self.scenarios.rows == self.row)
        return int(found[0]) if found.size else None

    @property
    def starts(self) -> Floats:
        """When the job starts (again), in each scenario that was run."""
        return self._mine(self.scenarios.starts)

    @property
    def ends(self) -> Floats:
        """When the job ends, in each scenario that was run."""
        return self._mine(self.scenarios.ends)

    def _mine(self, values: list[Floats]) -> Floats:
        place = self.place
        return np.array([] if place is None else [each[place] for each in values], np.float64)

    @property
    def gpu_s(self) -> float:
        """The GPU time that the job takes from now on; NaN where it is not there."""
        place = self.place
        return math.nan if place is None else float(self.scenarios.gpu_s[place])

    @property
    def reward(self) -> float:
        """What the job is expected to earn; NaN where nothing says that."""
        place = self.place
        return math.nan if place is None else self.scenarios.reward(place)

    @property
    def on_time(self) -> float:
        """The chance that the job meets its deadline; NaN without one, or without scenarios."""
        place = self.place
        if place is None:
            return math.nan
        return float(self.scenarios.chance_to_meet_deadlines()[place])

    # -- the others --------------------------------------------------------------------------------

    def others_later_s(self, before: Future) -> float:
        """How much later the others end than in another future, on average; NaN: none does."""
        here, there = self._others(before)
        later = self.scenarios.ends[0][here] - before.scenarios.ends[0][there]
        later = later[~np.isnan(later)]
        return float(later.mean()) if later.size else math.nan

    def others_reward(self, before: Future) -> float:
        """How much more the others earn than in another future; NaN: none has a reward."""
        here, there = self._others(before)
        more = self.scenarios.rewards()[here] - before.scenarios.rewards()[there]
        return float(np.nansum(more)) if not np.isnan(more).all() else math.nan

    def _others(self, before: Future) -> tuple[Ints, Ints]:
        """The places of the other jobs that are in both futures, in this one and in that one."""
        _, here, there = np.intersect1d(self.jobs, before.jobs, return_indices=True)
        is_other = self.scenarios.rows[here] != self.row
        return here[is_other], there[is_other]

    # -- its deadline ------------------------------------------------------------------------------

    def latest_submit(
        self, now: float, until: float = math.inf, *, unsubmitted: Engine | None = None
    ) -> float:
        """When the job can be submitted at the latest and be as sure to keep its deadline.

        Args:
            now: when it is submitted in this future.
            until: by `time.monotonic`, when there is no time left.
            unsubmitted: the present in which only the job still arrives; None: this future's own
                present is right before its submit.

        Returns:
            the time; NaN: it is not sure to keep it, or there was no time to find out.
        """
        if not self.on_time >= SURE:
            return math.nan
        present, arrivals = self._present, self._arrivals
        if unsubmitted is not None:
            present, arrivals = unsubmitted, np.array([self.row])
        assert arrivals is not None
        table = present.world.table
        later = LaterSubmit(
            present=present,
            row=self.row,
            due=table.submit_time.item(self.row) + table.deadline.item(self.row),
            unknown_s=self._unknown_s,
            arrivals=arrivals,
            overrides=self._overrides,
            horizon_s=self._horizon_s,
            until=until,
        )
        return later.latest(now)

    def must_move(self, until: float = math.inf) -> Ints:
        """The jobs ahead that would have to move, so that this one keeps its deadline.

        The jobs that are predicted to start before it are left out in the order of their starts,
        until it is sure to be in time. How many that are is found by halving, as one more that is
        left out makes the job no later under the usual policies; what is returned was tried.

        Args:
            until: by `time.monotonic`, when there is no time left.

        Returns:
            their numbers, in the order of their starts, equal ones in that of the numbers; none
            where the job keeps its deadline or has none, where leaving all of them out does not
            help, and where there is no time to find out.
        """
        nothing, place, scenarios = np.zeros(0, np.int64), self.place, self.scenarios
        if place is None or not scenarios.pending[place]:
            return nothing
        if not self.on_time < SURE:  # or there is no deadline
            return nothing
        starts = scenarios.starts[0]
        own = starts[place]
        is_ahead = scenarios.pending & (starts < (np.inf if np.isnan(own) else own))
        order = np.lexsort((self.jobs[is_ahead], starts[is_ahead]))
        ahead: Ints = np.flatnonzero(is_ahead)[order]
        fewest, enough = 1, len(ahead)
        if not enough or not self._keeps_without(scenarios.rows[ahead], until):
            return nothing
        while fewest < enough:
            middle = (fewest + enough) // 2
            if self._keeps_without(scenarios.rows[ahead[:middle]], until):
                enough = middle
            else:
                fewest = middle + 1
        found: Ints = self.jobs[ahead[:enough]]
        return found

    def _keeps_without(self, rows: Rows, until: float) -> bool:
        """Whether the job is sure to keep its deadline if some that wait were not there."""
        scenarios = self._scenarios(without=rows)
        for factor, _ in SCENARIOS:
            patience_s = max(until - time.monotonic(), 0.0)
            if not scenarios.look(factor, self._horizon_s, patience_s, only=self.row):
                return False
        chance = scenarios.chance_to_meet_deadlines()[scenarios.rows == self.row]
        return bool((chance >= SURE).any())
