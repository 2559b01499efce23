"""Why a job of a replay has its place: what its predicted duration is the sum of, and its rank."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dlsched.core.allocation import Allocation
from dlsched.core.errors import BadInput
from dlsched.core.stage import ESTIMATED
from dlsched.core.units import Units
from simulate.engine import Engine
from simulate.traces.trace import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The first decision in which a policy ranked a job.

    Attributes:
        at: seconds.
        policy: its name.
        rank: from 1; 0 where the policy did not rank the job before it ended.
        ranked: how many jobs it ranked then.
        predicted_s: predicted seconds of work.
        numbers: the terms of the prediction, and the policy's own numbers, by name.
    """

    at: float
    policy: str
    rank: int
    ranked: int
    predicted_s: float
    numbers: dict[str, float]


def explain(trace: Trace, job: str, engine: Engine) -> Explanation:
    """Run a replay up to the decision that first ranks a job.

    Args:
        trace: the jobs.
        job: the id of one of them.
        engine: the replay, which has not begun.

    Raises:
        BadInput: the trace has no such job.
        PolicyFailed: a part failed on the way.
    """
    ids = trace.job_id.tolist()
    if job not in ids:
        raise BadInput(f"--explain: job {job} is not in {trace.name}")
    row, found = ids.index(job), list[Explanation]()
    engine.observers.append(_looking_for(row, found))
    engine.run()
    if found:
        return found[0]
    predicted = engine.world.table.predicted_work.item(row)
    return Explanation(
        at=engine.now,
        policy=engine.parts.scheduling.name,
        rank=0,
        ranked=0,
        predicted_s=predicted,
        numbers={},
    )


def _looking_for(row: int, found: list[Explanation]) -> Callable[[Engine, Allocation], None]:
    """Note the first decision that ranks a row, and let the replay end there."""

    def look(engine: Engine, allocation: Allocation) -> None:
        order = allocation.order
        if found or order is None or row not in order:
            return
        place = int(np.flatnonzero(order == row)[0])
        ctx = engine.cycle.ctx
        terms = engine.parts.estimator.terms(Units(ctx.table, np.array([row]), ctx.now), ctx)
        numbers = {ESTIMATED + name: float(values[0]) for name, values in terms.items()}
        numbers |= {name: float(values[place]) for name, values in allocation.terms.items()}
        found.append(
            Explanation(
                at=engine.now,
                policy=engine.parts.scheduling.name,
                rank=place + 1,
                ranked=len(order),
                predicted_s=ctx.table.predicted_work.item(row),
                numbers=numbers,
            )
        )
        engine.horizon = engine.now

    return look
