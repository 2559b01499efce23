"""The present run on in several scenarios: when jobs start and end, and what that is worth.

The one way in which both worlds predict: a live snapshot and a replay in progress are engines, and
each scenario is a run of a copy in which durations are other ones than predicted. The policy goes
on deciding by its own predictions. Nothing more arrives, unless a replay lets its jobs to come.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from dlsched.core.arrays import Bools, Floats, Rows
from dlsched.core.job_rewards import reward_curve
from dlsched.core.scenarios import SCENARIOS, WEIGHTS, chance_by, weighted_quantile
from dlsched.core.units import FUTURE, HELD_BACK, RUNNING, WAITING, UnitTable
from simulate.engine import Engine
from simulate.forecast import forecaster, read
from simulate.results.tables import Segments

LATE_S, LATE = 60.0, 0.1  # how much longer a job runs that has outrun its prediction
SOON_S = 1.0  # until a job ends that has reached its time limit


class Scenarios:
    """The present run on in several scenarios, the likeliest one first.

    Attributes:
        rows: the units that have not ended.
        pending: which of them have no GPUs now.
        starts: of each scenario, the (next) start of each pending row; NaN for none.
        ends: likewise the end of each row.
        gpu_s: of the first scenario, the GPU time that each row takes from now on.
        segments: of the first scenario, when each row has which GPUs; None: they were not recorded.
        refused: of the first scenario, why rows were refused for good.
        was_cut: whether the first scenario was stopped before its end.
    """

    def __init__(
        self,
        present: Engine,
        unknown_s: float,
        *,
        segments: bool = False,
        arrivals: Rows | None = None,
        overrides: Mapping[str, str] | None = None,
        without: Rows | None = None,
    ) -> None:
        """Get ready to look.

        Args:
            present: is left as it is, but for the first starts of rows that wait.
            unknown_s: what a job takes whose duration is not predicted.
            segments: record the placements of the first scenario.
            arrivals: rows that still arrive, in order, in a replay in progress; None: the present
                begins with a decision, and nothing arrives.
            overrides: other parts by stage, which decide from now on.
            without: rows without GPUs that leave at once, or never arrive.
        """
        self._present, self._unknown_s, self._keeps_segments = present, unknown_s, segments
        self._arrivals, self._overrides, self._without = arrivals, overrides, without
        self._forecaster = forecaster(present)
        table = present.world.table
        waits = np.isin(table.status, (WAITING, HELD_BACK, FUTURE))
        table.first_start[waits] = np.nan  # of those that ran before, the next start is asked for
        self.rows: Rows = present.all_known
        if arrivals is not None:
            self.rows = np.concatenate([self.rows, arrivals])
        self.pending: Bools = waits[self.rows]
        self.starts: list[Floats] = []
        self.ends: list[Floats] = []
        self.gpu_s: Floats = np.zeros(0)
        self.segments: Segments | None = None
        self.refused: dict[int, str] = {}
        self.was_cut = False

    @property
    def table(self) -> UnitTable:
        """All units, as they are now."""
        return self._present.world.table

    def look(
        self, factor: float, horizon_s: float, patience_s: float, *, only: int | None = None
    ) -> bool:
        """Run one scenario; returns whether it came to its end in time.

        One that was stopped counts only when it is the first.

        Args:
            factor: what the time that each job has left is multiplied by.
            horizon_s: look no further.
            patience_s: what it may cost.
            only: the row of interest; what becomes of others after its end is left out.
        """
        is_first = not self.starts
        if patience_s <= 0 and not is_first:
            return False
        ran = self._forecaster.run(
            self._overrides,
            horizon=horizon_s,
            patience_s=patience_s,
            true_work=self.durations(factor),
            until_ended=only,
            segments=is_first and self._keeps_segments,
            arrivals=self._arrivals,
            without=self._without,
        )
        if ran.was_cut and not is_first:
            return False
        found = read(ran.engine, self._present, self.rows)
        self.starts.append(np.where(self.pending, found.first_start, np.nan))
        self.ends.append(found.finish)
        if is_first:
            self.was_cut = ran.was_cut
            cycle = ran.engine.cycle
            self.refused = {row: cycle.refusals[row].detail for row in cycle.refused}
            self.gpu_s = self._gpu_s(ran.engine)
            self.segments = ran.engine.world.recorder.segments(ran.engine.now)
        return not ran.was_cut

    def quantile(self, values: list[Floats], q: float) -> Floats:
        """A quantile over the scenarios; NaN for all while not every scenario was run."""
        if len(values) < len(SCENARIOS):
            return np.full(len(self.rows), np.nan)
        return weighted_quantile(np.array(values), q)

    def chance_to_meet_deadlines(self) -> Floats:
        """The chance of each row to meet its deadline; NaN without one, or without scenarios."""
        if len(self.ends) < len(SCENARIOS):
            return np.full(len(self.rows), np.nan)
        return chance_by(
            np.array(self.ends), (self.table.submit_time + self.table.deadline)[self.rows]
        )

    def reward(self, place: int) -> float:
        """What the row at a place is expected to earn; NaN without curve, or without scenarios."""
        curve = reward_curve(self.table, int(self.rows[place]))
        if curve is None or len(self.ends) < len(SCENARIOS):
            return math.nan
        submit = self.table.submit_time.item(int(self.rows[place]))
        earned = [curve.earned(float(ends[place]) - submit) for ends in self.ends]
        return float(np.dot(WEIGHTS, earned))

    def rewards(self) -> Floats:
        """What each row earns in the first scenario; NaN for a row without a curve."""
        found = np.full(len(self.rows), np.nan)
        for place, row in enumerate(self.rows.tolist()):
            curve = reward_curve(self.table, row)
            if curve is not None:
                took = float(self.ends[0][place]) - self.table.submit_time.item(row)
                found[place] = curve.earned(took)
        return found

    def durations(self, factor: float) -> Floats:
        """The work that each row really needs in a scenario, what it has done included.

        A running job that has taken longer than predicted is assumed to run on for a tenth of that,
        and for a minute at least. No job runs for longer than its time limit.
        """
        table, now = self.table, self._present.now
        runs = table.status == RUNNING
        rate = np.where(runs & (table.rate > 0), table.rate, 1.0)
        held_s = np.where(runs, np.maximum(now - table.since, 0.0), 0.0)
        done = table.executed + np.where(runs, np.maximum(now - table.progress_from, 0.0), 0) * rate
        unknown = np.isnan(table.predicted_work)
        predicted = np.where(unknown, self._unknown_s, table.predicted_work)
        left = np.maximum(predicted - done, 0.0)
        late = runs & (left <= 0)
        left[late] = np.maximum(LATE_S, LATE * done[late])
        left *= factor
        most = np.maximum(table.time_limit - held_s, SOON_S) * rate
        needed: Floats = done + np.where(np.isnan(most), left, np.minimum(left, most))
        return needed

    def _gpu_s(self, fork: Engine) -> Floats:
        before, after = self._present.world.table, fork.world.table
        found: Floats = (after.attained - before.attained)[self.rows]
        runs = before.status[self.rows] == RUNNING  # what they held until now is not booked yet
        gpus = before.gpus_now * before.parts(np.arange(len(before)))
        held = np.maximum(self._present.now - before.since, 0.0) * gpus
        rest: Floats = np.where(runs, np.maximum(found - held[self.rows], 0.0), found)
        return rest
