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

from dlsched.core.arrays import Floats
from dlsched.core.cluster.description import Cluster
from dlsched.core.errors import BadInput, not_known
from dlsched.core.job_rewards import reward_curve
from dlsched.core.rewards import RewardCurve
from dlsched.core.scenarios import INTERVAL, SCENARIOS, Verdict, verdict_of
from simulate.engine import Engine
from simulate.future import Future
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
    engines: dict[tuple[int | None, float | None], Engine] = {}
    first: Future | None = None
    supposed: list[Supposed] = []
    for choice in (Choice(), *choices):
        key = (choice.gpus, choice.seconds)
        if key not in engines:
            engines[key] = _until_submitted(
                _with(trace, row, choice), cluster, settings, row, inputs
            )
        engine, policy = engines[key], choice.policy or settings.policy
        future = _future(engine, row, choice, arrivals=arrivals)
        first = first or future
        at = engine.coming.visible.item(row)
        supposed.append(_supposed(future, first, at, choice, policy))
    assert first is not None
    engine = engines[None, None]
    table, coming = engine.world.table, engine.coming
    same_moment = coming.rows[coming.place :].tolist().index(row)
    due = table.submit_time.item(row) + table.deadline.item(row)
    return Answer(
        job=job,
        row=row,
        at=coming.visible.item(row),
        due=None if math.isnan(due) else due,
        curve=reward_curve(table, row),
        present=len(engine.all_known) + same_moment,
        supposed=supposed,
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


def _future(engine: Engine, row: int, choice: Choice, *, arrivals: bool) -> Future:
    """A choice run on in every scenario from right before the submit."""
    coming = np.array(engine.coming.rows[engine.coming.place :], np.int64)
    visible = engine.coming.visible
    if not arrivals:
        coming = coming[visible[coming] <= visible[row]]
    engine.predict(coming.tolist())
    future = Future(
        engine,
        UNKNOWN_S,
        row,
        np.arange(len(engine.world.table)),
        segments=True,
        arrivals=coming,
        overrides={"scheduling": choice.policy} if choice.policy else None,
    )
    for factor, _ in SCENARIOS:
        future.look(factor)
    return future


def _supposed(future: Future, first: Future, at: float, choice: Choice, policy: str) -> Supposed:
    """What an alternative of a job that is submitted at a time comes to, beside the first one."""
    scenarios, place = future.scenarios, future.place
    assert place is not None
    start, end = (
        [float(scenarios.quantile(values, q)[place]) for q in INTERVAL]
        for values in (scenarios.starts, scenarios.ends)
    )
    return Supposed(
        choice=choice,
        gpus=scenarios.table.gang.item(future.row),
        policy=policy,
        starts=future.starts,
        ends=future.ends,
        interval=(start[0], start[1], end[0], end[1]),
        on_time=future.on_time,
        latest_submit=future.latest_submit(at),
        reward=future.reward,
        gpu_s=future.gpu_s,
        others_later_s=future.others_later_s(first),
        others_reward=float(np.nan_to_num(future.others_reward(first))),
        segments=scenarios.segments,
    )
