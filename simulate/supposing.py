"""What if a job of a trace had asked for other GPUs, or met another policy: answers in a replay.

The trace is replayed until the job is submitted. From there each alternative is run on in every
scenario, as the live cluster does it: nothing more arrives, or the jobs that come later in the
trace do. A job on other GPUs is another trace with the same past, so speeds come from where a
replay has them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dlsched.core.arrays import Floats, Rows
from dlsched.core.cluster.description import Cluster
from dlsched.core.errors import BadInput, not_known
from dlsched.core.job_rewards import reward_curve
from dlsched.core.rewards import RewardCurve
from dlsched.core.scenarios import INTERVAL, SCENARIOS, SURE, Verdict, verdict_of
from simulate.engine import Engine
from simulate.latest_submit import LaterSubmit
from simulate.outlook import Outlook
from simulate.replay import prepare
from simulate.results.tables import Segments
from simulate.settings import RunSettings
from simulate.traces.trace import Trace

UNKNOWN_S = 86400.0  # that a job takes whose duration is not predicted


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One alternative.

    Attributes:
        gpus: of the job; None: as it asks.
        seconds: that it takes on them; None: as profiles say, else as long as before.
        policy: that decides from the submit on; empty: the present one.
    """

    gpus: int | None = None
    seconds: float | None = None
    policy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Supposed:
    """What comes of an alternative; times are seconds of the trace, NaN for unknown.

    Attributes:
        choice: the alternative.
        gpus: of the job.
        policy: that decides.
        starts: of the job, in each scenario.
        ends: likewise.
        interval: 10 % and 90 % quantile of its start, and of its end.
        on_time: the chance to meet its deadline; NaN without one.
        latest_submit: when it can be submitted at the latest and be as sure to keep its deadline;
            NaN where it is not sure to.
        reward: what it is expected to earn; NaN without a curve.
        gpu_s: GPU time that it takes.
        others_later_s: how much later other jobs end than as it is, on average.
        others_reward: how much more the other jobs earn than as it is, together.
        segments: when each row has which GPUs, from the submit on.
    """

    choice: Choice
    gpus: int
    policy: str
    starts: Floats
    ends: Floats
    interval: tuple[float, float, float, float]
    on_time: float
    latest_submit: float
    reward: float
    gpu_s: float
    others_later_s: float
    others_reward: float
    segments: Segments | None

    @property
    def verdict(self) -> Verdict | None:
        """What its chance is called; None without a deadline."""
        return None if math.isnan(self.on_time) else verdict_of(self.on_time)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Answer:
    """What comes of each alternative.

    Attributes:
        job: its name.
        row: of the trace.
        at: when it is submitted.
        due: its deadline, seconds of the trace; None: it has none.
        curve: what its end is worth; None: it says nothing.
        present: what waits and runs then, in jobs; with those of the same moment before it.
        supposed: as it is comes first.
        must_move: names of the jobs ahead without which it would keep its deadline as it is.
    """

    job: str
    row: int
    at: float
    due: float | None
    curve: RewardCurve | None
    present: int
    supposed: list[Supposed]
    must_move: list[str]


def suppose(
    trace: Trace,
    cluster: Cluster,
    settings: RunSettings,
    job: str,
    choices: Sequence[Choice],
    *,
    arrivals: bool = False,
    **inputs: Any,
) -> Answer:
    """Answer for one job of a trace.

    Args:
        trace: the jobs.
        cluster: every node.
        settings: of the replay.
        job: the job of interest, by its id.
        choices: alternatives to the job as it is.
        arrivals: let the jobs that come later in the trace arrive too.
        inputs: what else a replay needs, as for `prepare`.

    Raises:
        BadInput: the job is not in the trace or can never run, a policy is not known, or the trace
            has dependencies, which nothing here follows.
    """
    names = trace.job_id.tolist()
    if job not in names:
        raise not_known("--what-if: job", job, names[:10])
    row = names.index(job)
    futures: list[_Future] = []
    engines: dict[tuple[int | None, float | None], Engine] = {}
    for choice in (Choice(), *choices):
        key = (choice.gpus, choice.seconds)
        if key not in engines:
            engines[key] = _until_submitted(
                _with(trace, row, choice), cluster, settings, row, inputs
            )
        futures.append(_Future(engines[key], row, choice, settings, arrivals=arrivals))
    first = futures[0]
    engine = engines[None, None]
    same_moment = engine.coming.rows[engine.coming.place :].tolist().index(row)
    return Answer(
        job=job,
        row=row,
        at=first.at,
        due=first.due,
        curve=reward_curve(first.outlook.table, row),
        present=len(engine.all_known) + len(engine.coming.kept_waiting(engine.now)) + same_moment,
        supposed=[future.told(first) for future in futures],
        must_move=[names[each] for each in first.must_move().tolist()],
    )


def _with(trace: Trace, row: int, choice: Choice) -> Trace:
    """The trace in which a job asks for other GPUs."""
    if choice.gpus is None:
        return trace
    gpus, duration = trace.num_gpus.copy(), trace.duration.copy()
    gpus[row] = choice.gpus
    if choice.seconds is not None:
        duration[row] = choice.seconds
    columns = dict(trace.columns)
    for name in ("min_gpus", "max_gpus", "gang"):  # they are of the job as it is
        if name in columns:
            columns[name] = columns[name].copy()
            columns[name][row] = "" if columns[name].dtype == object else np.nan
    return replace(trace, num_gpus=gpus, duration=duration, columns=columns)


def _until_submitted(
    trace: Trace,
    cluster: Cluster,
    settings: RunSettings,
    row: int,
    inputs: Mapping[str, Any],
) -> Engine:
    """A replay that stands right before a job is submitted."""
    engine = prepare(trace, cluster, settings, **inputs)
    table = engine.world.table
    if row in engine.refusals:
        raise BadInput(f"--what-if: job {trace.job_id[row]}: {engine.refusals[row]}")
    if table.parents or table.array_limits:
        raise BadInput(
            "--what-if: a trace with dependencies, or with limits of arrays, has no forecasts"
        )
    engine.run_until_before(engine.coming.visible.item(row))
    return engine


class _Future:
    """One alternative, run on in every scenario."""

    def __init__(
        self, engine: Engine, row: int, choice: Choice, settings: RunSettings, *, arrivals: bool
    ) -> None:
        self.choice, self.row = choice, row
        coming = np.array(engine.coming.rows[engine.coming.place :], np.int64)
        visible = engine.coming.visible
        self.at = visible.item(row)
        if not arrivals:
            coming = coming[visible[coming] <= self.at]
        kept = engine.coming.kept_waiting(engine.now)
        if kept:  # by a limit on GPUs: in the copy, too, until there is room
            engine.coming.visible = visible.copy()
            engine.coming.visible[list(kept)] = list(kept.values())
            coming = np.concatenate([np.array(list(kept), np.int64), coming])
        engine.predict(coming.tolist())
        self._engine, self._coming = engine, coming
        self._overrides = {"scheduling": choice.policy} if choice.policy else None
        self.outlook = Outlook(
            engine, UNKNOWN_S, segments=True, arrivals=coming, overrides=self._overrides
        )
        for factor, _ in SCENARIOS:
            self.outlook.look(factor, math.inf, math.inf)
        table = self.outlook.table
        self._gpus, self._policy = table.gang.item(row), choice.policy or settings.policy
        due = table.submit_time.item(row) + table.deadline.item(row)
        self.due = None if math.isnan(due) else due

    def told(self, first: _Future) -> Supposed:
        """What it comes to, beside the job as it is."""
        outlook = self.outlook
        place = int(np.flatnonzero(outlook.rows == self.row)[0])
        low, high = INTERVAL
        interval = tuple(
            float(outlook.quantile(values, q)[place])
            for values in (outlook.starts, outlook.ends)
            for q in (low, high)
        )
        others = np.flatnonzero(outlook.rows != self.row)  # the same rows in each alternative
        later = (outlook.ends[0] - first.outlook.ends[0])[others]
        gained = (outlook.rewards() - first.outlook.rewards())[others]
        later = later[~np.isnan(later)]
        on_time = float(outlook.chance_to_meet_deadlines()[place])
        return Supposed(
            choice=self.choice,
            gpus=self._gpus,
            policy=self._policy,
            starts=np.array([starts[place] for starts in outlook.starts]),
            ends=np.array([ends[place] for ends in outlook.ends]),
            interval=(interval[0], interval[1], interval[2], interval[3]),
            on_time=on_time,
            latest_submit=self._latest_submit() if on_time >= SURE else math.nan,
            reward=outlook.reward(place),
            gpu_s=float(outlook.gpu_s[place]),
            others_later_s=float(later.mean()) if later.size else math.nan,
            others_reward=float(np.nansum(gained)),
            segments=outlook.segments,
        )

    def must_move(self) -> Rows:
        """The rows ahead without which the job would keep its deadline."""

        def keeps_without(rows: Rows) -> bool:
            outlook = Outlook(
                self._engine,
                UNKNOWN_S,
                arrivals=self._coming,
                overrides=self._overrides,
                without=rows,
            )
            for factor, _ in SCENARIOS:
                outlook.look(factor, math.inf, math.inf, only=self.row)
            return bool(outlook.chance_to_meet_deadlines()[outlook.rows == self.row] >= SURE)

        place = int(np.flatnonzero(self.outlook.rows == self.row)[0])
        return self.outlook.must_move(place, self.outlook.rows, keeps_without)

    def _latest_submit(self) -> float:
        assert self.due is not None
        later = LaterSubmit(
            present=self._engine,
            row=self.row,
            due=self.due,
            unknown_s=UNKNOWN_S,
            arrivals=self._coming,
            overrides=self._overrides,
        )
        return later.latest(self.at)
